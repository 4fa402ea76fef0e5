"""Running both sides of a parity experiment: commands, fresh folders, captured logs.

Programs are started by name in processes of their own, each in a folder of its own. Start reading at `run_side`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from autorecipe.errors import EnvironmentProblem, NegativeAnswer, Problem
from autorecipe.record import dataclass, field
from autorecipe.schema.parity import RunOutcome

STALE_FOLDER = "nemo_experiments"


@dataclass(frozen=True, kw_only=True)
class SideRun:
    """One process group to start.

    Attributes:
        name: folder and log name.
        program: words after the process launcher: a script or `-m MODULE`, and its arguments.
        processes: processes on this machine.
        environment: variables on top of the present ones.
        header: lines for the top of the log that say what runs, where the program does not say it itself.
    """

    name: str
    program: tuple[str, ...]
    processes: int
    environment: Mapping[str, str] = field(default_factory=dict)
    header: tuple[str, ...] = ()


def prepare_folder(folder: Path, *, say: Callable[[str], None]) -> None:
    """Make a run's folder, and move a stale result folder aside: upstream resumes what it finds there without a word."""
    folder.mkdir(parents=True, exist_ok=True)
    set_aside(folder / STALE_FOLDER, say=say, why="it would have been resumed")


def set_aside(path: Path, *, say: Callable[[str], None], why: str) -> None:
    """Give what an earlier run left another name, and say so; nothing is deleted.

    Args:
        path: file or folder; nothing happens where there is none.
        say: receives one line for people.
        why: reason, as a clause.
    """
    if not path.exists():
        return
    aside = path.with_name(f"{path.name}.stale-{time.strftime('%Y%m%d-%H%M%S')}")
    number = 1
    while aside.exists():
        aside = aside.with_name(f"{aside.name}-{number}")
        number += 1
    shutil.move(str(path), str(aside))
    say(f"moved a stale {path} to {aside.name}: {why}")


def run_side(side: SideRun, output: Path, *, say: Callable[[str], None], timeout_s: float | None = None) -> RunOutcome:
    """Run one side and capture everything it prints.

    Args:
        side: what to start.
        output: folder of the experiment; the run gets `output/NAME/`, its log is `output/NAME.log`.
        say: receives one line for people.
        timeout_s: seconds after which the run is stopped; None waits.

    Raises:
        EnvironmentProblem: the launcher cannot be started.
        NegativeAnswer: the run failed or timed out; the end of its log is in the message.
    """
    folder = output / side.name
    prepare_folder(folder, say=say)
    log = output / f"{side.name}.log"
    command = (sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={side.processes}", "--standalone", *side.program)
    environment = {**os.environ, **side.environment}
    source = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join([source, *filter(None, [environment.get("PYTHONPATH", "")])])
    environment.setdefault("OMP_NUM_THREADS", "1")
    say(f"{side.name}: {' '.join(command[1:6])} ... in {folder}, log {log}")
    started = time.monotonic()
    try:
        with log.open("w", encoding="utf-8") as stream:
            stream.writelines(f"# {line}\n" for line in side.header)
            stream.flush()
            done = subprocess.run(
                command, cwd=folder, env=environment, stdout=stream, stderr=subprocess.STDOUT, timeout=timeout_s, check=False
            )
    except OSError as error:
        raise EnvironmentProblem(f"{side.name}: cannot start {command[0]}: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise NegativeAnswer(
            Problem(code="run-timeout", path=str(log), message=f"{side.name} was stopped after {timeout_s:.0f} s")
        ) from error
    seconds = time.monotonic() - started
    if done.returncode != 0:
        tail = "\n".join(_own_lines(log.read_text(encoding="utf-8", errors="replace"))[-12:])
        raise NegativeAnswer(
            Problem(code="run-failed", path=str(log), message=f"{side.name} ended with status {done.returncode}:\n{tail}")
        )
    return RunOutcome(name=side.name, log=str(log), command=command, seconds=round(seconds, 1), processes=side.processes)


def _own_lines(text: str) -> list[str]:
    """Return the program's own lines: what the process launcher adds after a failure is left out."""
    lines = text.splitlines()
    marks = ("torch.distributed.elastic", "elastic/multiprocessing", "ChildFailedError", "torch/distributed/run.py")
    end = next((at for at, line in enumerate(lines) if any(mark in line for mark in marks)), len(lines))
    own = [line for line in lines[:end] if line.strip() and not line.startswith("Traceback (most recent call last)")]
    return own or lines
