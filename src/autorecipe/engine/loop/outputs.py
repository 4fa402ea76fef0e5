"""Checks before a run that what it will write to can be written: an hour of training must not end at its first save.

Start reading at `check_outputs`. Leaves out: how much space there is (the saver asks before each checkpoint).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from autorecipe.engine.loop.settings import LoopSettings
from autorecipe.errors import EnvironmentProblem, Problem

PROBE_BYTES = 4096
"""Written to each folder, because a full disk still takes empty files."""


def check_outputs(settings: LoopSettings, metrics_path: Path | None) -> None:
    """Make the folders that a run writes to, and try each (one process for all).

    Args:
        settings: of the loop.
        metrics_path: JSON Lines file, or None.

    Raises:
        EnvironmentProblem: every one that cannot be written.
    """
    folders = {
        "checkpoint.save": settings.save_dir,
        "--metrics": None if metrics_path is None else metrics_path.parent,
        "logger.tensorboard_dir": settings.tensorboard_dir,
    }
    problems = []
    for name, folder in folders.items():
        if folder is None:
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
                probe.write(bytes(PROBE_BYTES))
        except OSError as error:
            message = f"{str(folder)!r} cannot be written: {os.strerror(error.errno) if error.errno else error}"
            hint = f"use a folder that you may write to, such as {name}{' ' if name.startswith('--') else '='}{_example(name)}"
            problems.append(Problem(path=name, code="unwritable", message=message, hint=hint))
    if problems:
        raise EnvironmentProblem(problems)


def _example(name: str) -> str:
    return {"checkpoint.save": "runs/first/checkpoints", "--metrics": "runs/first/metrics.jsonl"}.get(
        name, "runs/first/tensorboard"
    )
