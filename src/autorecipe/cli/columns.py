"""Aligned columns that never wrap and never cut: what is piped stays one row a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def print_columns(
    console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], *, bold_rows: Sequence[bool] = ()
) -> None:
    """Print rows under heads, padded to the widest cell of each column but the last.

    Args:
        console: where to.
        heads: column titles.
        rows: cells as text.
        bold_rows: rows to stress, by position; shorter or empty means none.
    """
    from rich.text import Text

    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    for position, row in enumerate((heads, *rows)):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        stressed = position > 0 and position <= len(bold_rows) and bold_rows[position - 1]
        style = "bold" if position == 0 else "bold red" if stressed else ""
        console.print(Text("  ".join(cells).rstrip(), style=style), soft_wrap=True)
