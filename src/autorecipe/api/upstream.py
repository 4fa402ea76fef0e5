"""Starting upstream's own program in place of the engine: `--engine bridge` and `--engine mlm`.

Purpose: find the program, give it the translated configuration, pass its lines through, and record their numbers as the
engine records its own. Every rank starts its own copy, as upstream does under the same launcher. Start at `find_program`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

import autorecipe
from autorecipe.api.train import TrainRequest
from autorecipe.api.translate import load_mlm_mapping, to_mlm
from autorecipe.errors import EnvironmentProblem, NegativeAnswer, Problem
from autorecipe.record import dataclass, field
from autorecipe.translate.to_mlm import mlm_words

BRIDGE_VARIABLE = "MEGATRON_BRIDGE"
MLM_VARIABLE = "MEGATRON_LM"
STARTER = "autorecipe.engine.upstream"
MLM_FOLDERS = ("3rdparty/Megatron-LM",)
"""Where a Megatron-LM checkout is looked for besides the variable; upstream's own place."""

_STEP = re.compile(r"iteration\s+(?P<iteration>\d+)\s*/\s*\d+\s*\|(?P<rest>.*)")
_NUMBER = re.compile(r"\s*(?P<name>[^:|]+):\s*(?P<value>[-+.\dEe]+)\s*")


@dataclass(frozen=True, kw_only=True)
class UpstreamProgram:
    """A command to start in place of the engine.

    Attributes:
        command: program and arguments.
        environment: variables to set besides the process's own.
        notes: what the translation adds or leaves out, for the user.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def find_program(request: TrainRequest, *, dataset_paths: Sequence[str] = ()) -> UpstreamProgram:
    """Find upstream's program for a request and translate the configuration for it.

    Args:
        request: what to run; `engine` is bridge or mlm.
        dataset_paths: indexed data prefixes, for Bridge's own flag.

    Raises:
        EnvironmentProblem: the program is not installed here.
        NegativeAnswer: a setting that changes the training has no Megatron-LM option.
    """
    return _find_bridge(request, dataset_paths) if request.engine == "bridge" else _find_mlm(request)


def run_program(program: UpstreamProgram, *, metrics: Path | None) -> int:
    """Run the program to its end; its lines pass through, SIGTERM and SIGINT are handed on.

    Args:
        program: what `find_program` returned.
        metrics: JSON Lines file for the numbers of its log lines, or None.

    Returns:
        its exit code, 128 + signal where it was ended by one.
    """
    process = subprocess.Popen(
        program.command, env={**os.environ, **program.environment}, stdout=subprocess.PIPE, text=True, errors="replace", bufsize=1
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
                _pass_through(process.stdout, file)
        code = process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def read_numbers(line: str) -> dict[str, float] | None:
    """Return the numbers of one Megatron-style log line, or None where it is none."""
    match = _STEP.search(line)
    if match is None:
        return None
    numbers: dict[str, float] = {"iteration": int(match["iteration"])}
    for part in match["rest"].split("|"):
        found = _NUMBER.fullmatch(part)
        if found is not None:
            numbers[found["name"].strip()] = float(found["value"])
    return numbers


def _pass_through(lines: IO[str], metrics: IO[str] | None) -> None:
    for line in lines:
        sys.stdout.write(line)
        sys.stdout.flush()
        numbers = read_numbers(line) if metrics is not None else None
        if numbers is not None and metrics is not None:
            metrics.write(json.dumps(numbers) + "\n")
            metrics.flush()


def _find_bridge(request: TrainRequest, dataset_paths: Sequence[str]) -> UpstreamProgram:
    own = [text for text in request.overrides if text.startswith("engine.")]
    overrides = [text for text in request.overrides if not text.startswith("engine.")]
    notes = (f"not for Megatron Bridge, left out: {' '.join(own)}",) if own else ()
    checkout = os.environ.get(BRIDGE_VARIABLE)
    if checkout is not None:
        script = Path(checkout) / "scripts" / "training" / "run_recipe.py"
        if not script.is_file():
            raise EnvironmentProblem(f"{BRIDGE_VARIABLE}={checkout} holds no scripts/training/run_recipe.py", hint="correct it")
        words = ["--recipe", request.recipe]
        words += ["--mode", request.mode] if request.mode else []
        words += ["--dataset", request.dataset] if request.dataset else []
        words += [word for path in dataset_paths for word in ("--dataset-path", path)]
        return _start("bridge", Path(checkout), [*words, *overrides], notes)
    if _is_installed("megatron.bridge"):
        script = Path(__file__).resolve().parents[3] / "scripts" / "training" / "start_bridge.py"
        if script.is_file():
            words = [request.recipe, request.dataset or "", request.mode or ""]
            return UpstreamProgram(command=(sys.executable, str(script), *words, *overrides), notes=notes)
    raise EnvironmentProblem(
        "--engine bridge: Megatron Bridge is not installed here",
        hint=f"install megatron-bridge, or set {BRIDGE_VARIABLE}=/path/to/checkout; --engine core needs neither",
    )


def _find_mlm(request: TrainRequest) -> UpstreamProgram:
    given = os.environ.get(MLM_VARIABLE)
    folders = [Path(given)] if given else [Path(folder) for folder in MLM_FOLDERS]
    checkout = next((folder for folder in folders if (folder / "pretrain_gpt.py").is_file()), None)
    if checkout is None:
        raise EnvironmentProblem(
            f"--engine mlm: no pretrain_gpt.py in {', '.join(map(str, folders))}",
            hint=f"clone Megatron-LM and set {MLM_VARIABLE}=/path/to/Megatron-LM; --engine core needs neither",
        )
    overrides = [text for text in request.overrides if not text.startswith("engine.")]
    translation = to_mlm(request.recipe, overrides, gpus=request.world_size)
    lost = [
        Problem(
            code="not-in-megatron-lm",
            path=outcome.name,
            message=f"={outcome.value}: Megatron-LM has no option for it, so another model would be trained",
            hint="use --engine core or --engine bridge",
        )
        for outcome in translation.lost
    ]
    if translation.problems or lost:
        raise NegativeAnswer([*translation.problems, *lost])
    words = mlm_words(translation, load_mlm_mapping())
    return _start("mlm", checkout, words, translation.notes)


def _start(kind: str, checkout: Path, words: Sequence[str], notes: Sequence[str]) -> UpstreamProgram:
    """Start a checkout's program through the engine's starter, which makes it run without GPUs too."""
    source = str(Path(autorecipe.__file__).resolve().parents[1])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    return UpstreamProgram(
        command=(sys.executable, "-m", STARTER, kind, str(checkout.resolve()), *words),
        environment={"PYTHONPATH": path},
        notes=tuple(notes),
    )


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
