"""The configuration schema of one upstream release: every path with its type, default and layer of change."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from autorecipe.record import dataclass
from autorecipe.schema.layer import Layer
from autorecipe.schema.value import FieldValue


@dataclass(frozen=True, kw_only=True)
class ConfigField:
    """One path of the configuration tree.

    Attributes:
        path: such as `model.tensor_model_parallel_size`.
        type: Python annotation as text, such as `Optional[int]`.
        default: class default (catalog value conventions).
        layer: layer of change, or None where it has not been classified.
        reason: why it is in that layer.
        settable: `user`, `derived` or `internal`.
        config_classes: configuration classes that have the field.
        doc: what it is for, in our words; empty where none is recorded.
    """

    path: str
    type: str
    default: FieldValue
    layer: Layer | None
    reason: str
    settable: str = "user"
    config_classes: tuple[str, ...] = ()
    doc: str = ""


class ConfigSchema(Mapping[str, ConfigField]):
    """Fields by path, for one release.

    Args:
        release: its name.
        fields: by path; the mapping may build a field when it is asked for.
        defaults: class defaults by path, where they are at hand without the fields.
        presets: what each named mixed-precision preset sets.

    Attributes:
        release: as given.
        presets: as given.
    """

    def __init__(
        self,
        *,
        release: str,
        fields: Mapping[str, ConfigField],
        defaults: Mapping[str, FieldValue] | None = None,
        presets: Mapping[str, Mapping[str, FieldValue]] | None = None,
    ) -> None:
        self.release = release
        self.presets: Mapping[str, Mapping[str, FieldValue]] = {} if presets is None else presets
        self._fields = fields
        self._defaults = defaults

    @functools.cached_property
    def defaults(self) -> Mapping[str, FieldValue]:
        """Class defaults by path."""
        return {path: field.default for path, field in self._fields.items()} if self._defaults is None else self._defaults

    @functools.cached_property
    def parents(self) -> frozenset[str]:
        """Every path that has fields below it."""
        return frozenset(parent for path in self._fields for parent in _parents_of(path))

    @functools.cached_property
    def by_leaf(self) -> Mapping[str, tuple[str, ...]]:
        """Paths by their last part."""
        found: dict[str, list[str]] = {}
        for path in self._fields:
            found.setdefault(path.rsplit(".", 1)[-1], []).append(path)
        return {leaf: tuple(paths) for leaf, paths in found.items()}

    def __getitem__(self, path: str) -> ConfigField:
        return self._fields[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def _parents_of(path: str) -> Iterator[str]:
    while "." in path:
        path = path.rpartition(".")[0]
        yield path
