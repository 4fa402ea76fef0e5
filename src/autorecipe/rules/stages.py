"""Explicit pipeline layouts: `E` embedding, `t` decoder, `m` multi-token prediction, `L` loss; `|` ends a stage.

A layout is text such as `Ettt|(tt|)*29,m|L`, or one list of layer names per (virtual) stage. Leaves out: legality.
"""

from __future__ import annotations

import re
from typing import Any

MOST_LAYERS = 2048
"""Beyond this no uneven split is looked for."""

LETTERS = {"E": "embedding", "t": "decoder", "m": "mtp", "L": "loss"}
GROUP = r"\(([^)]+)\)\*(\d+)"
SINGLE = r"(.)\*(\d+)"


def parse_stages(layout: Any) -> list[list[str]] | None:
    """Return layer names per virtual stage, in order of depth; None where the layout cannot be read.

    Args:
        layout: text or a list of lists; longer than 100,000 layers counts as unreadable.
    """
    if isinstance(layout, list | tuple):
        if not all(isinstance(stage, list | tuple) for stage in layout):
            return None
        return [[str(layer).rsplit(".", 1)[-1].strip().lower() for layer in stage] for stage in layout]
    if not isinstance(layout, str):
        return None
    text = layout.replace(",", "").replace(" ", "")
    if any(int(number) > 10_000 for number in re.findall(r"\d+", text)):
        return None
    for pattern in (GROUP, SINGLE):
        text = re.sub(pattern, lambda match: match.group(1) * int(match.group(2)), text)
        if len(text) > 100_000:
            return None
    stages = []
    for part in text.split("|"):
        if any(letter not in LETTERS for letter in part):
            return None
        stages.append([LETTERS[letter] for letter in part])
    return stages


def balanced_edges(layers: int, pp: int, vp: int, *, limit: int = 6) -> list[tuple[int, int]]:
    """Return (first, last) stage counts that make an uneven split legal, most balanced first.

    Formula: minimise the heaviest stage, then the spread, then prefer the lighter first stage (it holds the embedding).
    """
    if not 1 <= pp <= layers <= MOST_LAYERS or not 1 <= vp <= layers:
        return []
    if pp < 3:
        return (
            [(first, layers - first) for first in range(vp, layers, vp) if (layers - first) % vp == 0][:limit] if pp == 2 else []
        )
    found = []
    for middle in range(vp, layers // (pp - 2) + 1, vp):
        rest = layers - middle * (pp - 2)
        for first in range(vp, rest, vp):
            last = rest - first
            if last >= vp and last % vp == 0:
                heaviest = max(first, last, middle)
                found.append((heaviest, heaviest - min(first, last, middle), first, last))
    found.sort()
    return [(first, last) for _, _, first, last in found[:limit]]
