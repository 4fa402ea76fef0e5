"""A curve in one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def average_columns(values: Sequence[float], *, width: int = 48) -> list[float]:
    """Return what the bars of a sparkline stand for: the values, or their means by column where there are more than columns."""
    count = len(values)
    columns = min(width, count)
    groups = [values[position * count // columns : (position + 1) * count // columns] for position in range(columns)]
    return [sum(group) / len(group) for group in groups]


def draw_sparkline(values: Sequence[float], *, width: int = 48, low: float | None = None, high: float | None = None) -> str:
    """Draw values as bars of eight heights; more values than columns are averaged by column, what is not finite is `!`.

    Args:
        values: in order.
        width: largest number of characters.
        low: value of the lowest bar; None takes the smallest value.
        high: value of the highest bar; None takes the largest value.
    """
    means = average_columns(values, width=width)
    columns = len(means)
    if not columns:
        return ""
    finite = [value for value in means if math.isfinite(value)]
    if not finite:
        return "!" * columns
    bottom = min(finite) if low is None else low
    top = max(finite) if high is None else high
    span = (top - bottom) or 1.0

    def bar(value: float) -> str:
        if not math.isfinite(value):
            return "!"
        return _BARS[max(0, min(7, round((value - bottom) / span * 7)))]

    return "".join(bar(value) for value in means)
