"""Layers as blocks: the mixer and the feed-forward part of each layer, and the widths that they work on.

Leaves out: how many parameters a block has (see `parameters`), vision and audio towers. Start reading at `layer_blocks`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from autorecipe.schema.model import ModelShape


class Block(enum.StrEnum):
    """A part of a layer with a residual connection of its own."""

    ATTENTION = "attention"
    WINDOW_ATTENTION = "window_attention"
    MLA = "mla"
    LINEAR_ATTENTION = "linear_attention"
    MAMBA = "mamba"
    MLP = "mlp"
    MOE = "moe"


_LETTERS = {"M": Block.MAMBA, "*": Block.ATTENTION, "-": Block.MLP, "E": Block.MOE, "G": Block.LINEAR_ATTENTION, "D": Block.MLA}


def layer_blocks(shape: ModelShape) -> tuple[tuple[Block, ...], ...]:
    """Return the blocks of each decoder layer, [num_layers].

    Source: Megatron-Core gpt_layer_specs.py and hybrid layer allocation @ 0.16.1 (letters M, *, -, E; one letter is one layer
    with its own norm); linear attention every N-th layer is full attention (transformer_config.py linear_attention_freq);
    `window_attn_skip_freq` as in is_layer_window_attention.
    Evidence: enforced-upstream.
    """
    letters = _letters(shape, shape.hybrid_layer_pattern.partition("/")[0])
    if letters:
        return tuple((block,) for block in letters)
    moe = shape.moe_layer_pattern or (False,) * shape.num_layers
    return tuple((_mixer(shape, index), Block.MOE if moe[index] else Block.MLP) for index in range(shape.num_layers))


def mtp_blocks(shape: ModelShape) -> tuple[Block, ...]:
    """Return the blocks of one multi-token-prediction depth: full attention with experts where the model has them; hybrid
    models name theirs behind a slash.

    Source: Megatron-Core multi_token_prediction.py @ 0.16.1; `mtp_hybrid_override_pattern` of the Nemotron 3 configurations
    is `*E`. Evidence: published.
    """
    tail = _letters(shape, shape.hybrid_layer_pattern.partition("/")[2].partition("/")[0])
    if tail:
        return tail
    return (_full_attention(shape), Block.MOE if shape.is_moe else Block.MLP)


def _letters(shape: ModelShape, pattern: str) -> tuple[Block, ...]:
    blocks = [_LETTERS[letter] for letter in pattern if letter in _LETTERS]
    return tuple(_full_attention(shape) if block is Block.ATTENTION else block for block in blocks)


def _full_attention(shape: ModelShape) -> Block:
    return Block.MLA if shape.multi_latent_attention else Block.ATTENTION


def _mixer(shape: ModelShape, index: int) -> Block:
    frequency = shape.linear_attention_freq
    if frequency is not None and shape.linear_num_value_heads:
        linear = (index + 1) % frequency != 0 if isinstance(frequency, int) else bool(frequency[index])
        if linear:
            return Block.LINEAR_ATTENTION
    if shape.multi_latent_attention:
        return Block.MLA
    if shape.window_size is not None and _is_windowed(shape.window_attn_skip_freq, index):
        return Block.WINDOW_ATTENTION
    return Block.ATTENTION


def _is_windowed(frequency: int | Sequence[int] | None, index: int) -> bool:
    if frequency is None:
        return True
    if isinstance(frequency, int):
        return (index + 1) % frequency != 0
    return bool(frequency[index]) if index < len(frequency) else True


def mamba_sizes(shape: ModelShape) -> tuple[int, int]:
    """Return (inner width, width of the B and C projections together) of a Mamba block; upstream's defaults where unset."""
    head_dim = shape.mamba_head_dim or 64
    inner = (shape.mamba_num_heads or 2 * shape.hidden_size // head_dim) * head_dim
    return inner, 2 * (shape.mamba_num_groups or 8) * (shape.mamba_state_dim or 128)


def linear_attention_sizes(shape: ModelShape) -> tuple[int, int]:
    """Return (key width, value width) of a gated delta-rule block."""
    keys = (shape.linear_num_key_heads or 0) * (shape.linear_key_head_dim or 0)
    values = (shape.linear_num_value_heads or 0) * (shape.linear_value_head_dim or 0)
    return keys, values


def expert_width(shape: ModelShape) -> int:
    """Return the width of the tokens that experts see: the latent size where one is set, else hidden."""
    return shape.moe_latent_size or shape.hidden_size


def expert_size(shape: ModelShape) -> int:
    """Return the feed-forward width of one expert."""
    return shape.moe_ffn_hidden_size or shape.ffn_hidden_size


def padded_vocab(shape: ModelShape, tp: int) -> int:
    """Return the vocabulary padded to a multiple of `make_vocab_size_divisible_by` x TP.

    Source: Megatron-LM megatron/training/tokenizer (vocab_size_with_padding). Evidence: enforced-upstream.
    """
    multiple = shape.make_vocab_size_divisible_by * tp
    return -(-shape.vocab_size // multiple) * multiple
