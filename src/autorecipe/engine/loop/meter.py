"""Accumulates losses and time between two log lines.

Unlike upstream, the first line's accumulators are reset like every other's, so that no line averages over another's steps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch


class IntervalMeter:
    """Sums of one logging interval; losses stay on their device until they are read."""

    def __init__(self) -> None:
        """Start the clock."""
        self._losses: dict[str, torch.Tensor] = {}
        self._advanced = self._skipped = self._nan = 0
        self._spent = 0.0
        self._since: float | None = time.perf_counter()

    def add(self, losses: Mapping[str, torch.Tensor], *, skipped: bool, is_nan: bool) -> None:
        """Count one iteration.

        Args:
            losses: name -> mean loss of the iteration, one element each; empty off the last pipeline stage.
            skipped: whether the optimizer did not step (loss scaling).
            is_nan: whether a loss was not finite.
        """
        self._nan += int(is_nan)
        if skipped:
            self._skipped += 1
            return
        self._advanced += 1
        for name, value in losses.items():
            value = value.detach().float().reshape(1)
            self._losses[name] = self._losses[name] + value if name in self._losses else value.clone()

    def pause(self) -> None:
        """Stop the clock: what follows (evaluation) is not training time."""
        if self._since is not None:
            self._spent += time.perf_counter() - self._since
            self._since = None

    def resume(self) -> None:
        """Start the clock again."""
        if self._since is None:
            self._since = time.perf_counter()

    @property
    def iterations(self) -> int:
        """Iterations counted, skipped ones included."""
        return self._advanced + self._skipped

    @property
    def skipped(self) -> int:
        """Iterations whose update was skipped."""
        return self._skipped

    @property
    def nan(self) -> int:
        """Iterations whose loss was not finite."""
        return self._nan

    def mean_losses(self) -> dict[str, float]:
        """Return the mean of each loss over the iterations that advanced."""
        return {name: total.item() / max(1, self._advanced) for name, total in self._losses.items()}

    def elapsed_ms(self) -> float:
        """Return mean milliseconds per iteration so far."""
        running = 0.0 if self._since is None else time.perf_counter() - self._since
        return (self._spent + running) * 1000.0 / max(1, self.iterations)

    def reset(self) -> None:
        """Begin the next interval."""
        self._losses = {}
        self._advanced = self._skipped = self._nan = 0
        self._spent = 0.0
        self._since = time.perf_counter()
