"""Running one process of an upstream program in place of the engine: `--engine bridge` and `--engine mlm`.

Every rank starts its own copy, as upstream does under the same launcher; its lines pass through, and their numbers are recorded
as the engine records its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import IO

from autorecipe.api.upstream import UpstreamProgram
from autorecipe.parity.averaging import split_average
from autorecipe.parity.textlog import parse_text_log
from autorecipe.schema.parity import Reading


def run_program(program: UpstreamProgram, *, metrics: Path | None) -> int:
    """Run the program to its end; its lines pass through, SIGTERM and SIGINT are handed on.

    Args:
        program: what `find_program` returned.
        metrics: JSON Lines file for the numbers of its log lines, or None.

    Returns:
        its exit code, 128 + signal where it was ended by one.
    """
    process = subprocess.Popen(
        (sys.executable, *program.words),
        env={**os.environ, **program.environment},
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        bufsize=1,
    )

    def hand_on(number: int, _frame: FrameType | None) -> None:
        process.send_signal(number)

    previous = {number: signal.signal(number, hand_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert process.stdout is not None
        if metrics is None:
            _pass_through(process.stdout, None)
        else:
            metrics.parent.mkdir(parents=True, exist_ok=True)
            with metrics.open("w", encoding="utf-8") as file:
                _pass_through(process.stdout, MetricsWriter(file, averages_second=program.engine == "mlm"))
        code = process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


class MetricsWriter:
    """Turns log lines into JSON Lines.

    Args:
        file: where rows go.
        averages_second: whether the second line holds the mean of two iterations, as Megatron-LM's does; it is undone.
    """

    def __init__(self, file: IO[str], *, averages_second: bool) -> None:
        self._file = file
        self._averages_second = averages_second
        self._seen: list[tuple[int, Mapping[str, Reading]]] = []

    def write(self, line: str) -> None:
        """Record the numbers of a line, if it is an iteration's."""
        for number, row in parse_text_log(line, name="line").steps.items():
            if len(self._seen) < 2:
                self._seen.append((number, row))
            is_second = len(self._seen) == 2 and self._seen[1][0] == number == self._seen[0][0] + 1
            own: Mapping[str, Reading] = split_average(self._seen[0][1], row) if self._averages_second and is_second else row
            numbers = {"iteration": number, **{name: reading.value for name, reading in own.items()}}
            self._file.write(json.dumps(numbers) + "\n")
            self._file.flush()


def _pass_through(lines: IO[str], metrics: MetricsWriter | None) -> None:
    for line in lines:
        sys.stdout.write(line)
        sys.stdout.flush()
        if metrics is not None:
            metrics.write(line)
