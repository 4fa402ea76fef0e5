"""Use cases of models: list, describe, count parameters, also from a local Hugging Face configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autorecipe.config.views import view_model
from autorecipe.errors import UsageError
from autorecipe.record import dataclass
from autorecipe.schema.card import ModelCard
from autorecipe.schema.parameters import ParameterCount, count_parameters
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import FieldValue


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """One model in a list.

    Attributes:
        hf_model_id: Hugging Face id.
        parameters: derived count, or None where the model is no decoder LLM or lacks facts.
        active: derived count of parameters that one token uses.
        measured: count of the instantiated model, towers included, or None.
        num_layers: decoder layers.
        hidden_size: width.
        num_recipes: canonical recipes that use it.
        confidence: of the facts: `source`, `mixed` or `memory`.
    """

    hf_model_id: str
    parameters: int | None
    active: int | None
    measured: int | None
    num_layers: int | None
    hidden_size: int | None
    num_recipes: int
    confidence: str


@dataclass(frozen=True, kw_only=True)
class ModelPage:
    """One model in full.

    Attributes:
        card: its facts.
        count: derived parameters, or None.
        why_no_count: reason where there is none.
        scope: what the derived count covers.
        measured_scope: what the measured count covers.
    """

    card: ModelCard
    count: ParameterCount | None
    why_no_count: str
    scope: str
    measured_scope: str = "instantiated without memory, multi-token prediction left out"


def list_models(part: str = "", *, release: str | None = None) -> tuple[ModelRow, ...]:
    """Return the models whose id contains a text."""
    from autorecipe.catalog.store import open_catalog

    rows = []
    for hf_id, card in open_catalog(release).model_cards().items():
        if part.lower() in hf_id.lower():
            count, _ = count_card(card)
            rows.append(
                ModelRow(
                    hf_model_id=hf_id,
                    parameters=count.total if count else None,
                    active=count.active if count else None,
                    measured=card.num_parameters,
                    num_layers=card.facts.get("num_layers"),
                    hidden_size=card.facts.get("hidden_size"),
                    num_recipes=len(card.recipes),
                    confidence=card.confidence,
                )
            )
    return tuple(rows)


def show_model(hf_id: str, *, release: str | None = None) -> ModelPage:
    """Describe a model by its Hugging Face id.

    Raises:
        UsageError: unknown id, with near misses.
    """
    from autorecipe.catalog.store import open_catalog

    return _page(open_catalog(release).model_card(hf_id))


def show_config(path: Path) -> ModelPage:
    """Describe a model from a local `config.json`.

    Raises:
        UsageError: no such file, or an architecture that cannot be read.
        EnvironmentProblem: not JSON.
    """
    from autorecipe.catalog.configs import read_config
    from autorecipe.catalog.hfconfig import facts_from_config

    facts, missing = facts_from_config(read_config(path))
    card = ModelCard(hf_model_id=str(path), facts=facts, confidence="source", sources=(str(path),), missing=missing)
    return _page(card)


def count_card(card: ModelCard) -> tuple[ParameterCount | None, str]:
    """Return the derived parameters of a card, or None and why not."""
    if not card.facts:
        return None, "this release describes no architecture of it"
    if _is_diffusion(card.facts):
        return None, "a diffusion transformer, which the count does not cover"
    config = RunConfig(values={f"model.{name}": value for name, value in card.facts.items()})
    try:
        shape = view_model(config)
    except UsageError as error:
        return None, "; ".join(f"{problem.path} {problem.message}" for problem in error.problems)
    if not shape.vocab_size:
        return None, "its vocabulary size is not known before the tokenizer is loaded"
    return count_parameters(shape), ""


def _page(card: ModelCard) -> ModelPage:
    count, why = count_card(card)
    towers = any(name in card.facts for name in ("vision_config", "sound_config", "hf_text_config", "thinker_config"))
    scope = "language model alone, towers left out" if towers else "multi-token prediction included"
    return ModelPage(card=card, count=count, why_no_count=why, scope=scope)


def _is_diffusion(facts: Mapping[str, FieldValue]) -> bool:
    return any(name in facts for name in ("num_joint_layers", "patch_spatial", "patch_temporal", "freq_dim"))
