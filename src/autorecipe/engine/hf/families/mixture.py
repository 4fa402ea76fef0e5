"""Mixtures of experts with grouped-query attention: Qwen3-MoE, Mixtral, OLMoE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autorecipe.engine.hf.families.parts import (
    OWN,
    THEIRS,
    Description,
    attention_pieces,
    embedding_pieces,
    feed_forward_pieces,
    norm_pieces,
    output_pieces,
    read_attention,
    read_base,
    read_heads,
    read_positions,
    read_windows,
    take_rope,
)
from autorecipe.engine.hf.fields import Fields
from autorecipe.engine.hf.pieces import Piece

MIXTRAL_NAMES = ("w1", "w3", "w2")


def read_mixture(fields: Fields, *, experts: int, topk: int, width: int) -> dict[str, Any]:
    """Return the fields of a mixture whose router takes a softmax.

    Args:
        fields: for `norm_topk_prob`: whether the weights of the chosen experts are made to add up to 1.
        experts: of a layer.
        topk: experts of a token.
        width: of an expert.
    """
    return {
        "num_moe_experts": experts,
        "moe_router_topk": topk,
        "moe_ffn_hidden_size": width,
        "moe_router_load_balancing_type": "none",
        "moe_router_pre_softmax": not fields.take("norm_topk_prob", False),
        "moe_token_dispatcher_type": "alltoall",
        "moe_grouped_gemm": False,
    }


def describe_qwen3_moe(fields: Fields) -> Description:
    """Read Qwen3-MoE: a mixture in every layer."""
    values, heads = read_base(fields), read_heads(fields)
    width = fields.size("moe_intermediate_size")
    values |= {**read_attention(fields, heads), "qk_layernorm": True, "ffn_hidden_size": fields.size("intermediate_size", width)}
    values |= read_positions(fields, take_rope(fields))
    experts = fields.size("num_experts", fields.take("num_local_experts"))
    values |= read_mixture(fields, experts=experts, topk=fields.size("num_experts_per_tok"), width=width)
    fields.expect("decoder_sparse_step", 1)
    fields.expect("mlp_only_layers", [])
    fields.expect("hidden_act", "silu")
    fields.expect("attention_bias", False)
    fields.expect("use_sliding_window", False)
    fields.take("sliding_window")
    return _finish(fields, values, heads_norms=True, experts=experts, width=width)


def describe_mixtral(fields: Fields) -> Description:
    """Read Mixtral: a mixture in every layer, the chosen experts' weights add up to 1."""
    values, heads = read_base(fields), read_heads(fields)
    width = fields.size("intermediate_size")
    values |= {**read_attention(fields, heads), "ffn_hidden_size": width}
    values |= read_positions(fields, take_rope(fields))
    values |= read_windows(fields, fields.take("sliding_window"), values["num_layers"], kinds=None)
    experts = fields.size("num_local_experts", fields.take("num_experts"))
    values |= read_mixture(fields, experts=experts, topk=fields.size("num_experts_per_tok"), width=width)
    values["moe_router_pre_softmax"] = False
    fields.expect("hidden_act", "silu")
    return _finish(fields, values, heads_norms=False, experts=experts, width=width)


def describe_olmoe(fields: Fields) -> Description:
    """Read OLMoE: a mixture in every layer, query and key norms over all heads at once."""
    values, heads = read_base(fields), read_heads(fields)
    width = fields.size("intermediate_size")
    values |= {**read_attention(fields, heads), "_class": "OlMoEModelProvider", "qk_layernorm": True, "ffn_hidden_size": width}
    values |= read_positions(fields, take_rope(fields))
    experts = fields.size("num_experts", fields.take("num_local_experts"))
    values |= read_mixture(fields, experts=experts, topk=fields.size("num_experts_per_tok"), width=width)
    fields.expect("hidden_act", "silu")
    fields.expect("attention_bias", False)
    fields.expect("clip_qkv", why="Megatron-Core does not clip queries, keys and values")
    return _finish(fields, values, heads_norms=True, experts=experts, width=width)


def _finish(fields: Fields, values: dict[str, Any], *, heads_norms: bool, experts: int, width: int) -> Description:
    heads = read_heads(fields)
    is_mixtral = fields.family == "mixtral"
    pieces = embedding_pieces()
    for layer in range(values["num_layers"]):
        own, theirs = f"{OWN}.{layer}.mlp", f"{THEIRS}.{layer}.{'block_sparse_moe' if is_mixtral else 'mlp'}"
        pieces += [*norm_pieces(layer), *attention_pieces(layer, heads, norms=heads_norms)]
        pieces.append(Piece(name=f"{own}.router.weight", sources=(f"{theirs}.gate.weight",)))
        names = (MIXTRAL_NAMES,) if is_mixtral else ()
        for expert in range(experts):
            pieces += feed_forward_pieces(f"{own}.experts.local_experts.{expert}", f"{theirs}.experts.{expert}", width, *names)
    return Description(values=values, pieces=[*pieces, *output_pieces(values)])


FAMILIES: Mapping[str, Callable[[Fields], Description]] = {
    "qwen3_moe": describe_qwen3_moe,
    "mixtral": describe_mixtral,
    "olmoe": describe_olmoe,
}
