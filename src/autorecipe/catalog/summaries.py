"""The table of exported names: what listing, search and recommendation read of a release.

A row starts with name, model and the name it stands for, so that a reader finds the recipes of a model by cutting text; the rest
of a row is parsed when somebody asks for it. Start at `SummaryTable`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from autorecipe.datafiles import FilePath, damaged, read_text, split_lines
from autorecipe.schema.layout import Layout
from autorecipe.schema.recipe import Mode, RecipeKind, RecipeSummary

SUMMARIES = "summaries.jsonl"

COLUMNS = (
    "name",
    "model",
    "alias_of",
    "kind",
    "mode",
    "family",
    "modality",
    "hf_model_ids",
    "gpus",
    "gpu_type",
    "precision",
    "variant",
    "status",
    "layout",
    "minimum_gpus",
    "seq_length",
    "global_batch_size",
    "micro_batch_size",
    "dataset",
)
"""Columns of a row; `alias_of` is empty where a name stands for itself."""

AXES = ("tp", "pp", "vp", "cp", "ep", "etp", "sequence_parallel")


class SummaryTable(Mapping[str, RecipeSummary]):
    """Summaries by name, sorted.

    Args:
        path: `summaries.jsonl` of a release.

    Attributes:
        models: names by model, in the order of the table.
        targets: the name that each alias stands for.

    Raises:
        EnvironmentProblem: the file is missing or damaged.
    """

    def __init__(self, path: FilePath) -> None:
        self._path = path
        self._lines: dict[str, tuple[int, str]] = {}
        self.models: dict[str, list[str]] = {}
        self.targets: dict[str, str] = {}
        for number, line in enumerate(split_lines(read_text(path)), start=1):
            parts = line.split('"', 6)
            if len(parts) < 7 or (parts[0], parts[2], parts[4]) != ("[", ",", ","):
                raise damaged(path, f"line {number}: not a row of names")
            _, name, _, model, _, target, _ = parts
            self._lines[name] = (number, line)
            self.models.setdefault(model, []).append(name)
            if target:
                self.targets[name] = target
        self._made: dict[str, RecipeSummary] = {}

    def __getitem__(self, name: str) -> RecipeSummary:
        if name not in self._made:
            self._made[name] = self._read(*self._lines[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, name: object) -> bool:
        return name in self._lines

    @functools.cached_property
    def aliases(self) -> Mapping[str, str]:
        """The shortest alias of each name that has one."""
        found: dict[str, str] = {}
        for alias, target in self.targets.items():
            known = found.get(target)
            if known is None or len(alias) < len(known):
                found[target] = alias
        return found

    def of_model(self, model: str) -> tuple[RecipeSummary, ...]:
        """Return the recipes of a model, aliases included; empty where there are none."""
        return tuple(self[name] for name in self.models.get(model, ()))

    def _read(self, number: int, line: str) -> RecipeSummary:
        try:
            row = dict(zip(COLUMNS, json.loads(line), strict=True))
        except ValueError as error:
            raise damaged(self._path, f"line {number}: {error}") from None
        layout = row.pop("layout")
        return RecipeSummary(
            **{
                **row,
                "alias_of": row["alias_of"] or None,
                "kind": RecipeKind(row["kind"]),
                "mode": Mode(row["mode"]) if row["mode"] else None,
                "hf_model_ids": tuple(row["hf_model_ids"]),
                "layout": Layout(**dict(zip(AXES, layout, strict=True))) if layout else None,
            }
        )


def write_rows(path: FilePath, rows: Iterable[Sequence[Any]]) -> None:
    """Write rows in the order of `COLUMNS`, sorted by name."""
    ordered = sorted(rows, key=lambda row: str(row[0]))
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in ordered)
