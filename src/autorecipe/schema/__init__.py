"""Frozen types that every other package speaks in. No behaviour beyond arithmetic on their own fields.

Start reading at `recipe.Recipe` (what upstream ships), `run.RunConfig` (what will run) and `layout.Layout` (how it is split).
The names here are those of the modules below, each of which is imported when one of its names is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autorecipe.schema.batch import Batch
    from autorecipe.schema.card import ModelCard
    from autorecipe.schema.change import Change
    from autorecipe.schema.evidence import Evidence, Provenance
    from autorecipe.schema.field import ConfigField, ConfigSchema
    from autorecipe.schema.finding import Finding, Fix, Severity, Stage
    from autorecipe.schema.hardware import Cluster, Gpu
    from autorecipe.schema.layer import Layer
    from autorecipe.schema.layout import Layout
    from autorecipe.schema.model import ModelShape
    from autorecipe.schema.option import MlmOption
    from autorecipe.schema.recipe import Mode, Recipe, RecipeKind, RecipeSummary
    from autorecipe.schema.run import Origin, OriginKind, RunConfig

_HOMES = {
    "Batch": "batch",
    "ModelCard": "card",
    "Change": "change",
    "Evidence": "evidence",
    "Provenance": "evidence",
    "ConfigField": "field",
    "ConfigSchema": "field",
    "Finding": "finding",
    "Fix": "finding",
    "Severity": "finding",
    "Stage": "finding",
    "Cluster": "hardware",
    "Gpu": "hardware",
    "Layer": "layer",
    "Layout": "layout",
    "ModelShape": "model",
    "MlmOption": "option",
    "Mode": "recipe",
    "Recipe": "recipe",
    "RecipeKind": "recipe",
    "RecipeSummary": "recipe",
    "Origin": "run",
    "OriginKind": "run",
    "RunConfig": "run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


__all__ = [
    "Batch",
    "Change",
    "Cluster",
    "ConfigField",
    "ConfigSchema",
    "Evidence",
    "Finding",
    "Fix",
    "Gpu",
    "Layer",
    "Layout",
    "MlmOption",
    "Mode",
    "ModelCard",
    "ModelShape",
    "Origin",
    "OriginKind",
    "Provenance",
    "Recipe",
    "RecipeKind",
    "RecipeSummary",
    "RunConfig",
    "Severity",
    "Stage",
]
