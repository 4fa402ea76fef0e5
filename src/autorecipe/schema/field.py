"""The configuration schema of one upstream release: every path with its type, default and layer of change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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
        doc: upstream's meaning in our words; empty where none is recorded.
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
    """Fields by path, for one release."""

    def __init__(self, *, release: str, fields: Mapping[str, ConfigField]) -> None:
        self.release = release
        self._fields = dict(fields)

    def __getitem__(self, path: str) -> ConfigField:
        return self._fields[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)
