"""Plain aligned tables: nothing is cut off, whatever reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print rows under titles on stdout, two spaces between columns.

    Args:
        titles: column titles.
        rows: cells, one text per column.
        right: titles of the columns that are aligned to the right.
    """
    cells = [tuple(titles), *(tuple(row) for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(titles))]
    lines = []
    for row in cells:
        parts = [
            cell.rjust(width) if title in right else cell.ljust(width)
            for cell, width, title in zip(row, widths, titles, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    click.echo("\n".join(lines))
