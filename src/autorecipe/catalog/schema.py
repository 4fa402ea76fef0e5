"""The configuration schema of a release, with the layer of change of each path."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autorecipe.config.layers import load_field_layers
from autorecipe.config.meanings import meaning_of
from autorecipe.datafiles import FilePath, LineTable, data_file, read_lines
from autorecipe.schema.field import ConfigField, ConfigSchema

LAYERS = data_file("layers.jsonl")
"""Layer of change by configuration path, for all releases; `settable` where upstream computes a value or keeps it internal."""


def load_schema(path: FilePath, *, release: str, subclasses: Mapping[str, Sequence[str]]) -> ConfigSchema:
    """Return the schema of a release, with the mixed-precision presets that lie beside it.

    Args:
        path: `schema.jsonl` of the release.
        release: its name.
        subclasses: class name -> names of the classes below it; a field of a class is one of theirs too.

    Raises:
        EnvironmentProblem: a data file is missing or damaged.
    """
    lines = LineTable(path, "path")
    return ConfigSchema(
        release=release,
        fields=_FieldTable(lines, subclasses),
        defaults=_Defaults(lines),
        presets=_Presets(os.path.join(os.path.dirname(path), "presets.jsonl")),
    )


class _Presets(Mapping[str, Mapping[str, Any]]):
    """Mixed-precision presets by name, read when one is asked for; a tree without any has no file."""

    def __init__(self, path: FilePath) -> None:
        self._path = path

    @functools.cached_property
    def _lines(self) -> Mapping[str, Mapping[str, Any]]:
        return LineTable(self._path, "name") if os.path.isfile(self._path) else {}

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        fields = self._lines[name]["set"]
        assert isinstance(fields, Mapping)
        return fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


class _Defaults(Mapping[str, Any]):
    """Class defaults by path, without the fields around them."""

    def __init__(self, lines: Mapping[str, Mapping[str, Any]]) -> None:
        self._lines = lines

    def __getitem__(self, path: str) -> Any:
        return self._lines[path]["default"]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, path: object) -> bool:
        return path in self._lines


class _FieldTable(Mapping[str, ConfigField]):
    """Fields by path, each made when it is asked for: an answer looks at a few of a thousand."""

    def __init__(self, lines: Mapping[str, Mapping[str, Any]], subclasses: Mapping[str, Sequence[str]]) -> None:
        self._lines = lines
        self._subclasses = subclasses
        self._made: dict[str, ConfigField] = {}

    @functools.cached_property
    def _settable(self) -> Mapping[str, str]:
        return {line["path"]: line["settable"] for line in read_lines(LAYERS) if "settable" in line}

    def __getitem__(self, path: str) -> ConfigField:
        if path not in self._made:
            self._made[path] = self._make(self._lines[path])
        return self._made[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, path: object) -> bool:
        return path in self._lines

    def _make(self, line: Mapping[str, Any]) -> ConfigField:
        path, declared = line["path"], line["classes"]
        layer, reason = load_field_layers().get(path, (None, ""))
        below = [name for parent in declared for name in self._subclasses.get(parent, ())]
        return ConfigField(
            path=path,
            type=line["type"],
            default=line["default"],
            layer=layer,
            reason=reason,
            settable=self._settable.get(path, "user"),
            config_classes=tuple(dict.fromkeys((*declared, *below))),
            doc=meaning_of(path),
        )
