"""Figures of upstream's hand-written recipe index that the recipes themselves contradict.

Source: Megatron-Bridge skills/nemo-mbridge-recipe-recommender/references/recipe-index.md @ 067f987d, against its recipes.
Evidence: measured (both were read by program).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from autorecipe.datafiles import data_file, read_lines
from autorecipe.schema.evidence import Evidence
from autorecipe.schema.recommendation import Statement

DRIFT = data_file("index_drift.jsonl")
RELEASE = "0.6.2"
"""The release whose recipes the index was compared with."""


@functools.lru_cache(maxsize=1)
def load_drift() -> Mapping[str, tuple[tuple[str, str, str], ...]]:
    """Return (column, index value, value of the recipe) by recipe name."""
    found: dict[str, tuple[tuple[str, str, str], ...]] = {}
    for row in read_lines(DRIFT):
        found[row["recipe"]] = (*found.get(row["recipe"], ()), (row["column"], row["index"], row["recipe_value"]))
    return found


def state_drift(recipe: str, *, release: str) -> tuple[Statement, ...]:
    """Return what the index gets wrong about a recipe; nothing for a release that it was not compared with."""
    if release != RELEASE:
        return ()
    return tuple(
        Statement(
            code="note.index",
            facts={"column": column, "index_value": index, "code_value": value},
            evidence=Evidence.MEASURED,
        )
        for column, index, value in load_drift().get(recipe, ())
    )
