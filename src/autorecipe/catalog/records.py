"""The text form of a release's recipes: what a recipe decided, on top of named bases.

A recipe has some 800 resolved fields, most of them defaults. Stored is: for each part of the configuration the base it started
from (class defaults, the model as its Hugging Face configuration gives it, or an upstream preset), the fields that differ, and
the paths that the base has and the recipe has not. `expand` undoes `compress` exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from autorecipe.record import dataclass, field
from autorecipe.schema.value import FieldValue

HABITS = "*"
"""Path under which a recipe names the values that most recipes of its kind and mode share; they come after all other bases."""


@dataclass(frozen=True, kw_only=True)
class Base:
    """A named set of values.

    Attributes:
        on: other bases by relative path (`""` for the same level) that this one starts from.
        fields: relative path -> value, on top of those.
        drop: relative paths that those have and this one has not.
        types: declared type by field name; class bases only.
    """

    on: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, FieldValue] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)


class StoredBases(Mapping[str, Base]):
    """Bases of a release by id, each read when it is asked for: a recipe stands on a dozen of some two hundred."""

    def __init__(self, lines: Mapping[str, Mapping[str, Any]]) -> None:
        self._lines = lines

    def __getitem__(self, base_id: str) -> Base:
        line = self._lines[base_id]
        return Base(on=line.get("on", {}), fields=line["set"], drop=tuple(line.get("drop", ())))

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, base_id: object) -> bool:
        return base_id in self._lines


class BaseTable:
    """Bases by id; expands each at most once."""

    def __init__(self, bases: Mapping[str, Base]) -> None:
        self.bases = bases
        self._expanded: dict[str, dict[str, FieldValue]] = {}

    def expand(self, base_id: str) -> Mapping[str, FieldValue]:
        """Return every value of a base by relative path."""
        if base_id not in self._expanded:
            base = self.bases[base_id]
            self._expanded[base_id] = self.assemble(base.on, base.fields, base.drop)
        return self._expanded[base_id]

    def assemble(
        self, on: Mapping[str, str], fields: Mapping[str, FieldValue], drop: tuple[str, ...] | list[str]
    ) -> dict[str, FieldValue]:
        """Return bases joined, shallow paths first, with fields on top and dropped paths left out."""
        values: dict[str, FieldValue] = {}
        for path in sorted(on, key=_depth):
            prefix = "" if path in ("", HABITS) else f"{path}."
            values |= {f"{prefix}{name}": value for name, value in self.expand(on[path]).items()}
        for name in drop:
            del values[name]
        values |= fields
        return values

    def compress(self, on: Mapping[str, str], values: Mapping[str, FieldValue]) -> Base:
        """Return values as differences from bases joined."""
        start = self.assemble(on, {}, ())
        changed = {path: value for path, value in values.items() if path not in start or not _same(start[path], value)}
        return Base(on=on, fields=dict(sorted(changed.items())), drop=tuple(sorted(set(start) - set(values))))


def _depth(path: str) -> tuple[int, str]:
    return (-1 if path == "" else 99 if path == HABITS else path.count("."), path)


def shared_values(differences: list[Base], *, share: float = 0.6) -> Base:
    """Return the values that at least a share of recipes set on top of their bases."""
    counts: dict[tuple[str, str], int] = {}
    values: dict[tuple[str, str], FieldValue] = {}
    for difference in differences:
        for path, value in difference.fields.items():
            key = (path, json.dumps(value, sort_keys=True))
            counts[key] = counts.get(key, 0) + 1
            values[key] = value
    common = {key[0]: values[key] for key, count in counts.items() if count >= share * len(differences)}
    return Base(fields=dict(sorted(common.items())))


def _same(left: FieldValue, right: FieldValue) -> bool:
    """Equality that tells 1 from True and 1 from 1.0, at any depth."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    return type(left) is type(right) and bool(left == right)


def needed_bases(table: BaseTable, on: Mapping[str, str]) -> dict[str, str]:
    """Leave out class bases that the ones above them already imply.

    Args:
        table: all bases.
        on: path -> base id, with every nested dataclass listed.

    Returns:
        the entries that add something.
    """
    kept: dict[str, str] = {}
    values: dict[str, Any] = {}
    for path in sorted(on, key=_depth):
        base = on[path]
        prefix = f"{path}." if path else ""
        nested = "." in path
        expanded = table.expand(base)
        if nested and values.get(f"{prefix}_class") == expanded.get("_class"):
            continue
        kept[path] = base
        values |= {f"{prefix}{name}": value for name, value in expanded.items()}
    return kept


def common_bases(all_on: list[Mapping[str, str]]) -> dict[str, str]:
    """Return the base that at least half of the recipes have, by path."""
    counts: dict[tuple[str, str], int] = {}
    for on in all_on:
        for item in on.items():
            counts[item] = counts.get(item, 0) + 1
    return {path: base for (path, base), count in sorted(counts.items()) if 2 * count >= len(all_on)}


def subtract_common(on: Mapping[str, str], common: Mapping[str, str]) -> dict[str, str | None]:
    """Return the bases that differ from the common ones; None where a common one does not apply."""
    differing: dict[str, str | None] = {path: base for path, base in on.items() if common.get(path) != base}
    return dict(sorted((differing | {path: None for path in common if path not in on}).items()))


def add_common(differing: Mapping[str, str | None], common: Mapping[str, str]) -> dict[str, str]:
    """Undo `subtract_common`."""
    joined: dict[str, str | None] = {**common, **differing}
    return {path: base for path, base in joined.items() if base is not None}
