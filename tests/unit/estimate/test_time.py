import dataclasses
import math

import pytest

from autorecipe.catalog.hardware import load_gpus
from autorecipe.estimate.budget import estimate_budget
from autorecipe.estimate.coefficients import Coefficients, coefficients_from, load_coefficients
from autorecipe.estimate.flops import model_flops_per_token
from autorecipe.estimate.time import TimeModel, estimate_time
from autorecipe.schema import Batch, Layout
from autorecipe.schema.estimate import Adapters, ExecutionPolicy, FlopFormula, Precision, Recompute, Sharding

from .shapes import DEEPSEEK_V3, LLAMA3_8B, QWEN3_30B, QWEN3_235B

GPUS = load_gpus()
BATCH = Batch(global_batch_size=128, micro_batch_size=1, seq_length=8192)
TUNED = ExecutionPolicy(overlap_grad_reduce=True, overlap_param_gather=True, cross_entropy="te")


def estimate(shape=LLAMA3_8B, *, gpu="h100", world=8, layout=None, batch=BATCH, policy=TUNED, **rest):
    return estimate_time(
        shape, layout=layout or Layout(cp=2), batch=batch, policy=policy, gpu=GPUS[gpu], world_size=world, **rest
    )


@pytest.mark.parametrize(
    ("shape", "sequence", "formula", "gflop"),
    [
        (LLAMA3_8B, 8192, FlopFormula.MEGATRON, 51.48),
        (LLAMA3_8B, 8192, FlopFormula.FULL_ATTENTION, 57.91),
        (QWEN3_30B, 4096, FlopFormula.MEGATRON, 23.01),
        (QWEN3_235B, 4096, FlopFormula.MEGATRON, 148.0),
        (DEEPSEEK_V3, 4096, FlopFormula.MEGATRON, 249.7),
    ],
)
def test_flops_of_a_token_match_published_ratios_of_tflops_to_tokens(shape, sequence, formula, gflop):
    assert model_flops_per_token(shape, sequence=sequence, formula=formula) / 1e9 == pytest.approx(gflop, rel=0.005)


def test_six_n_counts_parameters_without_the_embedding_table():
    parameters = 8_030_261_248 - 128256 * 4096
    assert model_flops_per_token(LLAMA3_8B, sequence=8192, formula=FlopFormula.SIX_N) == pytest.approx(6 * parameters, rel=0.001)


def test_parts_add_up_to_the_step():
    time = estimate()
    assert sum(time.breakdown_seconds.values()) == pytest.approx(time.step_seconds)
    assert time.tokens_per_second_per_gpu == pytest.approx(128 * 8192 / time.step_seconds / 8)
    assert time.mfu == pytest.approx(time.tflops_per_gpu * 1e12 / GPUS["h100"].peak_flops["bf16"])
    assert 0.3 < time.mfu < 0.75


def test_the_search_form_equals_the_breakdown():
    model = TimeModel(LLAMA3_8B, policy=TUNED, gpu=GPUS["h100"])
    assert model.step_seconds(Layout(cp=2), BATCH, 8) == pytest.approx(estimate().step_seconds)


def test_interleaving_shrinks_the_bubble():
    plain = estimate(QWEN3_235B, world=128, layout=Layout(pp=8, ep=8)).bubble_fraction
    interleaved = estimate(QWEN3_235B, world=128, layout=Layout(pp=8, vp=4, ep=8)).bubble_fraction
    assert interleaved < plain / 2


def test_recomputation_costs_time():
    full = dataclasses.replace(TUNED, recompute=Recompute(granularity="full"))
    ratio = estimate(policy=full).step_seconds / estimate().step_seconds
    assert 1.15 < ratio < 1.4


def test_eight_bit_arithmetic_and_newer_gpus_are_faster():
    fp8 = dataclasses.replace(TUNED, precision=Precision.FP8)
    assert estimate(policy=fp8).step_seconds < estimate().step_seconds
    assert estimate(gpu="b200").step_seconds < estimate().step_seconds < estimate(gpu="a100").step_seconds


def test_adapters_skip_weight_gradients():
    # Published: Llama 3 8B on 8 H100 at 4,096 tokens, LoRA on the QKV projection runs 1.43 times as fast as full training.
    few = dataclasses.replace(TUNED, adapters=Adapters(targets=frozenset({"linear_qkv"})))
    every = dataclasses.replace(TUNED, adapters=Adapters())
    full = estimate().step_seconds
    assert 0.6 < estimate(policy=few).step_seconds / full < 0.8
    assert estimate(policy=few).step_seconds < estimate(policy=every).step_seconds < full


def test_packed_documents_spare_attention():
    packed = dataclasses.replace(TUNED, packed_tokens=500.0)
    assert estimate(policy=packed).breakdown_seconds["attention"] < 0.3 * estimate().breakdown_seconds["attention"]


def test_one_graph_for_the_iteration_removes_launches_and_partial_graphs_some():
    def launches(**changes):
        policy = dataclasses.replace(TUNED, precision=Precision.MXFP8, dispatcher="hybridep", **changes)
        batch = Batch(global_batch_size=512, micro_batch_size=1, seq_length=4096)
        time = estimate(QWEN3_30B, gpu="gb200", world=8, layout=Layout(ep=8), batch=batch, policy=policy)
        return time.breakdown_seconds.get("launch", 0.0)

    partial = frozenset({"attn", "moe_router", "moe_preprocess"})
    assert launches() > launches(cuda_graph="te", graph_modules=partial) > launches(cuda_graph="full") == 0.0


def test_fused_experts_and_eight_bit_attention_are_faster():
    batch = Batch(global_batch_size=512, micro_batch_size=1, seq_length=4096)
    plain = dataclasses.replace(TUNED, precision=Precision.MXFP8, dispatcher="hybridep", cuda_graph="full")

    def step(policy):
        return estimate(QWEN3_235B, gpu="gb300", world=64, layout=Layout(ep=64), batch=batch, policy=policy).step_seconds

    assert step(dataclasses.replace(plain, fused_experts=True)) < step(plain)
    assert step(dataclasses.replace(plain, fp8_attention=True)) < step(plain)


def test_an_exchange_across_nodes_costs_more_than_inside_one():
    batch = Batch(global_batch_size=512, micro_batch_size=1, seq_length=4096)
    policy = dataclasses.replace(TUNED, dispatcher="alltoall")
    inside = estimate(QWEN3_30B, world=64, layout=Layout(ep=8), batch=batch, policy=policy)
    across = estimate(QWEN3_30B, world=64, layout=Layout(ep=32), batch=batch, policy=policy)
    assert across.breakdown_seconds["ep communication"] > 2 * inside.breakdown_seconds["ep communication"]
    rack = estimate(QWEN3_30B, gpu="gb200", world=64, layout=Layout(ep=32), batch=batch, policy=policy)
    assert rack.breakdown_seconds["ep communication"] < across.breakdown_seconds["ep communication"] / 4


def test_tokens_that_reach_few_groups_cross_fewer_nodes():
    batch = Batch(global_batch_size=512, micro_batch_size=1, seq_length=4096)

    def exchange(share):
        policy = dataclasses.replace(TUNED, dispatcher="deepep", routed_share=share)
        time = estimate(QWEN3_30B, world=64, layout=Layout(ep=64), batch=batch, policy=policy)
        return time.breakdown_seconds["ep communication"]

    assert exchange(0.5) < 0.9 * exchange(1.0)


def test_full_sharding_moves_weights_for_every_micro_batch():
    sharded = dataclasses.replace(TUNED, sharding=Sharding.FULL, fsdp=True)
    time = estimate(policy=sharded, layout=Layout(), world=64)
    assert time.breakdown_seconds["dp communication"] + time.hidden_seconds["dp communication"] > 0


def test_a_budget_is_steps_times_step_time():
    time = dataclasses.replace(estimate(), interval_seconds=(1.0, 2.0), step_seconds=1.5)
    budget = estimate_budget(time, tokens=1e12, tokens_per_step=BATCH.tokens_per_step, gpus=8, price=2.0)
    assert budget.steps == math.ceil(1e12 / BATCH.tokens_per_step)
    assert budget.days == pytest.approx(budget.steps * 1.5 / 86400)
    assert budget.cost == pytest.approx(budget.gpu_hours * 2.0)
    assert budget.interval_days == pytest.approx((budget.steps / 86400, budget.steps * 2 / 86400))


def test_shipped_coefficients_are_physical():
    fitted = load_coefficients()
    parts = {"attention_forward", "attention_backward", "scan", "delta_scan", "memory", "nvlink", "network", "optimizer"}
    for field in dataclasses.fields(Coefficients):
        value = getattr(fitted, field.name)
        assert value > 0
        if (field.name.startswith("gemm_") and not field.name.endswith(("seconds", "inner"))) or field.name in parts:
            assert value < 1.0, field.name
    assert coefficients_from({}) == Coefficients()
