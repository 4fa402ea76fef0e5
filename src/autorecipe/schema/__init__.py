"""Frozen types that every other package speaks in. No behaviour beyond arithmetic on their own fields.

Start reading at `recipe.Recipe` (what upstream ships), `run.RunConfig` (what will run) and `layout.Layout` (how it is split).
"""

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
