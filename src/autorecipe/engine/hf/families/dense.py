"""Dense decoders: Llama, Mistral, Ministral, Qwen2 and 2.5, Qwen3, Phi-3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autorecipe.engine.hf.families.parts import (
    OWN,
    THEIRS,
    Description,
    Heads,
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


def describe_dense(fields: Fields) -> Description:
    """Read Llama, Mistral, Ministral, Qwen2 or Qwen3."""
    family = fields.family
    values, heads = read_base(fields), read_heads(fields)
    width = fields.size("intermediate_size")
    has_biases, has_norms = family == "qwen2", family == "qwen3"
    values |= {**read_attention(fields, heads), "ffn_hidden_size": width}
    values |= {"add_qkv_bias": has_biases, "qk_layernorm": has_norms}
    notes: tuple[str, ...] = ()
    rope = take_rope(fields)
    if family == "ministral3":
        rope, notes = _drop_query_scale(rope)
    values |= read_positions(fields, rope)
    values |= _read_family_windows(fields, values["num_layers"])
    fields.expect("hidden_act", "silu")
    fields.expect("mlp_bias", False)
    if not has_biases:
        fields.expect("attention_bias", False)
    pieces = embedding_pieces()
    for layer in range(values["num_layers"]):
        pieces += norm_pieces(layer)
        pieces += attention_pieces(layer, heads, biases=has_biases, norms=has_norms)
        pieces += feed_forward_pieces(f"{OWN}.{layer}.mlp", f"{THEIRS}.{layer}.mlp", width)
    return Description(values=values, pieces=[*pieces, *output_pieces(values)], notes=notes)


def _drop_query_scale(rope: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Leave out the growth of queries at far positions, which is 1 up to the original length, and say so."""
    beta = rope.pop("llama_4_scaling_beta", None)
    original = rope.get("original_max_position_embeddings")
    if not beta or original is None:
        return rope, ()
    return rope, (
        f"transformers scales queries from position {original:,} on (llama_4_scaling_beta={beta:g}), and this engine does not: "
        f"keep sequences to {original:,} tokens",
    )


def _read_family_windows(fields: Fields, num_layers: int) -> dict[str, Any]:
    window, kinds = fields.take("sliding_window"), fields.take("layer_types")
    if fields.family in ("qwen2", "qwen3"):
        if not fields.take("use_sliding_window", False):
            window = None
        elif kinds is None:
            first = fields.take("max_window_layers", 0)
            kinds = ["full_attention" if layer < first else "sliding_attention" for layer in range(num_layers)]
    elif fields.family == "llama":
        window = None
    return read_windows(fields, window, num_layers, kinds=kinds if window is not None else None)


def describe_phi3(fields: Fields) -> Description:
    """Read Phi-3, whose files hold query, key and value in one tensor, and gate and up in one."""
    values, heads = read_base(fields), read_heads(fields)
    width = fields.size("intermediate_size")
    values |= {**read_attention(fields, heads), "ffn_hidden_size": width}
    rope = take_rope(fields)
    fields.take("original_max_position_embeddings")
    values |= read_positions(fields, rope)
    values |= read_windows(fields, fields.take("sliding_window"), values["num_layers"], kinds=None)
    fields.expect("hidden_act", "silu")
    pieces = embedding_pieces()
    for layer in range(values["num_layers"]):
        pieces += [*norm_pieces(layer), *_phi3_layer(layer, heads, width)]
    return Description(values=values, pieces=[*pieces, *output_pieces(values)])


def _phi3_layer(layer: int, heads: Heads, width: int) -> list[Piece]:
    own, theirs = f"{OWN}.{layer}", f"{THEIRS}.{layer}"
    attention, mlp = f"{own}.self_attention", f"{own}.mlp"
    return [
        Piece(
            name=f"{attention}.linear_qkv.weight",
            sources=(f"{theirs}.self_attn.qkv_proj.weight",),
            rows=heads.rows,
            groups=heads.groups,
        ),
        Piece(name=f"{attention}.linear_proj.weight", sources=(f"{theirs}.self_attn.o_proj.weight",)),
        Piece(name=f"{mlp}.linear_fc1.weight", sources=(f"{theirs}.mlp.gate_up_proj.weight",), rows=(width, width)),
        Piece(name=f"{mlp}.linear_fc2.weight", sources=(f"{theirs}.mlp.down_proj.weight",)),
    ]


FAMILIES: Mapping[str, Callable[[Fields], Description]] = {
    **dict.fromkeys(("llama", "mistral", "ministral", "ministral3", "qwen2", "qwen3"), describe_dense),
    "phi3": describe_phi3,
}
