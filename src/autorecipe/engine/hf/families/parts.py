"""What families share: attention, positions, windows, norms and feed-forward layers. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autorecipe.engine.hf.fields import Fields
from autorecipe.engine.hf.pieces import Piece

LLAMA3_SCALING = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Constants of Llama 3.1's scaled positions that Megatron-Core has built in. Source: its rotary_pos_embedding.py, 0.16.1."""

SILU = "torch.nn.functional:silu"
OWN, THEIRS = "decoder.layers", "model.layers"


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a family makes of a configuration.

    Attributes:
        values: fields of the model, without `model.`.
        pieces: every parameter, in the order of the layers.
        left_out: prefixes of tensors that have no place in this engine's model.
        notes: what the user must know.
    """

    values: Mapping[str, Any]
    pieces: Sequence[Piece]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Sizes of attention.

    Attributes:
        hidden: width of the model.
        count: query heads.
        groups: key and value heads.
        width: of a head.
    """

    hidden: int
    count: int
    groups: int
    width: int

    @property
    def rows(self) -> tuple[int, int, int]:
        """Rows of query, key and value."""
        return self.count * self.width, self.groups * self.width, self.groups * self.width


def read_heads(fields: Fields, *, width: int | None = None) -> Heads:
    """Read the sizes of attention.

    Args:
        fields: of the model.
        width: of a head where the file has no `head_dim`; its share of the hidden size where None.
    """
    hidden, count = fields.size("hidden_size"), fields.size("num_attention_heads")
    return Heads(
        hidden=hidden,
        count=count,
        groups=fields.size("num_key_value_heads", count),
        width=fields.size("head_dim", max(hidden // count, 1) if width is None else width),
    )


def read_base(fields: Fields) -> dict[str, Any]:
    """Read what every decoder has: depth, vocabulary, norms, tied embeddings."""
    return {
        "num_layers": fields.size("num_hidden_layers"),
        "hidden_size": fields.size("hidden_size"),
        "num_attention_heads": fields.size("num_attention_heads"),
        "vocab_size": fields.size("vocab_size"),
        "seq_length": fields.size("max_position_embeddings"),
        "layernorm_epsilon": fields.take("rms_norm_eps", 1e-6),
        "normalization": "RMSNorm",
        "activation_func": SILU,
        "gated_linear_unit": True,
        "add_bias_linear": False,
        "share_embeddings_and_output_weights": bool(fields.take("tie_word_embeddings", False)),
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
    }


def read_attention(fields: Fields, heads: Heads) -> dict[str, Any]:
    """Return the fields of attention with query groups."""
    return {"num_query_groups": heads.groups, "kv_channels": heads.width, "add_qkv_bias": False, "qk_layernorm": False}


def take_rope(fields: Fields) -> dict[str, Any]:
    """Return the rotary parameters, from either place that transformers keeps them in."""
    rope = {**(fields.take("rope_scaling") or {}), **(fields.take("rope_parameters") or {})}
    rope.setdefault("rope_theta", fields.take("rope_theta", 10000))
    rope["rope_type"] = rope.get("rope_type") or rope.pop("type", None) or "default"
    rope.pop("type", None)
    partial = fields.take("partial_rotary_factor")
    if partial is not None:
        rope.setdefault("partial_rotary_factor", partial)
    return {name: value for name, value in rope.items() if value is not None}


def read_positions(fields: Fields, rope: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of rotary positions: plain, scaled as Llama 3.1's, linear, or YaRN."""
    kind, left = rope["rope_type"], dict(rope)
    values: dict[str, Any] = {"position_embedding_type": "rope", "rotary_base": left.pop("rope_theta")}
    values["rotary_percent"] = left.pop("partial_rotary_factor", 1.0)
    left.pop("rope_type")
    if kind == "llama3":
        factor = left.pop("factor", None)
        if left != LLAMA3_SCALING or factor is None:
            fields.refuse(f"rotary scaling {dict(rope)!r}", f"only {LLAMA3_SCALING} with a factor is")
        return {**values, "rope_scaling": True, "rope_scaling_factor": float(factor or 1)}
    if kind == "linear":
        values["seq_len_interpolation_factor"] = left.pop("factor", None)
    elif kind == "yarn":
        values |= _read_yarn(fields, left)
    elif kind != "default":
        fields.refuse(f"rotary scaling {kind!r}", "only default, llama3, linear and yarn are")
        return values
    left.pop("original_max_position_embeddings", None)
    if left:
        fields.refuse(f"rotary parameters {left!r}", "it is not known here what they change")
    return values


def _read_yarn(fields: Fields, left: dict[str, Any]) -> dict[str, Any]:
    factor = left.pop("factor", None)
    original = left.get("original_max_position_embeddings")
    if factor is None or original is None:
        fields.refuse("yarn without factor and original_max_position_embeddings")
        return {}
    mscale, mscale_all = left.pop("mscale", None), left.pop("mscale_all_dim", None)
    if not (mscale and mscale_all):
        mscale = mscale_all = None
    left.pop("max_position_embeddings", None)
    _check_attention_factor(fields, left.pop("attention_factor", None), factor, mscale, mscale_all)
    return {
        "position_embedding_type": "yarn",
        "yarn_rotary_scaling_factor": float(factor),
        "yarn_original_max_position_embeddings": original,
        "yarn_beta_fast": float(left.pop("beta_fast", None) or 32),
        "yarn_beta_slow": float(left.pop("beta_slow", None) or 1),
        "yarn_mscale": mscale,
        "yarn_mscale_all_dim": mscale_all,
        "yarn_correction_range_round_to_int": left.pop("truncate", True),
    }


def _check_attention_factor(fields: Fields, given: Any, factor: float, mscale: Any, mscale_all: Any) -> None:
    """Refuse a factor on positions that is not the one that follows from the other parameters."""

    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    derived = scale(mscale) / scale(mscale_all) if mscale else scale(1)
    if given is not None and abs(given - derived) > 1e-6:
        fields.refuse(f"attention_factor={given!r}", f"it must be {derived:.6f}, which follows from the other parameters")


def read_windows(fields: Fields, window: int | None, num_layers: int, *, kinds: Sequence[str] | None) -> dict[str, Any]:
    """Return the fields of attention windows.

    Args:
        fields: for problems.
        window: tokens that a token sees, itself included; None for all.
        num_layers: decoder layers.
        kinds: `sliding_attention` or `full_attention` of each layer; None where all are alike.
    """
    known = {"sliding_attention", "full_attention"}
    if kinds is not None and (len(kinds) != num_layers or set(kinds) - known):
        fields.refuse(f"layer_types={list(kinds)!r}", f"it must give one of {', '.join(sorted(known))} for each layer")
        return {}
    has_window = [window is not None and kind == "sliding_attention" for kind in kinds or ["sliding_attention"] * num_layers]
    if window is None or not any(has_window):
        return {}
    return {
        "window_size": [window - 1, 0],
        **({} if all(has_window) else {"window_attn_skip_freq": [int(flag) for flag in has_window]}),
    }


def embedding_pieces() -> list[Piece]:
    """Return the token embedding."""
    return [Piece(name="embedding.word_embeddings.weight", sources=("model.embed_tokens.weight",))]


def output_pieces(values: Mapping[str, Any]) -> list[Piece]:
    """Return the last norm, and the output layer where it is not the embedding."""
    found = [Piece(name="decoder.final_layernorm.weight", sources=("model.norm.weight",))]
    if not values["share_embeddings_and_output_weights"]:
        found.append(Piece(name="output_layer.weight", sources=("lm_head.weight",)))
    return found


def norm_pieces(layer: int) -> list[Piece]:
    """Return the two norms of a layer."""
    own, theirs = f"{OWN}.{layer}", f"{THEIRS}.{layer}"
    return [
        Piece(name=f"{own}.input_layernorm.weight", sources=(f"{theirs}.input_layernorm.weight",)),
        Piece(name=f"{own}.pre_mlp_layernorm.weight", sources=(f"{theirs}.post_attention_layernorm.weight",)),
    ]


def attention_pieces(
    layer: int, heads: Heads, *, biases: bool = False, output_bias: bool = False, norms: bool = False
) -> list[Piece]:
    """Return the attention of a layer with separate query, key and value."""
    own, theirs = f"{OWN}.{layer}.self_attention", f"{THEIRS}.{layer}.self_attn"
    found = []
    for kind in ("weight", "bias") if biases else ("weight",):
        sources = tuple(f"{theirs}.{part}_proj.{kind}" for part in "qkv")
        found.append(Piece(name=f"{own}.linear_qkv.{kind}", sources=sources, rows=heads.rows, groups=heads.groups))
    if norms:
        found += [Piece(name=f"{own}.{part}_layernorm.weight", sources=(f"{theirs}.{part}_norm.weight",)) for part in "qk"]
    for kind in ("weight", "bias") if output_bias else ("weight",):
        found.append(Piece(name=f"{own}.linear_proj.{kind}", sources=(f"{theirs}.o_proj.{kind}",)))
    return found


def feed_forward_pieces(
    own: str, theirs: str, width: int, names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
) -> list[Piece]:
    """Return a gated feed-forward layer.

    Args:
        own: name of the layer here.
        theirs: name there.
        width: rows of gate and of up.
        names: of gate, up and down there.
    """
    gate, up, down = names
    return [
        Piece(name=f"{own}.linear_fc1.weight", sources=(f"{theirs}.{gate}.weight", f"{theirs}.{up}.weight"), rows=(width, width)),
        Piece(name=f"{own}.linear_fc2.weight", sources=(f"{theirs}.{down}.weight",)),
    ]
