"""Resolution: what will run, from a recipe and overrides, in upstream's order of precedence.

Recipe fields, then a dataset preset, then overrides, then the launcher's synchronisations, then the precision preset, then
communication overlap, then validation's derived values. Each value says where it came from, and what it replaced.
Start reading at `STEPS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autorecipe.config.adapters import with_scheme
from autorecipe.config.datasets import apply_dataset_preset, takes_preset
from autorecipe.config.finalize import (
    finalize_dataset,
    finalize_model,
    pad_vocabulary,
    set_data_parallel_size,
    sync_distributed_optimizer,
    sync_runtime,
)
from autorecipe.config.graphs import migrate_graphs
from autorecipe.config.hybrid import join_layer_pattern
from autorecipe.config.launcher import sync_launcher
from autorecipe.config.origins import Origins
from autorecipe.config.overlap import apply_comm_overlap
from autorecipe.config.padding import pad_samples
from autorecipe.config.precision import apply_precision
from autorecipe.config.schedule import derive_schedule
from autorecipe.config.state import Resolution
from autorecipe.errors import NegativeAnswer, Problem
from autorecipe.record import replace
from autorecipe.schema.field import ConfigSchema
from autorecipe.schema.recipe import Recipe, RecipeKind, bare_recipe
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import FieldValue

STEPS: tuple[Callable[[Resolution], None], ...] = (
    sync_launcher,
    apply_precision,
    set_data_parallel_size,
    apply_comm_overlap,
    pad_samples,
    finalize_dataset,
    migrate_graphs,
    join_layer_pattern,
    finalize_model,
    sync_runtime,
    sync_distributed_optimizer,
    derive_schedule,
    pad_vocabulary,
)
"""What happens after overrides, in upstream's order."""


def resolve_config(
    recipe: Recipe,
    schema: ConfigSchema,
    overrides: Sequence[str] = (),
    *,
    world_size: int | None = None,
    mode: str | None = None,
    dataset: str | None = None,
) -> RunConfig:
    """Resolve a recipe with overrides.

    Args:
        recipe: evaluated recipe.
        schema: schema of its release.
        overrides: texts in the override grammar.
        world_size: number of GPUs; where it is not given, a benchmark recipe runs on the count in its name, and for a library
            recipe it is unknown.
        mode: mode of the launcher; `dora` takes an adapter recipe with that scheme.
        dataset: preset that takes the place of the recipe's own data where it fits (see `takes_preset`), or None.

    Returns:
        values as upstream will use them, each with its origin; notes for every value that was given and does not act.

    Raises:
        UsageError: overrides that upstream would refuse, all of them at once; a mode that the recipe does not take.
        NegativeAnswer: a recipe that fails in upstream itself.
    """
    if recipe.status != "ok" and not recipe.fields:
        raise NegativeAnswer(
            Problem(
                code="recipe-fails",
                path=recipe.name,
                message=f"cannot be built: {recipe.error or recipe.status}",
                hint=f"`autorecipe recipes search {recipe.family or recipe.name}` lists the recipes beside it",
            )
        )
    recipe = with_scheme(recipe, mode)
    state = Resolution(
        recipe=recipe,
        schema=schema,
        world_size=recipe.gpus if world_size is None and recipe.kind is RecipeKind.BENCHMARK else world_size,
        values=dict(recipe.fields),
        origins=Origins(recipe, schema),
    )
    if dataset is not None and takes_preset(recipe, dataset):
        apply_dataset_preset(state, dataset)
    if overrides:
        from autorecipe.config.apply import apply_overrides
        from autorecipe.config.overrides import parse_overrides

        apply_overrides(state, parse_overrides(overrides, schema, base=state.values))
    for step in STEPS:
        step(state)
    return RunConfig(
        values=state.values,
        origins=state.origins,
        release=recipe.release,
        recipe=recipe.name,
        kind=recipe.kind.value,
        mode=recipe.mode.value if recipe.mode is not None else "",
        notes=tuple(state.notes),
    )


def resolve_fields(
    fields: Mapping[str, FieldValue],
    schema: ConfigSchema,
    *,
    name: str,
    world_size: int | None = None,
) -> RunConfig:
    """Resolve flat fields that come from elsewhere than the catalog, such as a file.

    Args:
        fields: path -> value, as far as they are known.
        schema: schema of the release they belong to.
        name: where they come from; becomes the configuration's `recipe`.
        world_size: number of GPUs, or None.
    """
    source = bare_recipe(name, fields, release=schema.release)
    return replace(resolve_config(source, schema, world_size=world_size), kind="", mode="")
