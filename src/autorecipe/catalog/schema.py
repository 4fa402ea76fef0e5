"""Joins the configuration schema of a release with the layers of change."""

from __future__ import annotations

from pathlib import Path

from autorecipe.catalog.files import DATA, read_lines
from autorecipe.config.layers import load_field_layers
from autorecipe.schema.field import ConfigField, ConfigSchema

LAYERS = DATA / "layers.jsonl"
"""Layer of change by configuration path, for all releases."""


def load_schema(path: Path, *, release: str) -> ConfigSchema:
    """Return the schema of a release.

    Paths that only the layer table knows (classes that no shipped recipe uses) are included as the table describes them.

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
