"""Stops a run at a step boundary: on SIGTERM or SIGINT on any rank, after a time, after a number of steps, or at a bad loss.

Purpose: all ranks leave the loop after the same step. A second SIGINT ends the process at once, as anyone at a keyboard
expects.
"""

from __future__ import annotations

import enum
import math
import signal
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

WATCHED = (signal.SIGTERM, signal.SIGINT)


class Stop(enum.Enum):
    """Why a run stops before its last step."""

    NONE = "none"
    SIGNAL = "signal"
    DURATION = "duration"
    BAD_LOSS = "bad loss"


class StopVote:
    """Collects reasons on every rank and agrees on one after each step; use as a context manager."""

    def __init__(self, *, max_minutes: float | None, check_for_nan: bool) -> None:
        """Prepare.

        Args:
            max_minutes: training time after which to stop, or None.
            check_for_nan: whether a loss that is not finite stops the run.
        """
        self._max_seconds = None if max_minutes is None else max_minutes * 60.0
        self._check_for_nan = check_for_nan
        self._received = 0
        self._began = time.monotonic()
        self._previous: dict[int, Any] = {}
        self.signal_number = 0

    def __enter__(self) -> StopVote:
        """Catch the signals."""
        for number in WATCHED:
            self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore what was there before."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def decide(self, losses: Mapping[str, torch.Tensor]) -> tuple[Stop, bool]:
        """Agree with every other rank; one small collective, and none where there is no other.

        Args:
            losses: of the step, empty off the last pipeline stage.

        Returns:
            whether and why to stop, and whether any rank saw a loss that is not finite.
        """
        bad = any(not math.isfinite(value.item()) for value in losses.values())
        late = self._max_seconds is not None and time.monotonic() - self._began > self._max_seconds
        received, any_bad, any_late = _share_largest([self._received, int(bad), int(late)])
        self.signal_number = int(received)
        if any_bad and self._check_for_nan:
            return Stop.BAD_LOSS, True
        if received:
            return Stop.SIGNAL, bool(any_bad)
        return (Stop.DURATION if any_late else Stop.NONE), bool(any_bad)

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        if self._received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._received = number


def _share_largest(numbers: list[int]) -> list[int]:
    """Return the largest of each number over all ranks."""
    if dist.get_world_size() == 1:  # a collective would wait for all work of the GPU
        return numbers
    flags = torch.tensor(numbers, dtype=torch.int32, device=_device())
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    shared: list[int] = flags.tolist()
    return shared


def _device() -> torch.device:
    return torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")
