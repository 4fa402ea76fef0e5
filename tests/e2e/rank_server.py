"""Forks the ranks of training runs from one process that has imported everything: a run starts in a second instead of ten.

Reads one JSON command per line from standard input and answers each with one JSON line. Not a test; started by conftest.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from autorecipe.engine import compat
from autorecipe.engine.checkpoint import folder
from autorecipe.engine.train import TrainOptions, train
from autorecipe.errors import AutorecipeError
from autorecipe.schema.run import RunConfig


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_rank(command: dict[str, Any], rank: int, port: int) -> int:
    ranks = command["ranks"]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    log = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if command.get("program"):
        return run_program(command["program"], Path(command["folder"]), ranks)
    metrics = command.get("metrics")
    options = TrainOptions(
        fresh=command.get("fresh", False),
        metrics_path=Path(metrics) if metrics else None,
        from_scratch=command.get("from_scratch", False),
        max_bad_rows=command.get("max_bad_rows", 0),
    )
    if command.get("free_bytes") is not None:  # a disk with this much left
        folder.free_bytes = lambda _root: command["free_bytes"]
    try:
        code = train(RunConfig(values=command["values"]), options)
    except AutorecipeError as error:
        if rank == 0:
            print(error, flush=True)
        code = error.exit_code
    except BaseException as error:  # a rank must end with a code, whatever happens
        traceback.print_exc()
        code = 130 if isinstance(error, KeyboardInterrupt) else 70
    sys.stdout.flush()
    return code


def run_program(words: list[str], folder: Path, ranks: int) -> int:
    """Run a script as a rank of a process group of its own would."""
    os.environ["LOCAL_WORLD_SIZE"] = str(ranks)
    os.chdir(folder)
    sys.argv = words
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 70
    finally:
        sys.stdout.flush()
    return 0


def fork_ranks(command: dict[str, Any]) -> list[int]:
    port = free_port()
    children = []
    for rank in range(command["ranks"]):
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            code = 70
            try:
                code = run_rank(command, rank, port)
            finally:
                os._exit(code)
        children.append(child)
    return children


def wait_for_text(path: str, text: str, deadline: float) -> None:
    while time.monotonic() < deadline:
        if Path(path).exists() and text in Path(path).read_text(errors="replace"):
            return
        time.sleep(0.02)
    raise TimeoutError(f"{text!r} did not appear in {path}")


def call(command: dict[str, Any]) -> dict[str, Any]:
    """Call a function of the engine on one forked process, as a command of its own would: `module:function` with one request."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        answer: dict[str, Any] = {}
        try:
            log = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            module, _, name = command["call"].partition(":")
            answer = {"code": 0, "result": getattr(importlib.import_module(module), name)(command["request"])}
        except AutorecipeError as error:
            answer = {"code": error.exit_code, "error": str(error)}
        except BaseException:
            answer = {"code": 70, "error": traceback.format_exc()}
        finally:
            with os.fdopen(writer, "w") as pipe:
                json.dump(answer, pipe)
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        found: dict[str, Any] = json.load(pipe)
    os.waitpid(child, 0)
    return found


def serve(command: dict[str, Any]) -> dict[str, Any]:
    began = time.monotonic()
    if command.get("call"):
        return call(command)
    children = fork_ranks(command)
    if command.get("signal_at") is not None or command.get("signal_after") is not None:
        if command.get("signal_after") is not None:
            wait_for_text(command["log"], command["signal_after"], began + 120)
        time.sleep(command.get("signal_at") or 0)
        for rank in command.get("victims") or range(len(children)):
            os.kill(children[rank], command["signal"])
        if command["signal"] == signal.SIGKILL:  # whoever is left would wait for the dead
            for child in children:
                os.kill(child, signal.SIGKILL)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return {"codes": codes, "seconds": time.monotonic() - began}


def main() -> None:
    compat.prepare()
    gc.collect()
    gc.freeze()  # each rank collects once more before it trains: what was imported is not worth searching again
    answers = os.fdopen(os.dup(1), "w")
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
