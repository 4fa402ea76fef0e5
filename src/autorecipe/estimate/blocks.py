"""Layers as blocks: the mixer and the feed-forward part of each layer, and the parameters that one rank holds of each.

Shape legend: h hidden, q heads x channels, kv groups x channels, f feed-forward, E experts, V padded vocabulary.
Leaves out: vision and audio towers, adapters of upstream's rarer variants.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from autorecipe.record import dataclass
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


@dataclass(frozen=True)
class BlockParameters:
    """Parameters of one block: `sharded` over TP, `replicated` on every TP rank, `expert` over EP and ETP.

    `matrix` are those of linear layers (stored in 8 bits where weights are quantized), experts included.
    """

    sharded: int = 0
    replicated: int = 0
    expert: int = 0
    matrix: int = 0

    @property
    def total(self) -> int:
        """All parameters of the block, unsharded."""
        return self.sharded + self.replicated + self.expert


_LETTERS = {"M": Block.MAMBA, "*": Block.ATTENTION, "-": Block.MLP, "E": Block.MOE, "G": Block.LINEAR_ATTENTION, "D": Block.MLA}


def layer_blocks(shape: ModelShape) -> tuple[tuple[Block, ...], ...]:
    """Return the blocks of each decoder layer, [num_layers].

    Source: Megatron-Core gpt_layer_specs.py and hybrid layer allocation @ 0.16.1 (letters M, *, -, E); linear attention every
    N-th layer is full attention (transformer_config.py linear_attention_freq); `window_attn_skip_freq` as in
    is_layer_window_attention.
    Evidence: enforced-upstream.
    """
    if shape.hybrid_layer_pattern:
        letters = [letter for letter in shape.hybrid_layer_pattern.split("/")[0] if letter in _LETTERS]
        if letters:
            attention = Block.MLA if shape.multi_latent_attention else Block.ATTENTION
            return tuple((attention if letter == "*" else _LETTERS[letter],) for letter in letters)
    moe = shape.moe_layer_pattern or (False,) * shape.num_layers
    return tuple((_mixer(shape, index), Block.MOE if moe[index] else Block.MLP) for index in range(shape.num_layers))


def mtp_blocks(shape: ModelShape, layers: tuple[tuple[Block, ...], ...]) -> tuple[Block, ...]:
    """Return the blocks of one multi-token-prediction depth: those of the last layer, or attention and experts in hybrid
    models.

    Source: Megatron-Core multi_token_prediction.py @ 0.16.1; `mtp_hybrid_override_pattern` of the Nemotron 3 configurations
    is `*E`.
    Evidence: published.
    """
    if not layers:
        return ()
    if len(layers[-1]) > 1:
        return layers[-1]
    kinds = {block for layer in layers for block in layer}
    return (Block.ATTENTION, Block.MOE if Block.MOE in kinds else Block.MLP)


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


def padded_vocab(shape: ModelShape, tp: int) -> int:
    """Return the vocabulary padded to a multiple of `make_vocab_size_divisible_by` x TP.

    Source: Megatron-LM megatron/training/tokenizer (vocab_size_with_padding). Evidence: enforced-upstream.
    """
    multiple = shape.make_vocab_size_divisible_by * tp
    return -(-shape.vocab_size // multiple) * multiple


def block_parameters(shape: ModelShape, block: Block) -> BlockParameters:
    """Count the parameters of one block, its norm included.

    Formula: attention h (q + 2 kv) + q h; MLP (2 or 1) h f + f h; experts E times that; MLA, Mamba and the gated delta rule
    as coded.
    Source: module constructors of Megatron-Core 0.16.1 (attention.py, mlp.py, moe/, multi_latent_attention.py, ssm/).
    Evidence: derived.
    Error: none against the parameter counts of traced models (tests/unit/estimate).
    """
    norm = shape.hidden_size * (2 if shape.normalization == "LayerNorm" else 1)
    if block in (Block.ATTENTION, Block.WINDOW_ATTENTION):
        return _attention(shape, norm)
    if block is Block.MLA:
        return _mla(shape, norm)
    if block is Block.MAMBA:
        return _mamba(shape, norm)
    if block is Block.LINEAR_ATTENTION:
        return _linear_attention(shape, norm)
    if block is Block.MOE:
        return _moe(shape, norm)
    return _mlp(shape, norm)


def _attention(shape: ModelShape, norm: int) -> BlockParameters:
    h = shape.hidden_size
    q, kv = shape.num_attention_heads * shape.kv_channels, shape.num_query_groups * shape.kv_channels
    qkv = q * (2 if shape.attention_output_gate else 1) + 2 * kv
    bias = qkv if shape.add_bias_linear or shape.add_qkv_bias else 0
    replicated = norm + (2 * shape.kv_channels if shape.qk_layernorm else 0) + (h if shape.add_bias_linear else 0)
    matrix = h * qkv + q * h
    return BlockParameters(sharded=matrix + bias, replicated=replicated, matrix=matrix)


def _mla(shape: ModelShape, norm: int) -> BlockParameters:
    h, heads = shape.hidden_size, shape.num_attention_heads
    nope, rope, value = shape.qk_head_dim or 128, shape.qk_pos_emb_head_dim or 64, shape.v_head_dim or 128
    latent = shape.kv_lora_rank or 512
    up = latent * heads * (nope + value) + heads * value * h
    scale = 2 if shape.normalization == "LayerNorm" else 1
    replicated = norm + h * (latent + rope) + (scale * latent if shape.qk_layernorm else 0)
    down = h * (latent + rope)
    if shape.q_lora_rank:
        up += shape.q_lora_rank * heads * (nope + rope)
        replicated += h * shape.q_lora_rank + (scale * shape.q_lora_rank if shape.qk_layernorm else 0)
        down += h * shape.q_lora_rank
    else:
        up += h * heads * (nope + rope)
    return BlockParameters(sharded=up, replicated=replicated, matrix=up + down)


def _mlp(shape: ModelShape, norm: int) -> BlockParameters:
    h, f = shape.hidden_size, shape.ffn_hidden_size
    gates = 2 if shape.gated_linear_unit else 1
    matrix = (gates + 1) * h * f
    bias = gates * f if shape.add_bias_linear else 0
    return BlockParameters(
        sharded=matrix + bias,
        replicated=norm + (h if shape.add_bias_linear else 0),
        matrix=matrix,
    )


def _moe(shape: ModelShape, norm: int) -> BlockParameters:
    h, width = shape.hidden_size, expert_width(shape)
    experts, f = shape.num_moe_experts or 0, shape.moe_ffn_hidden_size or shape.ffn_hidden_size
    gates = 2 if shape.gated_linear_unit else 1
    expert = experts * (gates + 1) * width * f
    bias = experts * (gates * f + width) if shape.add_bias_linear else 0
    shared = (gates + 1) * h * (shape.moe_shared_expert_intermediate_size or 0)
    replicated = norm + h * experts + (h if shape.moe_shared_expert_gate else 0)
    latent = 2 * h * width if shape.moe_latent_size else 0
    return BlockParameters(
        sharded=shared,
        replicated=replicated + latent,
        expert=expert + bias,
        matrix=expert + shared + latent,
    )


def _mamba(shape: ModelShape, norm: int) -> BlockParameters:
    h = shape.hidden_size
    inner, groups = mamba_sizes(shape)
    heads = inner // (shape.mamba_head_dim or 64)
    project = h * (2 * inner + groups + heads)
    convolution = (inner + groups) * 5
    matrix = project + inner * h
    return BlockParameters(sharded=matrix + convolution + 3 * heads + inner, replicated=norm, matrix=matrix)


def _linear_attention(shape: ModelShape, norm: int) -> BlockParameters:
    h = shape.hidden_size
    keys, values = linear_attention_sizes(shape)
    heads = shape.linear_num_value_heads or 0
    project = h * (2 * keys + 2 * values + 2 * heads)
    convolution = (2 * keys + values) * (shape.linear_conv_kernel_dim or 4)
    matrix = project + values * h
    return BlockParameters(
        sharded=matrix + convolution + 2 * heads,
        replicated=norm + (shape.linear_value_head_dim or 0),
        matrix=matrix,
    )


def multi_token_extra(shape: ModelShape) -> BlockParameters:
    """Parameters that one multi-token-prediction depth adds to its layer: two norms in, one out, and the 2h x h projection.

    Source: Megatron-Core multi_token_prediction.py @ 0.16.1. Evidence: derived.
    """
    h = shape.hidden_size
    norm = h * (2 if shape.normalization == "LayerNorm" else 1)
    return BlockParameters(sharded=2 * h * h, replicated=3 * norm, matrix=2 * h * h)
