"""What a field is for, in a sentence of our own: `data/field_docs.jsonl` by path, with `*` for any part of one.

Covers every field that a shipped recipe sets, and those that people ask for; a test holds it to that.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Mapping

from autorecipe.datafiles import data_file, read_lines

DOCS = data_file("field_docs.jsonl")


def meaning_of(path: str) -> str:
    """Return what a field is for; empty where nothing is recorded."""
    exact, patterns = _load()
    if path in exact:
        return exact[path]
    return next((doc for pattern, doc in patterns.items() if fnmatch.fnmatchcase(path, pattern)), "")


@functools.cache
def _load() -> tuple[Mapping[str, str], Mapping[str, str]]:
    rows = list(read_lines(DOCS))
    exact = {path: row["doc"] for row in rows for path in row["paths"] if "*" not in path}
    return exact, {path: row["doc"] for row in rows for path in row["paths"] if "*" in path}
