"""The named mixed-precision presets of a tree: what each factory returns, finalised as upstream does before it is used."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from autorecipe.catalog.evaluator.values import ValueWriter

MODULE = "megatron.bridge.training.mixed_precision"


def describe_presets(writer: ValueWriter) -> list[dict[str, Any]]:
    """Return one row per registered preset, sorted by name; none where the tree has no register of them.

    Upstream registers each under two spellings; the one with dashes is left out.
    """
    try:
        register = importlib.import_module(MODULE).MIXED_PRECISION_RECIPES
    except (ModuleNotFoundError, AttributeError):
        return []
    rows = []
    for name, factory in sorted(register.items()):
        if "-" in name:
            continue
        preset = factory()
        if hasattr(preset, "finalize"):
            preset.finalize()
        fields = {field.name: writer.plain(getattr(preset, field.name)) for field in dataclasses.fields(preset)}
        rows.append({"name": name, "set": dict(sorted(fields.items()))})
    return rows
