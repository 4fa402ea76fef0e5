"""Runs the evaluator in subprocesses, one per shard, and survives recipes that hang, crash or exit.

A recipe has a time limit inside the subprocess; one that does not even yield to it (a loop in C code, swallowed signals) is
ended from outside, recorded as failed, and the shard goes on without it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from autorecipe.catalog.assembly import Evaluation
from autorecipe.catalog.source import Tree
from autorecipe.errors import EnvironmentProblem, Problem, UsageError, unknown_name
from autorecipe.record import dataclass

START_SECONDS = 600.0
"""Limit for importing a whole Bridge tree; 10 seconds on one free core."""

GRACE_SECONDS = 10.0
"""What a recipe gets on top of its limit before its process is ended. A recipe is called up to three times."""

Progress = Callable[[int, int, str], None]
"""Called with (functions done, functions in all, name of the last one)."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to evaluate.

    Attributes:
        bridge: tree with the recipes.
        core: tree with Megatron-Core.
        configs: Hugging Face configurations by id.
        tokenizer_lengths: tokenizer sizes by id.
        seconds: time limit per call of a recipe.
        jobs: subprocesses at once.
        only: names to evaluate; empty for all.
    """

    bridge: Tree
    core: Tree
    configs: Mapping[str, Mapping[str, Any]]
    tokenizer_lengths: Mapping[str, int]
    seconds: float
    jobs: int
    only: tuple[str, ...] = ()


def evaluate(request: Request, *, progress: Progress | None = None) -> Evaluation:
    """Evaluate every recipe function of a tree.

    Raises:
        EnvironmentProblem: the tree cannot be imported, or Python lacks what the evaluator needs.
        UsageError: `only` names what the tree does not export.
    """
    with tempfile.TemporaryDirectory(prefix="autorecipe-evaluate-") as directory:
        configs = Path(directory) / "configs.json"
        configs.write_text(json.dumps(request.configs), encoding="utf-8")
        board = _Board(progress)
        stop = threading.Event()
        with ThreadPoolExecutor(max_workers=request.jobs) as pool:
            shards = [
                pool.submit(_run_shard, request, shard, Path(directory), configs, board, stop) for shard in range(request.jobs)
            ]
            try:
                for shard in shards:
                    shard.result()
            except BaseException:
                stop.set()
                raise
        return board.evaluation


class _Board:
    """Collects what all shards report."""

    def __init__(self, progress: Progress | None) -> None:
        self.evaluation = Evaluation()
        self._progress = progress
        self._total = 0
        self._lock = threading.Lock()

    def found(self, event: Mapping[str, Any], total: int) -> None:
        with self._lock:
            self.evaluation.broken_modules |= event["broken_modules"]
            self.evaluation.versions |= event["versions"]
            self.evaluation.standins |= set(event["standins"])
            self._total = total

    def bases(self, bases: Mapping[str, Any]) -> None:
        with self._lock:
            for base_id, description in bases.items():
                self.evaluation.bases.setdefault(base_id, description)

    def record(self, function: str, record: dict[str, Any]) -> None:
        with self._lock:
            self.evaluation.records[function] = record
            if self._progress is not None:
                self._progress(len(self.evaluation.records), self._total, record["name"])


def _run_shard(request: Request, shard: int, directory: Path, configs: Path, board: _Board, stop: threading.Event) -> None:
    skip: list[str] = []
    while not stop.is_set():
        lost = _run_once(request, shard, directory, configs, board, stop, skip)
        if lost is None:
            return
        skip.append(lost)


def _run_once(
    request: Request,
    shard: int,
    directory: Path,
    configs: Path,
    board: _Board,
    stop: threading.Event,
    skip: list[str],
) -> str | None:
    """Run a shard's subprocess; return the function it was lost in, or None when it finished."""
    working = directory / f"work-{shard}-{len(skip)}"
    working.mkdir()
    done: set[str] = set(skip) | set(board.evaluation.records)
    message = {
        "bridge": str(request.bridge.directory),
        "core": str(request.core.directory),
        "configs": str(configs),
        "tokenizer_lengths": dict(request.tokenizer_lengths),
        "seconds": request.seconds,
        "shard": shard,
        "shards": request.jobs,
        "only": list(request.only),
        "skip": sorted(done),
    }
    log = (directory / f"log-{shard}-{len(skip)}").open("w+", encoding="utf-8", errors="replace")
    with log, _started(message, working, log) as process:
        lines: queue.Queue[str | None] = queue.Queue()
        assert process.stdout is not None
        threading.Thread(target=_pump, args=(process.stdout, lines), daemon=True).start()
        functions: dict[str, dict[str, Any]] = {}
        current = ""
        limit = START_SECONDS
        while not stop.is_set():
            try:
                line = lines.get(timeout=limit)
            except queue.Empty:
                process.kill()
                if not current:
                    raise _broken_tree(request, f"importing it takes more than {START_SECONDS:g} seconds", "") from None
                why = f"TimeoutError: did not return within {request.seconds:g} seconds, nor stop when told to"
                board.record(current, _lost(functions[current], why))
                return current
            if line is None:
                code = process.wait()
                if not current:
                    raise _broken_tree(request, "its recipes cannot be imported", _tail(log))
                board.record(current, _lost(functions[current], f"the evaluator ended with status {code}: {_last_line(log)}"))
                return current
            event = json.loads(line)
            if event["event"] == "found":
                functions = event["functions"]
                chosen = _chosen(functions, request)
                board.found(event, len(chosen))
            elif event["event"] == "sections":
                board.evaluation.sections = event["sections"]
                board.evaluation.options = event["options"]
                board.evaluation.no_options = event["no_options"]
                board.evaluation.presets = event["presets"]
            elif event["event"] == "begin":
                current = event["function"]
                limit = 3 * request.seconds + GRACE_SECONDS
            elif event["event"] == "bases":
                board.bases(event["bases"])
            elif event["event"] == "result":
                board.record(event["function"], event["record"])
            elif event["event"] == "done":
                return None
    return None


def _chosen(functions: Mapping[str, Mapping[str, Any]], request: Request) -> list[Mapping[str, Any]]:
    """Return what is to be evaluated; a name that nothing exports is an error, not a smaller catalog."""
    if not request.only:
        return list(functions.values())
    exported = sorted({name for item in functions.values() for name in (item["name"], *item["aliases"])})
    hint = f"{request.bridge.origin} exports {len(exported)} names"
    unknown = [unknown_name("recipe", name, exported, hint=hint) for name in request.only if name not in exported]
    if unknown:
        raise UsageError(unknown)
    wanted = set(request.only)
    return [item for item in functions.values() if wanted & {item["name"], *item["aliases"]}]


@contextlib.contextmanager
def _started(message: Mapping[str, Any], working: Path, log: IO[str]) -> Any:
    package_root = str(Path(__file__).resolve().parents[2])
    paths = [package_root, os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "OMP_NUM_THREADS": "1",
        "NO_VCS_VERSION": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "autorecipe.catalog.evaluator"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        cwd=working,
        env=environment,
        text=True,
        encoding="utf-8",
    )
    assert process.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError):  # it died at once; the end of its output says so
            process.stdin.write(json.dumps(message))
            process.stdin.close()
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _pump(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    with contextlib.suppress(ValueError):  # closed under us after the process was ended
        for line in stream:
            lines.put(line)
    lines.put(None)


def _lost(description: Mapping[str, Any], why: str) -> dict[str, Any]:
    return {**description, "status": "failed", "error": why[:600]}


def _tail(log: IO[str]) -> str:
    log.seek(0)
    return "\n".join(log.read().strip().splitlines()[-6:])


def _last_line(log: IO[str]) -> str:
    return _tail(log).rpartition("\n")[2]


def _broken_tree(request: Request, why: str, tail: str) -> EnvironmentProblem:
    missing = "No module named 'torch'" in tail or "No module named 'transformers'" in tail
    hint = (
        "pip install 'autorecipe[catalog]'"
        if missing
        else f"check that Megatron-Core {request.core.release} fits Bridge {request.bridge.release}; --core gives another"
    )
    detail = f":\n{tail}" if tail else ""
    return EnvironmentProblem(Problem(code="import-failed", path=request.bridge.origin, message=f"{why}{detail}", hint=hint))
