"""GPT-OSS: attention sinks, alternating windows, biases everywhere, clamped experts whose files stack them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autorecipe.engine.hf.families.parts import (
    OWN,
    THEIRS,
    Description,
    attention_pieces,
    embedding_pieces,
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
from autorecipe.engine.hf.pieces import Piece, Stacked

LIMIT = 7.0
"""Where gates and up projections are cut off. Source: transformers 5.12, GptOssExperts."""


def describe_gpt_oss(fields: Fields) -> Description:
    """Read GPT-OSS."""
    values, heads = read_base(fields), read_heads(fields)
    width, experts = fields.size("intermediate_size"), fields.size("num_local_experts", fields.take("num_experts"))
    values |= {
        **read_attention(fields, heads),
        "add_qkv_bias": True,
        "add_bias_linear": True,
        "softmax_type": "learnable",
        "ffn_hidden_size": width,
        "num_moe_experts": experts,
        "moe_router_topk": fields.size("num_experts_per_tok"),
        "moe_ffn_hidden_size": width,
        "moe_router_load_balancing_type": "none",
        "moe_router_pre_softmax": False,
        "moe_token_dispatcher_type": "alltoall",
        "moe_grouped_gemm": True,
        "activation_func": "megatron.core.activations:quick_gelu",
        "glu_linear_offset": 1.0,
        "activation_func_clamp_value": LIMIT,
        "bias_activation_fusion": False,
    }
    values |= read_positions(fields, take_rope(fields))
    kinds = fields.take("layer_types") or [
        ("sliding_attention", "full_attention")[layer % 2] for layer in range(values["num_layers"])
    ]
    values |= read_windows(fields, fields.take("sliding_window"), values["num_layers"], kinds=kinds)
    fields.expect("hidden_act", "silu")
    fields.expect("attention_bias", True)
    fields.expect("swiglu_limit", LIMIT)
    pieces = embedding_pieces()
    for layer in range(values["num_layers"]):
        pieces += [*norm_pieces(layer), *attention_pieces(layer, heads, biases=True, output_bias=True)]
        own, theirs = f"{OWN}.{layer}", f"{THEIRS}.{layer}"
        sinks = f"{own}.self_attention.core_attention.softmax_offset"
        pieces.append(Piece(name=sinks, sources=(f"{theirs}.self_attn.sinks",)))
        for kind in ("weight", "bias"):
            pieces.append(Piece(name=f"{own}.mlp.router.{kind}", sources=(f"{theirs}.mlp.router.{kind}",)))
        pieces += _experts(f"{own}.mlp.experts", f"{theirs}.mlp.experts", experts)
    return Description(values=values, pieces=[*pieces, *output_pieces(values)])


def _experts(own: str, theirs: str, count: int) -> list[Piece]:
    """Return the experts of a layer; all parameters of one stacked tensor follow each other."""
    found = []
    for part, source, alternates in (("linear_fc1", "gate_up_proj", True), ("linear_fc2", "down_proj", False)):
        for kind, suffix in (("weight", ""), ("bias", "_bias")):
            for expert in range(count):
                place = Stacked(expert=expert, count=count, is_transposed=kind == "weight", alternates=alternates)
                found.append(Piece(name=f"{own}.{part}.{kind}{expert}", sources=(f"{theirs}.{source}{suffix}",), stacked=place))
    return found


FAMILIES: Mapping[str, Callable[[Fields], Description]] = {"gpt_oss": describe_gpt_oss}
