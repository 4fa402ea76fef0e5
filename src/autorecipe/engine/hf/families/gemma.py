"""Gemma 1, 2 and 3: scaled embeddings, norms that add 1 to their weights; soft caps, windows and more norms in the later ones."""

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

ACTIVATIONS = {"gelu_pytorch_tanh": "megatron.core.activations:fast_gelu", "gelu": "torch.nn.functional:gelu"}
"""`hidden_act` -> the same function here. The first is the tanh form, under which the models were published."""

HEAD_WIDTH = 256
SCALAR = 256
"""What `head_dim` and `query_pre_attn_scalar` are where a file leaves them out. Source: transformers 5.12, Gemma*Config."""

LOCAL_BASE, GLOBAL_BASE = 10_000.0, 1_000_000.0
"""Rotary bases of Gemma 3 where a file leaves them out. Source: transformers 5.12, Gemma3TextConfig."""


def describe_gemma(fields: Fields) -> Description:
    """Read Gemma 1: two norms in a layer, no windows."""
    values = _read_common(fields, "GemmaModelProvider", activation="hidden_act")
    fields.take("hidden_activation")
    values |= read_positions(fields, take_rope(fields))
    return _finish(fields, values, post_norms=False, norms=False)


def describe_gemma2(fields: Fields) -> Description:
    """Read Gemma 2: windows in every second layer, soft caps, four norms in a layer."""
    values = _read_common(fields, "Gemma2ModelProvider", activation="hidden_activation")
    values |= read_positions(fields, take_rope(fields))
    values |= {
        "query_pre_attn_scalar": fields.take("query_pre_attn_scalar", SCALAR),
        "attn_logit_softcapping": fields.take("attn_logit_softcapping"),
        "final_logit_softcapping": fields.take("final_logit_softcapping"),
    }
    window = fields.take("sliding_window", 4096)
    fields.expect("sliding_window_size", window)
    kinds = fields.take("layer_types") or _alternate(values["num_layers"], 2)
    values |= {"window_size": [window - 1, 0], **_windows(fields, window, values["num_layers"], kinds, period=2)}
    return _finish(fields, values, post_norms=True, norms=False)


def describe_gemma3(fields: Fields) -> Description:
    """Read the text model of Gemma 3: windows in all but every sixth layer with a rotary base of their own, norms of heads."""
    values = _read_common(fields, "Gemma3ModelProvider", activation="hidden_activation")
    pattern = fields.take("sliding_window_pattern", fields.take("_sliding_window_pattern", 6))
    kinds = fields.take("layer_types") or _alternate(values["num_layers"], pattern)
    window = fields.take("sliding_window", 4096)
    values |= {"window_size": window, **_windows(fields, window, values["num_layers"], kinds, period=pattern)}
    local, everywhere, factor = _two_ropes(fields)
    values |= {
        "position_embedding_type": "rope",
        "rotary_percent": 1.0,
        "rotary_base": [local, everywhere],
        "rope_scaling_factor": factor,
        "interleaved_attn_pattern": [pattern - 1, 1],
        "softmax_scale": fields.take("query_pre_attn_scalar", SCALAR) ** -0.5,
        "qk_layernorm": True,
        "is_vision_language": False,
    }
    why = "Megatron Bridge's model of it has no such cap"
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        fields.expect(name, why=why)
    return _finish(fields, values, post_norms=True, norms=True)


def _read_common(fields: Fields, model_class: str, *, activation: str) -> dict[str, Any]:
    values, heads = read_base(fields), read_heads(fields, width=HEAD_WIDTH)
    values |= {
        **read_attention(fields, heads),
        "_class": model_class,
        "ffn_hidden_size": fields.size("intermediate_size"),
        "layernorm_zero_centered_gamma": True,
        "share_embeddings_and_output_weights": bool(fields.take("tie_word_embeddings", True)),
    }
    function = fields.take(activation, "gelu_pytorch_tanh")
    values["activation_func"] = ACTIVATIONS.get(function, function)
    fields.expect(activation, *ACTIVATIONS)
    fields.take("hidden_act")
    fields.expect("attention_bias", False)
    fields.expect("use_bidirectional_attention", False)
    return values


def _alternate(num_layers: int, period: int) -> list[str]:
    return ["sliding_attention" if (layer + 1) % period else "full_attention" for layer in range(num_layers)]


def _windows(fields: Fields, window: int, num_layers: int, kinds: list[str], *, period: int) -> dict[str, Any]:
    """Return for each layer whether it has a window; nothing where that is as the model class has it."""
    read_windows(fields, window, num_layers, kinds=kinds)
    if kinds == _alternate(num_layers, period):
        return {}
    return {"window_attn_skip_freq": [int(kind == "sliding_attention") for kind in kinds]}


def _two_ropes(fields: Fields) -> tuple[float, float, float]:
    """Return the base of layers with a window, of the others, and the factor that divides the others' frequencies."""
    ropes = fields.take("rope_parameters") or {}
    local, everywhere = (dict(ropes.get(f"{kind}_attention") or {}) for kind in ("sliding", "full"))
    everywhere |= fields.take("rope_scaling") or {}
    bases = (
        local.pop("rope_theta", None) or fields.take("rope_local_base_freq", LOCAL_BASE),
        everywhere.pop("rope_theta", None) or fields.take("rope_theta", GLOBAL_BASE),
    )
    fields.take("rope_theta")
    fields.take("rope_local_base_freq")
    factor = 1.0
    if (everywhere.pop("rope_type", None) or everywhere.pop("type", None)) == "linear":
        factor = float(everywhere.pop("factor", 1.0))
    everywhere.pop("type", None)
    if local.pop("rope_type", "default") != "default" or local or everywhere:
        fields.refuse(f"rope_parameters={ropes!r}", "only default ones, and linear ones in layers without a window, are")
    return (*bases, factor)


def _finish(fields: Fields, values: dict[str, Any], *, post_norms: bool, norms: bool) -> Description:
    heads, pieces = read_heads(fields, width=HEAD_WIDTH), embedding_pieces()
    for layer in range(values["num_layers"]):
        own, theirs = f"{OWN}.{layer}", f"{THEIRS}.{layer}"
        pieces += _four_norms(own, theirs) if post_norms else norm_pieces(layer)
        pieces += attention_pieces(layer, heads, norms=norms)
        pieces += feed_forward_pieces(f"{own}.mlp", f"{theirs}.mlp", values["ffn_hidden_size"])
    return Description(values=values, pieces=[*pieces, *output_pieces(values)])


def _four_norms(own: str, theirs: str) -> list[Piece]:
    names = {
        "input_layernorm": "input_layernorm",
        "self_attn_bda.norm": "post_attention_layernorm",
        "pre_mlp_layernorm": "pre_feedforward_layernorm",
        "mlp_bda.norm": "post_feedforward_layernorm",
    }
    return [Piece(name=f"{own}.{mine}.weight", sources=(f"{theirs}.{yours}.weight",)) for mine, yours in names.items()]


FAMILIES: Mapping[str, Callable[[Fields], Description]] = {
    "gemma": describe_gemma,
    "gemma2": describe_gemma2,
    "gemma3_text": describe_gemma3,
}
