"""Trainable parameters of low-rank adapters on a frozen model."""

from __future__ import annotations

from autorecipe.schema.blocks import Block, expert_width, linear_attention_sizes, mamba_sizes
from autorecipe.schema.estimate import Adapters
from autorecipe.schema.model import ModelShape


def adapter_parameters(shape: ModelShape, block: Block, adapters: Adapters, *, tp: int, etp: int) -> tuple[float, float]:
    """Return (dense, expert) adapter parameters of one block on one rank.

    Formula: rank x (in + out) for each target, the side that is parallel divided by TP; DoRA adds one magnitude per output.
    Experts of a rank share one adapter per product.
    Source: Hu et al. 2021 (arXiv 2106.09685); adapter placement as in Megatron Bridge peft/utils.py @ 0.6.2. Evidence: derived.
    """
    rank = adapters.rank
    dense = expert = 0.0
    for name, parallel_in, width_in, width_out in adapter_targets(shape, block):
        if name not in adapters.targets:
            continue
        is_expert = block is Block.MOE
        size = etp if is_expert else tp
        amount = rank * (width_in / (size if parallel_in else 1) + width_out / (1 if parallel_in else size))
        if adapters.dora:
            amount += width_out / (1 if parallel_in else size)
        if is_expert:
            expert += amount
        else:
            dense += amount
    return dense, expert


def adapter_targets(shape: ModelShape, block: Block) -> tuple[tuple[str, bool, int, int], ...]:
    """Return (module, whether its input is the parallel side, width in, width out) of the linear layers of a block."""
    h = shape.hidden_size
    gates = 2 if shape.gated_linear_unit else 1
    if block in (Block.ATTENTION, Block.WINDOW_ATTENTION):
        q, kv = shape.num_attention_heads * shape.kv_channels, shape.num_query_groups * shape.kv_channels
        return (("linear_qkv", False, h, q + 2 * kv), ("linear_proj", True, q, h))
    if block is Block.MLA:
        heads = shape.num_attention_heads
        query = heads * ((shape.qk_head_dim or 128) + (shape.qk_pos_emb_head_dim or 64))
        return (
            ("linear_q_proj" if not shape.q_lora_rank else "linear_q_up_proj", False, shape.q_lora_rank or h, query),
            ("linear_proj", True, heads * (shape.v_head_dim or 128), h),
        )
    if block is Block.MAMBA:
        inner, groups = mamba_sizes(shape)
        return (("in_proj", False, h, 2 * inner + groups), ("out_proj", True, inner, h))
    if block is Block.LINEAR_ATTENTION:
        keys, values = linear_attention_sizes(shape)
        return (("in_proj", False, h, 2 * keys + 2 * values), ("out_proj", True, values, h))
    if block is Block.MOE:
        f, width = shape.moe_ffn_hidden_size or shape.ffn_hidden_size, expert_width(shape)
        return (("linear_fc1", False, width, gates * f), ("linear_fc2", True, f, width))
    return (("linear_fc1", False, h, gates * shape.ffn_hidden_size), ("linear_fc2", True, shape.ffn_hidden_size, h))
