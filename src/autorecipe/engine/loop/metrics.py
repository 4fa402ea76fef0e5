"""Where numbers go besides the log: JSON Lines, TensorBoard, Weights & Biases.

Purpose: one call per log line; a sink that is asked for and not installed is an error before training, not a lost curve.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from autorecipe.errors import EnvironmentProblem

TEST_SUFFIX = " test"
"""Ends the names of what is measured on the test set, once, after training."""


class MetricSink(Protocol):
    """Takes the numbers of one step."""

    def write(self, iteration: int, values: Mapping[str, float], *, consumed_samples: int) -> None:
        """Record values of an iteration."""

    def close(self) -> None:
        """Flush and release."""


class JsonLinesSink:
    """One JSON object per record, with full precision; flushed after each, so that a killed run keeps its trace."""

    def __init__(self, path: Path, *, resumed_at: int, facts: Mapping[str, Any] | None = None) -> None:
        """Open for appending; records after the resumed iteration belong to steps that will be done again and are dropped.

        Args:
            path: the file.
            resumed_at: iteration that training continues from; 0 starts the file anew.
            facts: about the run, for the first line, which has no iteration.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line, row in _complete_lines(path) if _is_done(row, resumed_at)] if resumed_at else []
        temporary = path.with_name(f"{path.name}.new")
        lines = [json.dumps(dict(facts)), *kept] if facts else kept
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        temporary.replace(path)
        self._file = path.open("ab", buffering=0)
        self._is_torn = False

    def write(self, iteration: int, values: Mapping[str, float], *, consumed_samples: int) -> None:
        """Append one line; numbers that are not finite become null, as JSON has no others.

        Raises:
            OSError: it could not be written; what stands there of it is skipped by readers, and the next line begins anew.
        """
        clean = {name: value if math.isfinite(value) else None for name, value in values.items()}
        line = json.dumps({"iteration": iteration, "consumed_samples": consumed_samples, **clean}) + "\n"
        whole = (("\n" if self._is_torn else "") + line).encode()
        self._is_torn = True
        written = self._file.write(whole)
        if written != len(whole):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)
        self._is_torn = False

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardSink:
    """TensorBoard event files under upstream's tag names."""

    def __init__(self, folder: Path, *, resumed_at: int) -> None:
        """Open.

        Args:
            folder: where event files go.
            resumed_at: iteration that training continues from; later events of an earlier run are hidden.

        Raises:
            EnvironmentProblem: TensorBoard is not installed.
        """
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise EnvironmentProblem(
                "logger.tensorboard_dir is set and TensorBoard is not installed",
                hint="pip install tensorboard, or set logger.tensorboard_dir=null",
            ) from None
        self._writer: Any = SummaryWriter(log_dir=str(folder), max_queue=1000, purge_step=resumed_at + 1 if resumed_at else None)

    def write(self, iteration: int, values: Mapping[str, float], *, consumed_samples: int) -> None:
        """Record each value against steps and against samples."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, iteration)
            self._writer.add_scalar(f"{name} vs samples", value, consumed_samples)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class WandbSink:
    """A Weights & Biases run."""

    def __init__(self, *, project: str, name: str, folder: Path | None, config: Mapping[str, Any]) -> None:
        """Start the run.

        Raises:
            EnvironmentProblem: the wandb package is not installed.
        """
        try:
            import wandb
        except ImportError:
            raise EnvironmentProblem(
                "logger.wandb_project is set and wandb is not installed",
                hint="pip install wandb, or set logger.wandb_project=null",
            ) from None
        self._run: Any = wandb.init(project=project, name=name, dir=str(folder) if folder else None, config=dict(config))

    def write(self, iteration: int, values: Mapping[str, float], *, consumed_samples: int) -> None:
        """Record the values of one step."""
        self._run.log({**values, "samples vs steps": consumed_samples}, step=iteration)

    def close(self) -> None:
        """End the run."""
        self._run.finish()


class Sinks:
    """Every sink of one process. One that cannot be written to any more costs a message, not the run."""

    def __init__(self, sinks: list[MetricSink], *, say: Callable[[str], None] = print) -> None:
        """Keep them.

        Args:
            sinks: open ones.
            say: prints a line.
        """
        self._sinks = sinks
        self._say = say
        self._failing: set[int] = set()

    def write(self, iteration: int, values: Mapping[str, float], *, consumed_samples: int) -> None:
        """Record in each."""
        for number, sink in enumerate(self._sinks):
            try:
                sink.write(iteration, values, consumed_samples=consumed_samples)
            except OSError as error:
                self._note(number, f"error[metrics-write]: numbers from iteration {iteration} on are NOT recorded: {error}")
            else:
                if number in self._failing:
                    self._failing.remove(number)
                    self._say(f"numbers are recorded again from iteration {iteration} on")

    def close(self) -> None:
        """Close each."""
        for number, sink in enumerate(self._sinks):
            try:
                sink.close()
            except OSError as error:
                self._note(number, f"error[metrics-write]: the last numbers are NOT recorded: {error}")

    def _note(self, number: int, message: str) -> None:
        """Say it once, until it works again."""
        if number not in self._failing:
            self._failing.add(number)
            self._say(f"{message}; training goes on\nhint: free space there; every line is tried again")


def _is_done(row: Mapping[str, Any], resumed_at: int) -> bool:
    """Return whether a record will not be made again: the evaluation on the test set comes after every last step."""
    return row["iteration"] <= resumed_at and not any(name.endswith(TEST_SUFFIX) for name in row)


def _complete_lines(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return lines of a file that are whole JSON, parsed too: a kill may leave a torn last one."""
    if not path.is_file():
        return []
    whole = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict) and isinstance(row.get("iteration"), int):
            whole.append((line, row))
    return whole
