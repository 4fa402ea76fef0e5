"""From a path to a training log, whatever form it has."""

from __future__ import annotations

import codecs
import gzip
from pathlib import Path

from autorecipe.errors import Problem, UsageError
from autorecipe.parity.events import find_event_files, load_events
from autorecipe.parity.jsonlines import looks_like_json_lines, parse_json_lines
from autorecipe.parity.textlog import parse_text_log
from autorecipe.schema.parity import TrainingLog


def load_logs(paths: list[Path]) -> list[TrainingLog]:
    """Load several logs, reporting all that cannot be read at once.

    Raises:
        UsageError: a path does not exist, or holds no iteration.
        EnvironmentProblem: event files are given and the tensorboard package is missing.
    """
    problems: list[Problem] = []
    logs: list[TrainingLog] = []
    for path in paths:
        if not path.exists():
            problems.append(Problem(code="no-such-log", path=str(path), message="no such file or folder"))
            continue
        log = load_log(path)
        if log is None:
            message = "is a folder without TensorBoard event files"
            problems.append(Problem(code="empty-log", path=str(path), message=message, hint="give the log file itself"))
            continue
        if not log.steps:
            problems.append(
                Problem(
                    code="empty-log",
                    path=str(path),
                    message="holds no iteration: expected lines such as `iteration 1/ 10 | lm loss: 1.04E+01 |`, JSON objects "
                    "with `iteration`, or TensorBoard event files",
                    hint="log every iteration: --log-interval 1, or logger.log_interval=1",
                )
            )
            continue
        logs.append(log)
    if problems:
        raise UsageError(problems)
    return logs


def load_log(path: Path) -> TrainingLog | None:
    """Load one log; None for a folder without event files."""
    if path.is_dir() or "tfevents" in path.name:
        return load_events(path) if find_event_files(path) else None
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    wide = raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # what PowerShell writes
    text = raw.decode("utf-16" if wide else "utf-8-sig", errors="replace")
    return parse_json_lines(text, name=str(path)) if looks_like_json_lines(text) else parse_text_log(text, name=str(path))
