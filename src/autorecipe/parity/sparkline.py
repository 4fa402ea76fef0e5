"""A curve in one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def draw_sparkline(values: Sequence[float], *, width: int = 48, low: float | None = None, high: float | None = None) -> str:
    """Draw values as bars of eight heights; more values than columns are averaged by column, what is not finite is `!`.

    Args:
        values: in order.
        width: largest number of characters.
        low: value of the lowest bar; None takes the smallest value.
        high: value of the highest bar; None takes the largest value.
    """
    count = len(values)
    if not count:
        return ""
    columns = min(width, count)
    groups = [values[position * count // columns : (position + 1) * count // columns] for position in range(columns)]
    means = [sum(group) / len(group) for group in groups]
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
