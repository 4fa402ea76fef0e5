"""How many parameters a model has: by block and by how a block is sharded, in all, and active per token.

Legend: h hidden, q heads x channels, kv groups x channels, f feed-forward, E experts, k experts per token, V vocabulary.
Leaves out: vision and audio towers, adapters, and the padding of the vocabulary (a matter of the layout).
Start reading at `block_parameters` and `count_parameters`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from autorecipe.record import dataclass
from autorecipe.schema.blocks import (
    Block,
    expert_size,
    expert_width,
    layer_blocks,
    linear_attention_sizes,
    mamba_sizes,
    mtp_blocks,
)
from autorecipe.schema.model import ModelShape

MAMBA_CONVOLUTION = 4
"""Width of a Mamba block's convolution (Megatron-Core ssm/mamba_mixer.py, d_conv)."""

FEED_FORWARD = (Block.MLP, Block.MOE)


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


@dataclass(frozen=True, kw_only=True)
class ParameterCount:
    """Parameters of one model.

    Attributes:
        total: all of them, multi-token prediction included.
        active: those that one token passes through; the embedding table counts, as in published figures.
        embedding: embedding table, and the output layer where it is not shared.
        experts: routed experts alone.
        multi_token_prediction: extra layers that predict further tokens.
        parts: by part, adding up to `total`.
    """

    total: int
    active: int
    embedding: int
    experts: int
    multi_token_prediction: int
    parts: Mapping[str, int]


def count_parameters(shape: ModelShape) -> ParameterCount:
    """Count the parameters of a decoder model.

    Formula: V h (twice where the output layer is its own) + the blocks of each layer (see `block_parameters`) + a final norm
    + multi-token-prediction layers; of E experts a token meets k.
    Source: module constructors of Megatron-Core @ 0.19.2 (attention.py, multi_latent_attention.py, mlp.py, moe/, ssm/).
    Evidence: derived.
    Error: none against 43 of 51 instantiated text models; model cards do not name the class of Gemma 2 and 3, whose
    extra norms are then not counted (0.005 %), GLM 5 lacks its sparse
    indexer (0.1 %), DeepSeek-V4 differs by 0.9 % (tests/unit/schema/test_parameters.py).
    """
    blocks = Counter(block for layer in layer_blocks(shape) for block in layer)
    sizes = {block: block_parameters(shape, block) for block in {*blocks, *(mtp_blocks(shape) if shape.mtp_num_layers else ())}}
    mixers = sum(count * sizes[block].total for block, count in blocks.items() if block not in FEED_FORWARD)
    experts = sum(count * sizes[block].expert for block, count in blocks.items())
    feed_forward = sum(count * sizes[block].total for block, count in blocks.items() if block in FEED_FORWARD) - experts
    met = min(shape.num_moe_experts or 0, shape.moe_router_topk or 0)
    active_experts = experts * met // (shape.num_moe_experts or 1)
    embedding = shape.vocab_size * shape.hidden_size
    output = 0 if shape.share_embeddings_and_output_weights else embedding
    depth = [sizes[block] for block in mtp_blocks(shape)] if shape.mtp_num_layers else []
    mtp = shape.mtp_num_layers * (multi_token_extra(shape).total + sum(size.total for size in depth))
    parts = {
        "embedding": embedding,
        "position_embedding": position_parameters(shape),
        "mixers": mixers,
        "feed_forward": feed_forward,
        "experts": experts,
        "final_norm": norm_parameters(shape),
        "output": output,
        "multi_token_prediction": mtp,
    }
    return ParameterCount(
        total=sum(parts.values()),
        active=sum(parts.values()) - mtp - experts + active_experts,
        embedding=embedding + output,
        experts=experts + shape.mtp_num_layers * sum(size.expert for size in depth),
        multi_token_prediction=mtp,
        parts={name: count for name, count in parts.items() if count},
    )


def position_parameters(shape: ModelShape) -> int:
    """Return the parameters of learned position embeddings (none for rotary ones)."""
    if shape.position_embedding_type != "learned_absolute":
        return 0
    return (shape.max_position_embeddings or shape.seq_length) * shape.hidden_size


def norm_parameters(shape: ModelShape) -> int:
    """Return the parameters of one norm over the hidden size."""
    return shape.hidden_size * _scales(shape)


def _post_norm(shape: ModelShape) -> int:
    return norm_parameters(shape) if shape.has_post_norms else 0


def _scales(shape: ModelShape) -> int:
    return 2 if shape.normalization == "LayerNorm" else 1


def block_parameters(shape: ModelShape, block: Block) -> BlockParameters:
    """Count the parameters of one block, its norm included.

    Formula: attention h (q + 2 kv) + q h; MLP (2 or 1) h f + f h; experts E times that, with router and shared expert; MLA,
    Mamba and the gated delta rule as coded.
    Source: module constructors of Megatron-Core 0.16.1 (attention.py, mlp.py, moe/, multi_latent_attention.py, ssm/).
    Evidence: derived.
    Error: none against the parameter counts of traced models (tests/unit/estimate).
    """
    if block in (Block.ATTENTION, Block.WINDOW_ATTENTION):
        return _attention(shape)
    if block is Block.MLA:
        return _latent_attention(shape)
    if block is Block.MAMBA:
        return _mamba(shape)
    if block is Block.LINEAR_ATTENTION:
        return _linear_attention(shape)
    if block is Block.MOE:
        return _moe(shape)
    return _mlp(shape)


def multi_token_extra(shape: ModelShape) -> BlockParameters:
    """Parameters that one multi-token-prediction depth adds to its layer: two norms in, one out, and the 2h x h projection.

    Source: Megatron-Core multi_token_prediction.py @ 0.16.1. Evidence: derived.
    """
    matrix = 2 * shape.hidden_size * shape.hidden_size
    return BlockParameters(sharded=matrix, replicated=3 * norm_parameters(shape), matrix=matrix)


def _attention(shape: ModelShape) -> BlockParameters:
    h = shape.hidden_size
    q, kv = shape.num_attention_heads * shape.kv_channels, shape.num_query_groups * shape.kv_channels
    qkv = q * (2 if shape.attention_output_gate else 1) + 2 * kv
    bias = qkv if shape.add_bias_linear or shape.add_qkv_bias else 0
    sinks = shape.num_attention_heads if shape.softmax_type == "learnable" else 0
    # Norms per head are on every rank; those over all heads are split with the heads.
    channel_norms = 2 * shape.kv_channels if shape.qk_layernorm and not shape.norms_all_heads else 0
    head_norms = q + kv if shape.norms_all_heads else 0
    matrix = h * qkv + q * h
    return BlockParameters(
        sharded=matrix + bias + sinks + head_norms,
        replicated=norm_parameters(shape) + _post_norm(shape) + channel_norms + (h if shape.add_bias_linear else 0),
        matrix=matrix,
    )


def _latent_attention(shape: ModelShape) -> BlockParameters:
    """Multi-latent attention: queries and keys through low-rank projections, each with its norm."""
    h, heads = shape.hidden_size, shape.num_attention_heads
    nope, rope, value = shape.qk_head_dim or 128, shape.qk_pos_emb_head_dim or 64, shape.v_head_dim or 128
    latent, query = shape.kv_lora_rank or 512, shape.q_lora_rank or 0
    up = latent * heads * (nope + value) + heads * value * h + (query or h) * heads * (nope + rope)
    down = h * (latent + rope + query)
    norms = _scales(shape) * (latent + query) if shape.qk_layernorm else 0
    return BlockParameters(sharded=up, replicated=norm_parameters(shape) + down + norms, matrix=up + down)


def _mlp(shape: ModelShape) -> BlockParameters:
    h, f = shape.hidden_size, shape.ffn_hidden_size
    gates = 2 if shape.gated_linear_unit else 1
    matrix = (gates + 1) * h * f
    bias = shape.add_bias_linear
    return BlockParameters(
        sharded=matrix + (gates * f if bias else 0),
        replicated=norm_parameters(shape) + _post_norm(shape) + (h if bias else 0),
        matrix=matrix,
    )


def _moe(shape: ModelShape) -> BlockParameters:
    h, width = shape.hidden_size, expert_width(shape)
    experts, f = shape.num_moe_experts or 0, expert_size(shape)
    gates = 2 if shape.gated_linear_unit else 1
    expert = experts * (gates + 1) * width * f
    bias = shape.add_bias_linear
    shared_width = shape.moe_shared_expert_intermediate_size or 0
    shared = (gates + 1) * h * shared_width
    latent = 2 * h * width if shape.moe_latent_size else 0
    router = h * experts + (experts if bias else 0)
    gate = h if shared_width and shape.moe_shared_expert_gate else 0
    return BlockParameters(
        sharded=shared,
        replicated=norm_parameters(shape) + router + gate + latent,
        expert=expert + (experts * (gates * f + width) if bias else 0),
        matrix=expert + shared + latent,
    )


def _mamba(shape: ModelShape) -> BlockParameters:
    """Mamba 2: input projection (gate, x, B, C, dt), convolution with bias, A, D, dt bias, gated norm, output projection."""
    h = shape.hidden_size
    inner, groups = mamba_sizes(shape)
    heads = inner // (shape.mamba_head_dim or 64)
    convolution = (inner + groups) * (MAMBA_CONVOLUTION + 1)
    matrix = h * (2 * inner + groups + heads) + inner * h
    return BlockParameters(sharded=matrix + convolution + 3 * heads + inner, replicated=norm_parameters(shape), matrix=matrix)


def _linear_attention(shape: ModelShape) -> BlockParameters:
    """Gated delta rule: query, key, value and gate projections, beta and alpha, convolution, norm per head, output."""
    h = shape.hidden_size
    keys, values = linear_attention_sizes(shape)
    heads = shape.linear_num_value_heads or 0
    convolution = (2 * keys + values) * (shape.linear_conv_kernel_dim or 4)
    matrix = h * (2 * keys + 2 * values + 2 * heads) + values * h
    return BlockParameters(
        sharded=matrix + convolution + 2 * heads,
        replicated=norm_parameters(shape) + (shape.linear_value_head_dim or 0),
        matrix=matrix,
    )
