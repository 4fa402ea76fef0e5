"""Opens a release of the shipped catalog, or of one built elsewhere. Start here.

    catalog = open_catalog()
    for summary in catalog.summaries(): ...
    recipe = catalog.load("llama3_8b_pretrain_config")

Listing reads one compact table; loading a recipe parses that recipe's line, the bases that it stands on, and nothing else.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autorecipe.catalog.naming import LIBRARY_SUFFIX, forward_step_of, is_own_recipe, modality_of, parse_name
from autorecipe.catalog.records import BaseTable, StoredBases, add_common
from autorecipe.catalog.summaries import SUMMARIES, SummaryTable
from autorecipe.datafiles import FilePath, LineTable, data_file, read_json
from autorecipe.errors import Problem, UsageError, unknown_name
from autorecipe.schema.card import ModelCard
from autorecipe.schema.field import ConfigSchema
from autorecipe.schema.option import MlmOption
from autorecipe.schema.recipe import Recipe, RecipeSummary

if TYPE_CHECKING:
    from pathlib import Path

CATALOG_VARIABLE = "AUTORECIPE_CATALOG"
"""Environment variable: a directory written by `autorecipe catalog build --out`, searched before the shipped releases."""


class Catalog:
    """One release. Everything is read when first asked for and kept.

    Args:
        directory: holds `release.json` and the files beside it.

    Attributes:
        release: such as `0.6.2`.
    """

    def __init__(self, directory: FilePath) -> None:
        self._folder = os.fspath(directory)
        self.release = os.path.basename(self._folder)
        self._recipes: dict[str, Recipe] = {}

    @functools.cached_property
    def directory(self) -> Path:
        """Where its files lie."""
        from pathlib import Path

        return Path(self._folder)

    @functools.cached_property
    def meta(self) -> Mapping[str, Any]:
        """Content of `release.json`: counts, inputs, collisions, failures."""
        content = read_json(self._file("release.json"))
        assert isinstance(content, dict)
        return content

    def summaries(self) -> Sequence[RecipeSummary]:
        """Return every exported name, sorted, without fields."""
        return tuple(self.recipes.values())

    def names(self) -> Sequence[str]:
        """Return every exported name, sorted."""
        return tuple(self.recipes)

    def summary(self, name: str) -> RecipeSummary:
        """Return the summary of one name, or of `PATH.py:FUNCTION`.

        Raises:
            UsageError: unknown name, with near misses.
        """
        if is_own_recipe(name):
            return _summarize(self.load(name))
        if name not in self.recipes:
            hint = f'`autorecipe recipes search "{name}"` finds recipes by words'
            if name.endswith(LIBRARY_SUFFIX) and name.removesuffix(LIBRARY_SUFFIX) in self.recipes:
                hint = f"only one package exports it: use {name.removesuffix(LIBRARY_SUFFIX)}"
            raise UsageError(unknown_name("recipe", name, list(self.recipes), hint=hint))
        return self.recipes[name]

    def load(self, name: str) -> Recipe:
        """Return a recipe with all its fields; an alias gives its target's fields under its own name.

        Args:
            name: recipe name, alias or canonical, `NAME@library`, or `PATH.py:FUNCTION` for a recipe of one's own.

        Raises:
            UsageError: unknown name, with near misses; a function that gives no recipe.
            EnvironmentProblem: damaged data file; a function that fails or does not return.
        """
        if is_own_recipe(name):
            from autorecipe.catalog.own import load_own_recipe

            return load_own_recipe(name, self)
        if name not in self._recipes:
            self._recipes[name] = self._read_recipe(self.summary(name))
        return self._recipes[name]

    def schema(self) -> ConfigSchema:
        """Return the configuration schema of this release."""
        return self._schema

    def mlm_options(self) -> Mapping[str, MlmOption]:
        """Return the Megatron-LM options that match this release, by flag."""
        return self._mlm_options

    def model_cards(self) -> Mapping[str, ModelCard]:
        """Return the card of every model that is described or used, by Hugging Face id."""
        return self._model_cards

    def model_card(self, hf_id: str) -> ModelCard:
        """Return one card.

        Raises:
            UsageError: unknown id, with near misses.
        """
        if hf_id not in self._model_cards:
            known = list(self._model_cards)
            raise UsageError(unknown_name("model", hf_id, known, hint="`autorecipe models list` lists the ids"))
        return self._model_cards[hf_id]

    @functools.cached_property
    def bases(self) -> BaseTable:
        """Everything that recipes start from."""
        return BaseTable(StoredBases(LineTable(self._file("bases.jsonl"), "id")))

    @functools.cached_property
    def recipes(self) -> SummaryTable:
        """Summaries by name, each read when it is asked for."""
        return SummaryTable(self._file(SUMMARIES))

    @functools.cached_property
    def _schema(self) -> ConfigSchema:
        from autorecipe.catalog.schema import load_schema

        return load_schema(self._file("schema.jsonl"), release=self.release, subclasses=self.meta["subclasses"])

    @functools.cached_property
    def _mlm_options(self) -> Mapping[str, MlmOption]:
        from autorecipe.catalog.options import load_options

        return load_options(self._file("options.jsonl"))

    @functools.cached_property
    def _model_cards(self) -> Mapping[str, ModelCard]:
        from autorecipe.catalog.cards import load_cards

        return load_cards(self)

    def _file(self, *names: str) -> str:
        return os.path.join(self._folder, *names)

    def _read_recipe(self, summary: RecipeSummary) -> Recipe:
        canonical = summary.alias_of or summary.name
        path = self._file("recipes", f"{summary.kind.value}-{summary.family}.jsonl")
        line = LineTable(path, "name").get(canonical)
        if line is None:
            raise UsageError(Problem(path=path, message=f"the catalog lists {canonical!r}, but its file lacks it"))
        fields: dict[str, Any] = {}
        if "set" in line:
            on = add_common(line["on"], self.meta["common_bases"])
            fields = self.bases.assemble(on, line["set"], line.get("drop", ()))
        notes = dict(line["notes"])
        dora = notes.pop("dora", {})
        notes["aliases"] = line["aliases"]
        notes["inputs"] = line["inputs"]
        parts = parse_name(canonical)
        return Recipe(
            name=summary.name,
            release=self.release,
            kind=summary.kind,
            mode=summary.mode,
            alias_of=summary.alias_of,
            family=summary.family,
            modality=modality_of(summary.name),
            hf_model_ids=summary.hf_model_ids,
            gpus=parts.gpus,
            gpu_type=parts.gpu_type,
            precision=parts.precision,
            variant=parts.variant,
            forward_step=forward_step_of(summary.name),
            status=summary.status,
            error=line["error"],
            source=line["source"],
            fields=dict(sorted(fields.items())),
            model_set=tuple(line.get("model_set", ())),
            dora_fields=dora.get("fields", {}),
            dora_removed=tuple(dora.get("removed", ())),
            notes=notes,
        )


def open_catalog(release: str | None = None) -> Catalog:
    """Open a release.

    Args:
        release: such as `0.6.2`, or a shorter form that fits one release (`0.5`); None for the newest shipped one.

    Raises:
        UsageError: no such release.
    """
    found = _directories()
    if release is None:
        name = max(found, key=_order)
    elif release in found:
        name = release
    else:
        fitting = [name for name in found if name.startswith(f"{release}.")]
        if not fitting:
            hint = f"releases at hand: {', '.join(sorted(found, key=_order))}"
            raise UsageError(unknown_name("release", release, list(found), hint=hint))
        name = max(fitting, key=_order)
    return _open(found[name])


def shipped_releases() -> tuple[str, ...]:
    """Return the releases at hand, newest first."""
    return tuple(sorted(_directories(), key=_order, reverse=True))


@functools.lru_cache(maxsize=8)
def _open(directory: str) -> Catalog:
    return Catalog(directory)


def _directories() -> dict[str, str]:
    roots = [data_file("releases")]
    extra = os.environ.get(CATALOG_VARIABLE)
    if extra:
        roots.append(extra)
    found: dict[str, str] = {}
    for root in roots:
        folders = [os.path.join(root, name) for name in os.listdir(root)] if os.path.isdir(root) else []
        releases = {os.path.basename(path): path for path in folders if os.path.isfile(os.path.join(path, "release.json"))}
        if not releases:
            where = f"{CATALOG_VARIABLE}={root}" if root is not roots[0] else root
            hint = "it names the folder that `autorecipe catalog build --out` wrote; unset it for the shipped releases"
            raise UsageError(Problem(code="no-release", path=where, message="holds no RELEASE/release.json", hint=hint))
        found |= releases
    return found


def _order(release: str) -> tuple[tuple[int, ...], str]:
    numbers = tuple(int(part) for part in release.split("+")[0].split(".") if part.isdigit())
    return numbers, release


def _summarize(recipe: Recipe) -> RecipeSummary:
    """Return the summary of a recipe that no table lists."""
    from autorecipe.config.views import view_layout, view_seq_length
    from autorecipe.schema.run import RunConfig

    config = RunConfig(values=recipe.fields)
    layout = view_layout(config)
    return RecipeSummary(
        name=recipe.name,
        model=parse_name(recipe.canonical_name).model,
        kind=recipe.kind,
        mode=recipe.mode,
        alias_of=recipe.alias_of,
        family=recipe.family,
        modality=recipe.modality,
        hf_model_ids=recipe.hf_model_ids,
        gpus=recipe.gpus,
        gpu_type=recipe.gpu_type,
        precision=recipe.precision,
        variant=recipe.variant,
        status=recipe.status,
        layout=layout,
        minimum_gpus=layout.minimum_world_size,
        seq_length=view_seq_length(config),
        global_batch_size=config.get("train.global_batch_size", None),
        micro_batch_size=config.get("train.micro_batch_size", None),
        dataset=config.get("dataset._class", None),
    )
