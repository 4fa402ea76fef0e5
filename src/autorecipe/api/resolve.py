"""Resolve a recipe by name with overrides: joins the catalog and the configuration packages."""

from __future__ import annotations

from collections.abc import Sequence

from autorecipe.config.resolve import resolve_config
from autorecipe.schema.run import RunConfig


def resolve_run(
    name: str,
    overrides: Sequence[str] = (),
    *,
    release: str | None = None,
    world_size: int | None = None,
    mode: str | None = None,
    dataset: str | None = None,
) -> RunConfig:
    """Return what would run.

    Args:
        name: recipe name, alias or canonical, or `PATH.py:FUNCTION`.
        overrides: texts in the override grammar.
        release: Bridge release of the catalog; the newest shipped one by default.
        world_size: number of GPUs; by default the count in a benchmark recipe's name, else unknown.
        mode: mode of the launcher; `dora` takes an adapter recipe with that scheme.
        dataset: preset of the launcher that takes the place of the recipe's own data where it fits, or None.

    Raises:
        UsageError: an unknown recipe, or overrides that upstream would refuse (all at once).
        NegativeAnswer: a recipe that fails in upstream itself.
    """
    from autorecipe.api.recipes import find_recipe
    from autorecipe.catalog.store import open_catalog

    recipe = find_recipe(name, release=release)
    schema = open_catalog(recipe.release).schema()
    return resolve_config(recipe, schema, overrides, world_size=world_size, mode=mode, dataset=dataset)
