import dataclasses

import pytest

from autorecipe.config.views import view_model
from autorecipe.engine.loop.flops import count_step_flops
from autorecipe.schema.run import RunConfig

LLAMA = {
    "model.num_layers": 16,
    "model.hidden_size": 2048,
    "model.num_attention_heads": 32,
    "model.num_query_groups": 8,
    "model.ffn_hidden_size": 8192,
    "model.gated_linear_unit": True,
    "model.vocab_size": 128256,
    "dataset.seq_length": 4096,
}


def test_throughput_of_a_measured_run_is_reproduced() -> None:
    """Megatron-LM logged 2060.6 ms per step of 8 x 4096 tokens as 130.7 TFLOP/s, and 101.5 at 2653.9 ms."""
    flops = count_step_flops(view_model(RunConfig(values=LLAMA)), samples=8, padded_vocab_size=128256)
    assert flops / 2.0606 / 1e12 == pytest.approx(130.7, abs=0.05)
    assert flops / 2.6539 / 1e12 == pytest.approx(101.5, abs=0.05)


def test_routed_experts_count_by_their_top_k() -> None:
    dense = view_model(RunConfig(values=LLAMA))
    mixture = view_model(
        RunConfig(values={**LLAMA, "model.num_moe_experts": 8, "model.moe_router_topk": 2, "model.moe_ffn_hidden_size": 4096})
    )
    shared = dataclasses.replace(mixture, moe_shared_expert_intermediate_size=8192)
    sizes = {"samples": 8, "padded_vocab_size": 128256}
    assert count_step_flops(mixture, **sizes) == count_step_flops(dense, **sizes)
    extra = 6.0 * 8 * 4096 * 16 * 3 * 2048 * 8192
    assert count_step_flops(shared, **sizes) - count_step_flops(mixture, **sizes) == pytest.approx(extra)
