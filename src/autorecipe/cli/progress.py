"""Progress of long work: a bar on a terminal, a plain line now and then elsewhere; on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

Progress = Callable[[int, int, str], None]

SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def show_progress(what: str) -> Iterator[Progress]:
    """Show how far a piece of work is.

    Args:
        what: verb for the line, such as `evaluating`.

    Yields:
        call it with (done, total, name of the last item).
    """
    if not sys.stderr.isatty():
        yield _plain(what)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from autorecipe.cli.output import make_console

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[name]}"))
    with Progress(*columns, console=make_console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None, name="")
        yield lambda done, total, name: bar.update(task, completed=done, total=total, name=name)


def _plain(what: str) -> Progress:
    last = time.monotonic()

    def report(done: int, total: int, name: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            click.echo(f"{what}: {done} of {total} ({name})", err=True)

    return report
