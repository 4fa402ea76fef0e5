"""Processes that must not outlive their rank.

Megatron-Core collects what its checkpoint writers did through a queue in a process of its own. A rank that is killed cannot end
that process: it watches its parent and leaves with it. Start at `watch_results_queue`.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from multiprocessing.managers import SyncManager


def follow_parent(*, poll_seconds: float = 1.0) -> None:
    """End this process soon after its parent is gone.

    A thread polls, because the kernel's own death signal fires when the spawning thread ends, not the process.

    Args:
        poll_seconds: time between two looks at the parent.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(poll_seconds)
        os._exit(1)

    threading.Thread(target=watch, name="follow-parent", daemon=True).start()


def watch_results_queue() -> None:
    """Give Megatron-Core a results queue whose process follows this one. Call before a save; later calls cost nothing.

    The process is forked, as Megatron-Core forks its writers: a spawned one imports torch anew on every rank, some three
    seconds of a core and 200 MB each, before the first byte is written.
    """
    from megatron.core.dist_checkpointing.strategies import filesystem_async

    if filesystem_async._results_queue is None:
        manager = SyncManager(ctx=multiprocessing.get_context("fork"))
        manager.start(initializer=follow_parent)
        filesystem_async._results_queue = manager.Queue()
