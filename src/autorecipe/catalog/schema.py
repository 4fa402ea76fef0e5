"""The configuration schema of a release, with the layer of change of each path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from autorecipe.catalog.files import DATA, read_lines
from autorecipe.config.layers import load_field_layers
from autorecipe.schema.field import ConfigField, ConfigSchema

LAYERS = DATA / "layers.jsonl"
"""Layer of change by configuration path, for all releases; `settable` where upstream computes a value or keeps it internal."""


def load_schema(path: Path, *, release: str, subclasses: Mapping[str, Sequence[str]]) -> ConfigSchema:
    """Return the schema of a release.

    Args:
        path: `schema.jsonl` of the release.
        release: its name.
        subclasses: class name -> names of the classes below it; a field of a class is one of theirs too.

    Raises:
        EnvironmentProblem: a data file is missing or damaged.
    """
    computed = {line["path"]: line["settable"] for line in read_lines(LAYERS) if "settable" in line}
    reviewed = load_field_layers()
    fields: dict[str, ConfigField] = {}
    for line in read_lines(path):
        layer, reason = reviewed.get(line["path"], (None, ""))
        declared = line["classes"]
        below = [name for parent in declared for name in subclasses.get(parent, ())]
        fields[line["path"]] = ConfigField(
            path=line["path"],
            type=line["type"],
            default=line["default"],
            layer=layer,
            reason=reason,
            settable=computed.get(line["path"], "user"),
            config_classes=tuple(dict.fromkeys((*declared, *below))),
        )
    return ConfigSchema(release=release, fields=fields)
