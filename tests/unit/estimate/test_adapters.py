"""Parameters of adapters; what the engine builds is held to them by tests/e2e/test_smoke_runs.py."""

import dataclasses

from autorecipe.estimate.adapters import adapter_parameters, adapter_targets
from autorecipe.schema.blocks import Block
from autorecipe.schema.estimate import Adapters

from .shapes import DEEPSEEK_V3

NARROW = dataclasses.replace(
    DEEPSEEK_V3,
    hidden_size=128,
    num_attention_heads=4,
    q_lora_rank=None,
    kv_lora_rank=32,
    qk_head_dim=32,
    qk_pos_emb_head_dim=16,
    v_head_dim=32,
    num_moe_experts=4,
    moe_ffn_hidden_size=96,
    moe_shared_expert_intermediate_size=96,
)
FEED_FORWARD = Adapters(rank=32, targets=frozenset({"linear_fc1", "linear_fc2"}))


def test_shared_experts_have_adapters_of_their_own() -> None:
    one = 32 * (128 + 2 * 96 + 96 + 128)
    assert adapter_parameters(NARROW, Block.MOE, FEED_FORWARD, tp=1, ep=1, etp=1) == (one, one)
    split = 32 * (128 + 96 + 48 + 128)
    assert adapter_parameters(NARROW, Block.MOE, FEED_FORWARD, tp=2, ep=1, etp=1) == (split, one)
    each = dataclasses.replace(FEED_FORWARD, shares_experts=False)
    assert adapter_parameters(NARROW, Block.MOE, each, tp=1, ep=2, etp=1) == (one, 2 * one)


def test_every_projection_of_latent_attention_can_have_one() -> None:
    every = frozenset(target.name for target in adapter_targets(NARROW, Block.MLA))
    assert every == {"linear_q_proj", "linear_kv_down_proj", "linear_kv_up_proj", "linear_proj"}
    sizes = (128 + 4 * 48) + (128 + 48) + (32 + 4 * 64) + (4 * 32 + 128)
    assert adapter_parameters(NARROW, Block.MLA, Adapters(rank=8, targets=every), tp=1, ep=1, etp=1) == (8 * sizes, 0)
    compressed = dataclasses.replace(NARROW, q_lora_rank=48)
    assert {"linear_q_down_proj", "linear_q_up_proj"} < {target.name for target in adapter_targets(compressed, Block.MLA)}
