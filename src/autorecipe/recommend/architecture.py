"""Compare architectures: a local Hugging Face `config.json`, or a model card, against the models that have recipes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from autorecipe.errors import EnvironmentProblem, Problem, UsageError
from autorecipe.schema.card import ModelCard

if TYPE_CHECKING:
    from pathlib import Path

HF_NAMES = {
    "num_layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "ffn_hidden_size": ("intermediate_size", "ffn_dim", "n_inner"),
    "num_attention_heads": ("num_attention_heads", "n_head"),
    "num_query_groups": ("num_key_value_heads",),
    "kv_channels": ("head_dim",),
    "vocab_size": ("vocab_size",),
    "num_moe_experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "moe_router_topk": ("num_experts_per_tok",),
    "moe_ffn_hidden_size": ("moe_intermediate_size",),
    "seq_length": ("max_position_embeddings",),
    "rotary_base": ("rope_theta",),
    "share_embeddings_and_output_weights": ("tie_word_embeddings",),
    "kv_lora_rank": ("kv_lora_rank",),
}
"""Megatron's field -> names of the same fact in Hugging Face configurations."""

WEIGHTS = {"num_layers": 2.0, "hidden_size": 3.0, "ffn_hidden_size": 1.0, "num_attention_heads": 1.0, "num_query_groups": 1.0}
"""How much a factor of two in a fact counts; facts not named here count 0.25."""

OTHER_ATTENTION = 2.0
"""How much multi-latent attention on one side only counts. Evidence: assumed."""


def read_config(path: Path) -> Mapping[str, Any]:
    """Read the architecture facts of a local `config.json`, under Megatron's names.

    Raises:
        EnvironmentProblem: the file cannot be read.
        UsageError: it is no JSON object, or has no layers and width.
    """
    try:
        content = json.loads(path.expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise EnvironmentProblem(
            Problem(
                path=str(path), message=f"cannot be read: {error.strerror}", hint="give the path of a Hugging Face config.json"
            )
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            Problem(path=str(path), message=f"is no JSON: {error}", hint="give a Hugging Face config.json")
        ) from error
    text = content.get("text_config", content) if isinstance(content, dict) else {}
    facts: dict[str, Any] = {}
    for name, spellings in HF_NAMES.items():
        value = next((text[spelling] for spelling in spellings if text.get(spelling) is not None), None)
        if value is not None:
            facts[name] = value
    if "num_layers" not in facts or "hidden_size" not in facts:
        raise UsageError(
            Problem(
                path=str(path),
                message="has no num_hidden_layers and hidden_size, so it describes no transformer",
                hint="give the config.json that lies beside the model's weights",
            )
        )
    facts.setdefault("num_query_groups", facts.get("num_attention_heads"))
    return facts


def rank_architectures(facts: Mapping[str, Any], cards: Iterable[ModelCard]) -> list[ModelCard]:
    """Return cards of models with recipes, nearest first; dense and mixture of experts are never mixed."""
    is_moe = bool(facts.get("num_moe_experts"))
    fitting = [card for card in cards if card.recipes and card.facts and bool(card.facts.get("num_moe_experts")) == is_moe]
    return sorted(fitting, key=lambda card: (_distance(facts, card.facts), card.hf_model_id))


def compare(facts: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[list[tuple[str, Any, Any]], int]:
    """Return the facts that differ, as (name, ours, theirs), and how many were compared."""
    shared = [name for name in HF_NAMES if name in facts and other.get(name) is not None and name != "seq_length"]
    return [(name, facts[name], other[name]) for name in shared if facts[name] != other[name]], len(shared)


def _distance(facts: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    total = 0.0
    for name in HF_NAMES:
        ours, theirs = facts.get(name), other.get(name)
        if ours is None or theirs is None or name == "seq_length":
            continue
        weight = WEIGHTS.get(name, 0.25)
        if _is_number(ours) and _is_number(theirs):
            total += weight * abs(math.log2(ours / theirs))
        else:
            total += weight * (ours != theirs)
    return total + OTHER_ATTENTION * (bool(facts.get("kv_lora_rank")) != bool(other.get("kv_lora_rank")))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
