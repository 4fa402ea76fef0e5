import dataclasses

import pytest

from autorecipe.estimate.memory import MemoryModel, estimate_memory
from autorecipe.schema import Batch, Layout
from autorecipe.schema.estimate import ExecutionPolicy, Recompute, Sharding, StageSplit, Verdict

from .shapes import DEEPSEEK_V3, H100, LLAMA3_8B, QWEN3_30B, QWEN3_235B

BATCH = Batch(global_batch_size=128, micro_batch_size=1, seq_length=4096)


def total_parameters(shape):
    model = MemoryModel(shape, policy=ExecutionPolicy())
    (stage,) = model.estimate(layout=Layout(), batch=BATCH, world_size=1)
    return stage.parameters


@pytest.mark.parametrize(
    ("shape", "count"),
    [(LLAMA3_8B, 8_030_261_248), (QWEN3_235B, 235_093_634_560), (QWEN3_30B, 30_532_122_624), (DEEPSEEK_V3, 671_026_404_352)],
)
def test_parameters_are_counted_exactly(shape, count):
    assert total_parameters(shape) == count


def test_replicated_optimizer_costs_eighteen_bytes_a_parameter():
    policy = ExecutionPolicy(sharding=Sharding.REPLICATED)
    estimate = estimate_memory(LLAMA3_8B, layout=Layout(), batch=BATCH, policy=policy, world_size=8, gpu=H100)
    assert estimate.worst.resident_bytes == pytest.approx(144.5e9, rel=0.001)
    assert estimate.verdict is Verdict.OOM


def test_experts_without_expert_data_parallelism_pay_for_the_whole_optimizer():
    layout = Layout(ep=8)
    model = MemoryModel(QWEN3_30B, policy=ExecutionPolicy())
    estimate = estimate_memory(QWEN3_30B, layout=layout, batch=BATCH, policy=ExecutionPolicy(), world_size=8, gpu=H100)
    assert estimate.worst.resident_bytes == pytest.approx(11.5e9 + 65.2e9, rel=0.005)
    assert estimate.verdict is Verdict.OOM
    assert model.peak_bytes(layout, BATCH, 8) == pytest.approx(estimate.peak_bytes)


def test_experts_are_divided_by_etp_and_ep_and_never_by_tp():
    model = MemoryModel(QWEN3_30B, policy=ExecutionPolicy())
    (plan,) = model.pipeline(1, 1).stages
    expert = 48 * 128 * 3 * 2048 * 768
    for tp, ep, etp in ((8, 1, 1), (8, 4, 1), (1, 4, 2)):
        assert model.counter.count(plan, tp=tp, ep=ep, etp=etp).expert == expert / (ep * etp)


def test_the_heaviest_stage_counts_when_layers_are_split_unevenly():
    shape = dataclasses.replace(LLAMA3_8B, num_layers=8)
    policy = ExecutionPolicy(split=StageSplit(explicit=(1, 2, 2, 3)))
    stages = MemoryModel(shape, policy=policy).estimate(layout=Layout(pp=4), batch=BATCH, world_size=4)
    assert [stage.layers for stage in stages] == [1, 2, 2, 3]
    assert max(stage.parameters for stage in stages) == stages[3].parameters > total_parameters(shape) / 4


def test_recomputation_lowers_the_peak_and_full_lowers_it_most():
    def peak(recompute):
        policy = ExecutionPolicy(recompute=recompute)
        return MemoryModel(QWEN3_235B, policy=policy).peak_bytes(Layout(tp=8, pp=16, ep=8, sequence_parallel=True), BATCH, 256)

    none = peak(Recompute())
    selective = peak(Recompute(granularity="selective", modules=frozenset({"moe_act", "layernorm"})))
    full = peak(Recompute(granularity="full"))
    assert full < selective < none


def test_fsdp_that_shards_nothing_saves_nothing():
    def resident(sharding):
        policy = ExecutionPolicy(fsdp=True, sharding=sharding)
        return estimate_memory(LLAMA3_8B, layout=Layout(), batch=BATCH, policy=policy, world_size=8).worst.resident_bytes

    assert resident(Sharding.REPLICATED) == pytest.approx(18 * 8_030_261_248)
    assert resident(Sharding.FULL) == pytest.approx(18 * 8_030_261_248 / 8)


def test_what_is_not_modelled_is_said():
    estimate = estimate_memory(LLAMA3_8B, layout=Layout(), batch=BATCH, policy=ExecutionPolicy(), world_size=1)
    assert estimate.verdict is None
    assert any("fragmentation" in line for line in estimate.not_modelled)
    assert estimate.reserved_bytes[0] >= estimate.peak_bytes


def test_gradients_in_bf16_reproduce_a_published_resident_size():
    # Llama 3 8B, BF16, 8 H100, context parallel 2: 44.27e9 bytes resident, published with NVIDIA's dgxc-benchmarking sample log.
    policy = ExecutionPolicy(grad_bytes=2.0)
    batch = Batch(global_batch_size=128, micro_batch_size=1, seq_length=8192)
    estimate = estimate_memory(LLAMA3_8B, layout=Layout(cp=2), batch=batch, policy=policy, world_size=8)
    assert estimate.worst.resident_bytes == pytest.approx(44.27e9, rel=0.01)


def test_offloaded_layers_hold_no_activations():
    def stage(offloaded):
        policy = ExecutionPolicy(offloaded_layers=offloaded)
        model = MemoryModel(LLAMA3_8B, policy=policy)
        (found,) = model.estimate(layout=Layout(), batch=BATCH, world_size=8)
        assert found.peak_bytes == pytest.approx(model.peak_bytes(Layout(), BATCH, 8))
        return found.activations_by_kind["attention"]

    assert stage(8) == pytest.approx(stage(0) * 24 / 32)
    assert stage(64) == 0.0
