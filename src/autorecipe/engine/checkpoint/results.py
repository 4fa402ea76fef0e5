"""Carries the results of a checkpoint's writers to the rank that waits for them, and ends writers whose rank is gone.

Megatron-Core keeps a server process for this in every rank, started by importing the program anew: seconds of work before the
first save, and a few hundred megabytes that outlive a killed rank. Writers are forked from their rank, so a pipe does it.
"""

from __future__ import annotations

import ctypes
import functools
import multiprocessing
import os
import queue
import signal
import sys
import threading
from typing import Any

WAIT_SECONDS = 30.0
"""How long results may take from a writer that has ended to its rank."""


class ResultsQueue:
    """What Megatron-Core needs of a queue: `put` in the rank or in a process forked from it, `get_nowait` in the rank."""

    def __init__(self) -> None:
        """Open the pipe, and read it in a thread: results may be larger than a pipe holds."""
        self._owner = os.getpid()
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)
        threading.Thread(target=self._receive, name="checkpoint-results", daemon=True).start()

    def put(self, results: Any) -> None:
        """Hand over results; in a writer process whose rank is gone they are dropped."""
        if os.getpid() == self._owner:
            self._arrived.put(results)
            return
        self._reader.close()  # with the rank's end gone too, writing fails instead of waiting for a reader
        try:
            self._writer.send(results)
        except BrokenPipeError:
            return

    def get_nowait(self) -> Any:
        """Return the results of a writer that has ended.

        Raises:
            queue.Empty: it left none.
        """
        return self._arrived.get(timeout=WAIT_SECONDS)

    def _receive(self) -> None:
        while True:
            try:
                self._arrived.put(self._reader.recv())
            except (EOFError, OSError):  # the interpreter is ending
                return


def install() -> None:
    """Make Megatron-Core use this queue in place of its server process; later calls change nothing."""
    from megatron.core.dist_checkpointing.strategies import filesystem_async

    if filesystem_async._results_queue is None:
        filesystem_async._results_queue = ResultsQueue()
        _bind_forks(os.getpid())


@functools.cache
def _bind_forks(owner: int) -> None:
    """Let every process that this one forks from now on end with its parent.

    A writer whose rank was killed while handing out work would wait for it forever, and hold its memory.
    """
    if sys.platform == "linux":
        os.register_at_fork(before=_note_parent, after_in_child=_leave_with_parent)


_PR_SET_PDEATHSIG = 1
_forking: list[int] = [0]


def _note_parent() -> None:
    _forking[0] = os.getpid()


def _leave_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != _forking[0]:  # it ended in between
        os._exit(1)
