"""Processes that must not outlive their rank.

Megatron-Core writes checkpoints in spawned processes. A rank that is killed cannot end them, and each keeps a few hundred
megabytes: they watch their parent and leave with it.
"""

from __future__ import annotations

import os
import threading
import time


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
