"""Floating-point operations of a token, by each formula in use, and of each block as the time estimate needs them.

Shape legend: h hidden, q = heads x channels, S sequence, f feed-forward, E experts, k top-k, V padded vocabulary. One
multiply-add is two.
"""

from __future__ import annotations

from autorecipe.record import dataclass
from autorecipe.schema.blocks import (
    Block,
    expert_width,
    layer_blocks,
    linear_attention_sizes,
    mamba_sizes,
    mtp_blocks,
    padded_vocab,
)
from autorecipe.schema.estimate import FlopFormula
from autorecipe.schema.model import ModelShape
from autorecipe.schema.parameters import block_parameters


@dataclass(frozen=True)
class BlockFlops:
    """Forward FLOPs of one block for one token: `dense` products, `expert` products, `attention` score products, `scan` the
    rest.
    """

    dense: float = 0.0
    expert: float = 0.0
    attention: float = 0.0
    scan: float = 0.0

    @property
    def total(self) -> float:
        """All forward FLOPs."""
        return self.dense + self.expert + self.attention + self.scan


def attended_tokens(shape: ModelShape, block: Block, sequence: int, *, causal: bool = True) -> float:
    """Return how many keys a query meets on average: half of the sequence, the window, or (not causal) the whole."""
    whole = float(sequence)
    if shape.experimental_attention_variant in ("dsa", "dsv4_hybrid") and causal:
        whole = min(whole, 2.0 * SPARSE_ATTENTION_KEYS)
    if block is Block.WINDOW_ATTENTION and shape.window_size is not None:
        window = shape.window_size[0] + 1
        if 0 < window < sequence:
            return window - window * window / (2.0 * sequence) if causal else float(window)
    return whole / 2 if causal else whole


def block_flops(shape: ModelShape, block: Block, sequence: int, *, causal: bool = True) -> BlockFlops:
    """Count the forward FLOPs of one block for one token.

    Formula: 2 x weights of each product that the token meets (k experts of E), 4 x q x attended tokens for scores and values,
    7 x inner x state for a Mamba scan, and 6 x value heads x key size x value size for the gated delta rule.
    Source: Megatron-LM megatron/training/training.py num_floating_point_operations @ 2026-08-22. Evidence: enforced-upstream.
    Error: within 1% of the printed TFLOP/s over tokens/s of the models in data/calibration (bench/estimators.py).
    """
    h = shape.hidden_size
    if block in (Block.ATTENTION, Block.WINDOW_ATTENTION):
        q = shape.num_attention_heads * shape.kv_channels
        kv = shape.num_query_groups * shape.kv_channels
        dense = 2.0 * h * (q * (2 if shape.attention_output_gate else 1) + 2 * kv + q)
        return BlockFlops(dense=dense, attention=4.0 * q * attended_tokens(shape, block, sequence, causal=causal))
    if block is Block.MLA:
        heads = shape.num_attention_heads
        key, value = (shape.qk_head_dim or 128) + (shape.qk_pos_emb_head_dim or 64), shape.v_head_dim or 128
        met = attended_tokens(shape, block, sequence, causal=causal)
        return BlockFlops(dense=2.0 * block_parameters(shape, block).matrix, attention=2.0 * heads * (key + value) * met)
    if block is Block.MAMBA:
        inner, _ = mamba_sizes(shape)
        return BlockFlops(dense=2.0 * block_parameters(shape, block).matrix, scan=7.0 * inner * (shape.mamba_state_dim or 128))
    if block is Block.LINEAR_ATTENTION:
        _, values = linear_attention_sizes(shape)
        return BlockFlops(
            dense=2.0 * block_parameters(shape, block).matrix,
            scan=6.0 * values * (shape.linear_key_head_dim or 128),
        )
    gates = 2 if shape.gated_linear_unit else 1
    if block is Block.MLP:
        return BlockFlops(dense=2.0 * (gates + 1) * h * shape.ffn_hidden_size)
    width, f = expert_width(shape), shape.moe_ffn_hidden_size or shape.ffn_hidden_size
    expert = 2.0 * (gates + 1) * width * f * (shape.moe_router_topk or 1)
    shared = 2.0 * (gates + 1) * h * (shape.moe_shared_expert_intermediate_size or 0)
    latent = 4.0 * h * width if shape.moe_latent_size else 0.0
    return BlockFlops(dense=shared + latent + 2.0 * h * (shape.num_moe_experts or 1), expert=expert)


SPARSE_ATTENTION_KEYS = 2048
"""Keys that a query of DeepSeek sparse attention meets at most (its index top-k). Source: DeepSeek-V3.2 report. Evidence:
published."""


def _logged_mamba(shape: ModelShape) -> float:
    """Forward FLOPs of a Mamba block as upstream logs them: with an inner width of 2 h, whatever the model's is."""
    inner = 2 * shape.hidden_size
    heads = shape.mamba_num_heads or inner // (shape.mamba_head_dim or 64)
    state, groups = shape.mamba_state_dim or 128, shape.mamba_num_groups or 8
    return 2.0 * shape.hidden_size * (3 * inner + 2 * groups * state + heads) + 7.0 * inner * state


def model_flops_per_token(
    shape: ModelShape, *, sequence: int, formula: FlopFormula = FlopFormula.MEGATRON, frozen: bool = False
) -> float:
    """Count the model FLOPs of one trained token; recomputation is never counted.

    Formula: 3 x forward (2 x for a frozen base: no weight gradients), plus the output layer 2 h V; SIX_N: 6 x parameters met
    by a token without the embedding table.
    Source: Megatron-LM num_floating_point_operations @ 2026-08-22 (MEGATRON), its form before 2025 and NeMo 2.0's
    (FULL_ATTENTION), Kaplan
    et al. 2020 (SIX_N). Evidence: enforced-upstream.
    """
    causal = formula is not FlopFormula.FULL_ATTENTION
    vocabulary = 2.0 * shape.hidden_size * padded_vocab(shape, 1)
    layers = layer_blocks(shape)
    by_block: dict[Block, int] = {}
    for layer in layers:
        for block in layer:
            by_block[block] = by_block.get(block, 0) + 1
    if formula is FlopFormula.SIX_N:
        active = sum(n * (f.dense + f.expert) for b, n in by_block.items() for f in (block_flops(shape, b, sequence),))
        return 3.0 * (active + vocabulary)
    forward = sum(n * block_flops(shape, b, sequence, causal=causal).total for b, n in by_block.items()) + vocabulary
    if Block.MAMBA in by_block:
        forward += by_block[Block.MAMBA] * (_logged_mamba(shape) - block_flops(shape, Block.MAMBA, sequence).total)
    if shape.mtp_num_layers and layers:
        depth = sum(block_flops(shape, block, sequence, causal=causal).total for block in mtp_blocks(shape))
        forward += shape.mtp_num_layers * (depth + vocabulary + 4.0 * shape.hidden_size**2)
    return (2.0 if frozen else 3.0) * forward
