"""Use cases of recipes: list, find, search, describe, compare, and build one's own.

`derive` is the public door for recipes of one's own; it needs neither torch nor Megatron.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autorecipe.catalog.naming import is_own_recipe
from autorecipe.catalog.own import DerivedRecipe, derive
from autorecipe.catalog.store import Catalog, open_catalog, shipped_releases
from autorecipe.errors import AutorecipeError, UsageError, unknown_name
from autorecipe.record import dataclass, replace
from autorecipe.schema.change import Change
from autorecipe.schema.field import ConfigSchema
from autorecipe.schema.recipe import Mode, Recipe, RecipeKind, RecipeSummary
from autorecipe.schema.run import Origin, OriginKind, RunConfig
from autorecipe.schema.value import Unknown

__all__ = [
    "DerivedRecipe",
    "RecipeFilter",
    "RecipePage",
    "derive",
    "diff_recipes",
    "find_recipe",
    "list_recipes",
    "search_recipes",
    "shipped_releases",
    "show_recipe",
    "show_workload",
]

LONG_CONTEXT_TOKENS = 8192
"""Sequences longer than this count as long context."""


@dataclass(frozen=True, kw_only=True)
class RecipeFilter:
    """What to list; None and False mean any.

    Attributes:
        family: upstream's folder, such as `qwen`.
        mode: pretrain, sft or peft.
        kind: library or benchmark.
        gpu: GPU id in the name.
        gpus: GPUs at hand: recipes whose layout fits on that many.
        precision: precision id in the name; `fp8` takes every kind of fp8.
        modality: text, vlm, audio, omni or diffusion.
        long_context: sequences over 8,192 tokens.
        model: part of a Hugging Face id.
        failed: only recipes that fail as shipped.
        aliases: whether names that stand for another one are listed.
    """

    family: str | None = None
    mode: Mode | None = None
    kind: RecipeKind | None = None
    gpu: str | None = None
    gpus: int | None = None
    precision: str | None = None
    modality: str | None = None
    long_context: bool = False
    model: str | None = None
    failed: bool = False
    aliases: bool = True

    def accepts(self, summary: RecipeSummary) -> bool:
        """Return whether a recipe is to be listed."""
        return (
            (self.family is None or summary.family == self.family)
            and (self.mode is None or summary.mode is self.mode)
            and (self.kind is None or summary.kind is self.kind)
            and (self.gpu is None or summary.gpu_type == self.gpu)
            and (self.gpus is None or (summary.layout is not None and summary.layout.fits_world(self.gpus)))
            and (self.precision is None or (summary.precision or "").startswith(self.precision))
            and (self.modality is None or summary.modality == self.modality)
            and (not self.long_context or (summary.seq_length or 0) > LONG_CONTEXT_TOKENS)
            and (self.model is None or any(self.model.lower() in hf_id.lower() for hf_id in summary.hf_model_ids))
            and (not self.failed or summary.status != "ok")
            and (self.aliases or summary.alias_of is None)
        )


@dataclass(frozen=True, kw_only=True)
class RecipePage:
    """A recipe as `recipes show` prints it.

    Attributes:
        sections: facts by section.
        notes: what resolution says of values that do not act.
        collision: the other recipe of the same name, or None.
        fields: every resolved field; only where asked for.
    """

    sections: dict[str, dict[str, Any]]
    notes: tuple[str, ...]
    collision: str | None
    fields: dict[str, Any] | None = None


def list_recipes(wanted: RecipeFilter, *, release: str | None = None) -> tuple[RecipeSummary, ...]:
    """Return the recipes that a filter accepts, by name.

    Raises:
        UsageError: a family, GPU or precision that nothing has, each with near misses; never an empty list for a typing error.
    """
    from autorecipe.catalog.hardware import load_gpus
    from autorecipe.catalog.naming import PRECISIONS, precision_id

    summaries = open_catalog(release).summaries()
    families = {summary.family for summary in summaries}
    gpus = {summary.gpu_type for summary in summaries if summary.gpu_type} | set(load_gpus())
    precisions = {summary.precision for summary in summaries if summary.precision} | set(PRECISIONS)
    wanted = replace(
        wanted,
        family=wanted.family.lower() if wanted.family else None,
        gpu=wanted.gpu.lower() if wanted.gpu else None,
        precision=precision_id(wanted.precision) if wanted.precision else None,
    )
    given = (("family", wanted.family, families), ("gpu", wanted.gpu, gpus), ("precision", wanted.precision, precisions))
    problems = [
        unknown_name(kind, value, sorted(known), hint=f"one of {', '.join(sorted(known))}")
        for kind, value, known in given
        if value is not None and value not in known
    ]
    if problems:
        raise UsageError(problems)
    return tuple(summary for summary in summaries if wanted.accepts(summary))


def find_recipe(name: str, *, release: str | None = None) -> Recipe:
    """Return a recipe by name, alias, `NAME@library`, or `PATH.py:FUNCTION`.

    Raises:
        UsageError: unknown name with near misses, or a function that gives no recipe.
        EnvironmentProblem: a function that fails or does not return.
    """
    return open_catalog(release).load(name)


def search_recipes(text: str, *, release: str | None = None, limit: int = 20) -> tuple[Any, ...]:
    """Return recipes that fit a text, best first; see `autorecipe.catalog.search.search`."""
    from autorecipe.catalog.search import search

    return search(text, open_catalog(release).summaries(), limit=limit)


def show_recipe(name: str, *, release: str | None = None, full: bool = False) -> RecipePage:
    """Describe a recipe.

    Args:
        name: as in `find_recipe`.
        release: Bridge release; the newest shipped one by default.
        full: whether every resolved field is wanted.
    """
    from autorecipe.catalog.view import describe_recipe

    catalog = open_catalog(release)
    recipe = find_recipe(name, release=release)
    effective = _resolved(recipe, catalog)
    notes = effective.notes if effective is not None else ()
    return RecipePage(
        sections=describe_recipe(recipe, effective),
        notes=notes,
        collision=_collision(recipe.name, catalog),
        fields=dict(recipe.fields) if full else None,
    )


def show_workload(name: str, *, release: str | None = None) -> dict[str, Any]:
    """Return the compact workload of a benchmark recipe.

    Raises:
        NegativeAnswer: the recipe has none.
    """
    from autorecipe.catalog.view import describe_workload

    return describe_workload(find_recipe(name, release=release))


def diff_recipes(first: str, second: str, *, before: str | None = None, after: str | None = None) -> tuple[Change, ...]:
    """Compare two recipes as shipped, field by field.

    Between releases, a field that only one of them has and that stands at its class default there is left out.

    Args:
        first: name of the first recipe.
        second: name of the second one; the same name to compare releases.
        before: release of the first; the newest by default.
        after: release of the second; the newest by default.

    Raises:
        UsageError: a name that its release does not have.
    """
    from autorecipe.config.diff import diff_configs

    a, b = find_recipe(first, release=before), find_recipe(second, release=after)
    old, new = open_catalog(a.release).schema(), open_catalog(b.release).schema()
    changes = diff_configs(_as_shipped(a), _as_shipped(b), new)
    if a.release == b.release:
        return changes
    return tuple(change for change in changes if not _is_new_default(change, old, new))


def _is_new_default(change: Change, old: ConfigSchema, new: ConfigSchema) -> bool:
    if isinstance(change.before, Unknown):
        return change.path not in old and change.path in new and new[change.path].default == change.after
    if isinstance(change.after, Unknown):
        return change.path not in new and change.path in old and old[change.path].default == change.before
    return False


def _as_shipped(recipe: Recipe) -> RunConfig:
    origin = Origin(kind=OriginKind.RECIPE, detail=recipe.name)
    return RunConfig(
        values=recipe.fields,
        origins=dict.fromkeys(recipe.fields, origin),
        release=recipe.release,
        recipe=recipe.name,
        kind=recipe.kind.value,
        mode=recipe.mode.value if recipe.mode else "",
    )


def _resolved(recipe: Recipe, catalog: Catalog) -> RunConfig | None:
    from autorecipe.config.resolve import resolve_config

    if not recipe.fields:
        return None
    try:
        return resolve_config(replace(recipe, status="ok"), catalog.schema())
    except AutorecipeError as error:
        unresolved = _as_shipped(recipe)
        return replace(unresolved, notes=tuple(problem.render() for problem in error.problems))


def _collision(name: str, catalog: Catalog) -> str | None:
    from autorecipe.catalog.naming import LIBRARY_SUFFIX

    other = name.removesuffix(LIBRARY_SUFFIX) if name.endswith(LIBRARY_SUFFIX) else f"{name}{LIBRARY_SUFFIX}"
    return other if other in catalog.names() else None


def selected_names(names: Sequence[str], *, release: str | None = None) -> tuple[str, ...]:
    """Return what the given names stand for, or every canonical name."""
    catalog = open_catalog(release)
    if names:
        own = [name for name in names if is_own_recipe(name)]
        found = (catalog.summary(name) for name in names if name not in own)
        return tuple(dict.fromkeys([*(summary.alias_of or summary.name for summary in found), *own]))
    return tuple(summary.name for summary in catalog.summaries() if summary.alias_of is None)
