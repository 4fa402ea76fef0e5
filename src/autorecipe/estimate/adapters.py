"""Trainable parameters of low-rank adapters on a frozen model."""

from __future__ import annotations

from autorecipe.estimate.tokens import Tokens
from autorecipe.record import dataclass
from autorecipe.schema.blocks import Block, expert_width, linear_attention_sizes, mamba_sizes
from autorecipe.schema.estimate import Adapters
from autorecipe.schema.model import ModelShape


@dataclass(frozen=True)
class Target:
    """A linear layer that may have an adapter.

    Attributes:
        name: of the module.
        inputs: width in, over all ranks.
        outputs: width out, over all ranks.
        split: side that tensor-parallel ranks share, `in` or `out`; empty where each holds the whole layer.
        routed: whether it is a layer of experts, whose ranks are ETP and EP.
    """

    name: str
    inputs: int
    outputs: int
    split: str = ""
    routed: bool = False

    def local(self, *, tp: int, etp: int) -> tuple[float, float]:
        """Return (width in, width out) on one rank."""
        size = etp if self.routed else tp
        return self.inputs / (size if self.split == "in" else 1), self.outputs / (size if self.split == "out" else 1)


def adapter_parameters(shape: ModelShape, block: Block, adapters: Adapters, *, tp: int, ep: int, etp: int) -> tuple[float, float]:
    """Return (dense, expert) adapter parameters of one block on one rank.

    Formula: rank x (in + out) for each target, the side that is parallel divided by TP; DoRA adds one magnitude per output.
    Experts of a rank share one adapter per product, or have one each.
    Source: Hu et al. 2021 (arXiv 2106.09685); adapter placement as in Megatron Bridge peft/utils.py @ 0.6.2. Evidence: derived.
    Error: none against this project's engine (every PEFT recipe of the library that it trains, shrunk, one process).
    """
    dense = expert = 0.0
    experts = 1.0 if adapters.shares_experts else (shape.num_moe_experts or 1) / ep
    for target in adapter_targets(shape, block):
        if target.name not in adapters.targets:
            continue
        inputs, outputs = target.local(tp=tp, etp=etp)
        amount = adapters.rank * (inputs + outputs) + (outputs if adapters.dora else 0.0)
        if target.routed:
            expert += experts * amount
        else:
            dense += amount
    return dense, expert


def dora_bytes(shape: ModelShape, block: Block, tokens: Tokens, adapters: Adapters, *, routed: float) -> tuple[float, float]:
    """Return (bytes that DoRA saves beside LoRA, bytes while a norm is taken) of one block for one micro batch.

    Formula: the output of each target before it is scaled, in 16 bits, for the gradient of the magnitude; the norms of the
    largest target's weight take three copies of it in 32 bits.
    Source: Liu et al. 2024 (arXiv 2402.09353), equation 5; engine/adapters/layers.py. Evidence: derived; checked by the trace
    and on one H200.

    Args:
        shape: the model.
        block: kind of block.
        tokens: token counts.
        adapters: the adapters.
        routed: tokens that reach the rank's experts.
    """
    saved = norms = 0.0
    for target in adapter_targets(shape, block):
        if target.name not in adapters.targets:
            continue
        inputs, outputs = target.local(tp=tokens.tp, etp=tokens.etp)
        rows = routed if target.routed else tokens.inside if target.split == "out" else tokens.outside
        saved += 2.0 * rows * outputs
        norms = max(norms, 12.0 * inputs * outputs)
    return saved, norms


def adapter_targets(shape: ModelShape, block: Block) -> tuple[Target, ...]:
    """Return the linear layers of a block."""
    h = shape.hidden_size
    gates = 2 if shape.gated_linear_unit else 1
    if block in (Block.ATTENTION, Block.WINDOW_ATTENTION):
        q, kv = shape.num_attention_heads * shape.kv_channels, shape.num_query_groups * shape.kv_channels
        return (Target("linear_qkv", h, q + 2 * kv, "out"), Target("linear_proj", q, h, "in"))
    if block is Block.MLA:
        return _latent_targets(shape)
    if block is Block.MAMBA:
        inner, groups = mamba_sizes(shape)
        return (Target("in_proj", h, 2 * inner + groups, "out"), Target("out_proj", inner, h, "in"))
    if block is Block.LINEAR_ATTENTION:
        keys, values = linear_attention_sizes(shape)
        return (Target("in_proj", h, 2 * keys + 2 * values, "out"), Target("out_proj", values, h, "in"))
    if block is Block.MOE:
        f, width = shape.moe_ffn_hidden_size or shape.ffn_hidden_size, expert_width(shape)
        routed = (
            Target("linear_fc1", width, gates * f, "out", routed=True),
            Target("linear_fc2", f, width, "in", routed=True),
        )
        shared = shape.moe_shared_expert_intermediate_size
        return (*routed, *_feed_forward(h, gates, shared)) if shared else routed
    return _feed_forward(h, gates, shape.ffn_hidden_size)


def _feed_forward(hidden: int, gates: int, width: int) -> tuple[Target, Target]:
    return Target("linear_fc1", hidden, gates * width, "out"), Target("linear_fc2", width, hidden, "in")


def _latent_targets(shape: ModelShape) -> tuple[Target, ...]:
    """Down projections are whole on every rank, up projections split by heads."""
    h, heads = shape.hidden_size, shape.num_attention_heads
    plain, rotary, value = shape.qk_head_dim or 128, shape.qk_pos_emb_head_dim or 64, shape.v_head_dim or 128
    latent, compressed = shape.kv_lora_rank or 512, shape.q_lora_rank
    query = heads * (plain + rotary)
    queries = (
        (Target("linear_q_down_proj", h, compressed), Target("linear_q_up_proj", compressed, query, "out"))
        if compressed
        else (Target("linear_q_proj", h, query, "out"),)
    )
    return (
        *queries,
        Target("linear_kv_down_proj", h, latent + rotary),
        Target("linear_kv_up_proj", latent, heads * (plain + value), "out"),
        Target("linear_proj", heads * value, h, "in"),
    )
