"""Latent attention: DeepSeek-V2 (Lite) and DeepSeek-V3, to which Moonlight belongs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autorecipe.engine.hf.families.parts import (
    OWN,
    THEIRS,
    Description,
    embedding_pieces,
    feed_forward_pieces,
    norm_pieces,
    output_pieces,
    read_base,
    take_rope,
)
from autorecipe.engine.hf.fields import Fields
from autorecipe.engine.hf.pieces import Piece

LATENT_EPSILON = 1e-6
"""Added to the variance in the norms of latent vectors, whatever `rms_norm_eps` says. Source: transformers 5.12."""


def describe_latent(fields: Fields) -> Description:
    """Read DeepSeek-V2 or DeepSeek-V3."""
    values = read_base(fields)
    depth, dense = values["num_layers"], fields.take("first_k_dense_replace", 0)
    width = fields.size("moe_intermediate_size")
    shared = fields.take("n_shared_experts", 0) * width
    experts = fields.size("n_routed_experts", fields.take("num_local_experts"))
    values |= {
        "multi_latent_attention": True,
        "q_lora_rank": fields.take("q_lora_rank"),
        "kv_lora_rank": fields.size("kv_lora_rank"),
        "qk_head_dim": fields.size("qk_nope_head_dim"),
        "qk_pos_emb_head_dim": fields.size("qk_rope_head_dim"),
        "v_head_dim": fields.size("v_head_dim"),
        "qk_layernorm": True,
        "ffn_hidden_size": fields.size("intermediate_size"),
        "num_moe_experts": experts,
        "moe_layer_freq": [int(layer >= dense) for layer in range(depth)],
        "moe_router_topk": fields.size("num_experts_per_tok"),
        "moe_ffn_hidden_size": width,
        "moe_shared_expert_intermediate_size": shared or None,
        "moe_router_load_balancing_type": "none",
        "moe_router_topk_scaling_factor": fields.take("routed_scaling_factor", 1.0),
        "moe_router_dtype": "fp32",
        "moe_token_dispatcher_type": "alltoall",
        "moe_grouped_gemm": False,
    }
    values |= _read_positions(fields, take_rope(fields))
    is_third = fields.family == "deepseek_v3"
    values |= _read_third_router(fields, values) if is_third else _read_second_router(fields)
    for name, legal in (("hidden_act", "silu"), ("attention_bias", False), ("mlp_bias", False), ("moe_layer_freq", 1)):
        fields.expect(name, legal)
    fields.expect("num_key_value_heads", values["num_attention_heads"])
    fields.take("head_dim")
    notes: tuple[str, ...] = ()
    if values["layernorm_epsilon"] != LATENT_EPSILON:
        notes = (
            f"the norms of latent vectors add {values['layernorm_epsilon']:g} to the variance, as Megatron-Core's do; "
            f"transformers' add {LATENT_EPSILON:g}",
        )
    pieces = embedding_pieces()
    for layer in range(depth):
        pieces += [*norm_pieces(layer), *_attention(layer, compressed=values["q_lora_rank"] is not None)]
        own, theirs = f"{OWN}.{layer}.mlp", f"{THEIRS}.{layer}.mlp"
        if layer < dense:
            pieces += feed_forward_pieces(own, theirs, values["ffn_hidden_size"])
            continue
        pieces.append(Piece(name=f"{own}.router.weight", sources=(f"{theirs}.gate.weight",)))
        if is_third:
            pieces.append(Piece(name=f"{own}.router.expert_bias", sources=(f"{theirs}.gate.e_score_correction_bias",)))
        if shared:
            pieces += feed_forward_pieces(f"{own}.shared_experts", f"{theirs}.shared_experts", shared)
        for expert in range(experts):
            pieces += feed_forward_pieces(f"{own}.experts.local_experts.{expert}", f"{theirs}.experts.{expert}", width)
    # Further predicted tokens lie in layers after the last one.
    return Description(values=values, pieces=[*pieces, *output_pieces(values)], left_out=(f"{THEIRS}.{depth}.",), notes=notes)


def _read_positions(fields: Fields, rope: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of latent attention's positions."""
    fields.expect("rope_interleave", True)
    kind = rope.pop("rope_type")
    values: dict[str, Any] = {"position_embedding_type": "rope", "rotary_base": rope.pop("rope_theta"), "rotary_percent": 1.0}
    if kind == "default":
        rope.pop("partial_rotary_factor", None)  # of a head's width; the rotated part has a width of its own here
        values["rope_type"] = "rope"
    elif kind == "yarn":
        mscale, mscale_all = rope.pop("mscale", None), rope.pop("mscale_all_dim", None)
        if not (mscale and mscale_all):
            mscale, mscale_all = 1.0, 0.0
        values |= {
            "rope_type": "yarn",
            "rotary_scaling_factor": float(rope.pop("factor", 1.0)),
            "original_max_position_embeddings": rope.pop("original_max_position_embeddings", 4096),
            "beta_fast": float(rope.pop("beta_fast", None) or 32),
            "beta_slow": float(rope.pop("beta_slow", None) or 1),
            "mscale": mscale,
            "mscale_all_dim": mscale_all,
        }
    else:
        fields.refuse(f"rotary scaling {kind!r}", "only default and yarn are")
        return values
    if rope:
        fields.refuse(f"rotary parameters {rope!r}", "it is not known here what they change")
    return values


def _read_second_router(fields: Fields) -> dict[str, Any]:
    method = fields.take("topk_method", "greedy")
    if method != "greedy":
        why = "Megatron-Core ranks groups of experts by the sum of their best scores, and this model by the best one"
        fields.refuse(f"topk_method={method!r}", why)
    fields.take("n_group")
    fields.take("topk_group")
    fields.expect("scoring_func", "softmax")
    fields.expect("norm_topk_prob", False)
    return {"moe_router_score_function": "softmax", "moe_router_pre_softmax": True}


def _read_third_router(fields: Fields, values: Mapping[str, Any]) -> dict[str, Any]:
    groups, chosen, topk = fields.take("n_group", 1), fields.take("topk_group", 1), values["moe_router_topk"]
    fields.expect("topk_method", "noaux_tc")
    fields.expect("scoring_func", "sigmoid")
    fields.expect("norm_topk_prob", True)
    if topk == 1:
        fields.refuse("num_experts_per_tok=1", "its weight is 1 there, and the score here")
    router: dict[str, Any] = {"moe_router_score_function": "sigmoid", "moe_router_enable_expert_bias": True}
    if groups == chosen:  # every group is open
        return router
    if topk // chosen != 2:
        why = "groups are ranked by their two best scores there, and by num_experts_per_tok / topk_group of them here"
        fields.refuse(f"num_experts_per_tok={topk} with topk_group={chosen}", why)
    return {**router, "moe_router_num_groups": groups, "moe_router_group_topk": chosen}


def _attention(layer: int, *, compressed: bool) -> list[Piece]:
    own, theirs = f"{OWN}.{layer}.self_attention", f"{THEIRS}.{layer}.self_attn"
    names = {"linear_kv_down_proj": "kv_a_proj_with_mqa", "kv_layernorm": "kv_a_layernorm", "linear_kv_up_proj": "kv_b_proj"}
    if compressed:
        names |= {"linear_q_down_proj": "q_a_proj", "q_layernorm": "q_a_layernorm", "linear_q_up_proj": "q_b_proj"}
    else:
        names["linear_q_proj"] = "q_proj"
    names["linear_proj"] = "o_proj"
    return [Piece(name=f"{own}.{mine}.weight", sources=(f"{theirs}.{yours}.weight",)) for mine, yours in names.items()]


FAMILIES: Mapping[str, Callable[[Fields], Description]] = {"deepseek_v2": describe_latent, "deepseek_v3": describe_latent}
