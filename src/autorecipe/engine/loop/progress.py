"""A progress bar on a terminal; nothing elsewhere, so that logs stay plain."""

from __future__ import annotations

import sys
from typing import Any


class Progress:
    """Bar with remaining time, loss and tokens per second."""

    def __init__(self, total: int, *, enabled: bool) -> None:
        """Show a bar where both streams are a terminal.

        Args:
            total: iterations of the run.
            enabled: whether this process shows it.
        """
        self._bar: Any = None
        if not enabled or not (sys.stdout.isatty() and sys.stderr.isatty()):
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        self._bar = Bar(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task("", total=total)
        self._bar.start()

    def advance(self, iteration: int, *, loss: float | None, tokens_per_s: float) -> None:
        """Move the bar to an iteration."""
        if self._bar is not None:
            text = f"{tokens_per_s:,.0f} tokens/s" + (f", loss {loss:.4f}" if loss is not None else "")
            self._bar.update(self._task, completed=iteration, description=text)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
