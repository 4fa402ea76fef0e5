"""Model cards: architecture facts per Hugging Face id, from the shipped configurations through upstream's own conversion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autorecipe.datafiles import data_file, read_lines
from autorecipe.schema.card import ModelCard
from autorecipe.schema.value import FieldValue

if TYPE_CHECKING:
    from autorecipe.catalog.store import Catalog

MODELS = data_file("models.jsonl")
"""One line per model: id, sources, confidence, missing facts, measured parameter count, Hugging Face configuration."""


def load_cards(catalog: Catalog) -> Mapping[str, ModelCard]:
    """Return cards by id.

    Facts are the model's base values where this release converts its configuration; otherwise those of a recipe that builds
    the model itself. A model that this release cannot build has no facts.
    """
    users: dict[str, list[str]] = {}
    for summary in catalog.summaries():
        if summary.alias_of is None:
            for hf_id in summary.hf_model_ids:
                users.setdefault(hf_id, []).append(summary.name)
    described = {line["id"]: line for line in read_lines(MODELS)}
    cards: dict[str, ModelCard] = {}
    for hf_id in sorted(described.keys() | users.keys()):
        line = described.get(hf_id, {})
        cards[hf_id] = ModelCard(
            hf_model_id=hf_id,
            facts=_facts(catalog, hf_id, users.get(hf_id, [])),
            confidence=line.get("confidence", "source"),
            sources=tuple(line.get("sources", ())) or _recipe_sources(catalog, users.get(hf_id, [])),
            missing=tuple(line.get("missing", ())),
            num_parameters=line.get("num_parameters"),
            recipes=tuple(users.get(hf_id, ())),
        )
    return cards


def _facts(catalog: Catalog, hf_id: str, recipes: list[str]) -> Mapping[str, FieldValue]:
    base_id = f"model:{hf_id}"
    if base_id in catalog.bases.bases:
        return _without_class(catalog.bases.expand(base_id))
    for name in recipes:
        recipe = catalog.load(name)
        if recipe.fields:
            model = {path[6:]: value for path, value in recipe.fields.items() if path.startswith("model.")}
            return _without_class(model)
    return {}


def _without_class(values: Mapping[str, Any]) -> dict[str, FieldValue]:
    return {name: value for name, value in sorted(values.items()) if not name.endswith("_class")}


def _recipe_sources(catalog: Catalog, recipes: list[str]) -> tuple[str, ...]:
    return tuple(f"{catalog.load(name).source} @ {catalog.release}" for name in recipes[:1])
