"""The configuration schema of a release, with the layer of change of each path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from autorecipe.catalog.files import DATA, read_lines
from autorecipe.config.layers import load_field_layers
from autorecipe.config.layers import classify_path
from autorecipe.schema.field import ConfigField, ConfigSchema

COMPUTED = DATA / "computed_fields.jsonl"
"""Paths that upstream computes (`derived`) or uses for itself (`internal`), for all releases."""


def load_schema(path: Path, *, release: str, subclasses: Mapping[str, Sequence[str]]) -> ConfigSchema:
    """Return the schema of a release.

    Args:
        path: `schema.jsonl` of the release.
        release: its name.
        subclasses: class name -> names of the classes below it; a field of a class is one of theirs too.

    Raises:
        EnvironmentProblem: a data file is missing or damaged.
    """
    layers = {line["path"]: line for line in read_lines(LAYERS)}
    reviewed = load_field_layers()
    fields: dict[str, ConfigField] = {}
    for line in read_lines(path):
        known = layers.get(line["path"], {})
        layer, reason = reviewed.get(line["path"], (None, ""))
        fields[line["path"]] = ConfigField(
            path=line["path"],
            type=line["type"],
            default=line.get("default"),
            layer=layer,
            reason=reason,
            settable=known.get("settable", "user"),
            config_classes=tuple(line["classes"]),
        )
    for name, known in layers.items():
        if name not in fields and "type" in known:
            layer, reason = reviewed[name]
            fields[name] = ConfigField(
                path=name,
                type=known["type"],
                default=known["default"],
                layer=layer,
                reason=reason,
                settable=known["settable"],
                config_classes=tuple(known["classes"]),
            )
    return ConfigSchema(release=release, fields=dict(sorted(fields.items())))
    computed = {line["path"]: line["settable"] for line in read_lines(COMPUTED)}
    fields: dict[str, ConfigField] = {}
    for line in read_lines(path):
        layer, reason = classify_path(line["path"])
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
