import pytest

from autorecipe.catalog.store import open_catalog
from autorecipe.config.resolve import resolve_config
from autorecipe.errors import UsageError
from autorecipe.estimate.inputs import read_inputs
from autorecipe.estimate.memory import MemoryModel
from autorecipe.schema import RunConfig
from autorecipe.schema.estimate import LayerImplementation, Precision, Sharding

BASE = {
    "model.num_layers": 8,
    "model.hidden_size": 1024,
    "model.num_attention_heads": 16,
    "model.vocab_size": 32000,
    "train.global_batch_size": 8,
    "train.micro_batch_size": 1,
    "dataset.seq_length": 1024,
}


def policy(**values):
    return read_inputs(RunConfig(values={**BASE, **{key.replace("__", "."): value for key, value in values.items()}})).policy


def test_fsdp_without_a_strategy_shards_nothing_and_says_so():
    inputs = read_inputs(RunConfig(values={**BASE, "ddp.use_megatron_fsdp": True}))
    assert inputs.policy.sharding is Sharding.REPLICATED
    assert any("no_shard" in line for line in inputs.assumptions)
    assert (
        policy(ddp__use_megatron_fsdp=True, ddp__data_parallel_sharding_strategy="optim_grads_params").sharding is Sharding.FULL
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"mixed_precision": "bf16_with_fp8_current_scaling_mixed"}, Precision.FP8),
        ({"mixed_precision.bf16": True, "mixed_precision.fp8": "e4m3", "mixed_precision.fp8_recipe": "mxfp8"}, Precision.MXFP8),
        (
            {"mixed_precision.bf16": True, "mixed_precision.fp8": "e4m3", "mixed_precision.fp8_recipe": "blockwise"},
            Precision.FP8_BLOCK,
        ),
        ({"mixed_precision.bf16": True, "mixed_precision.fp4": "e2m1"}, Precision.NVFP4),
        ({"mixed_precision.bf16": True}, Precision.BF16),
        ({"model.fp16": True}, Precision.FP16),
    ],
)
def test_precision_is_read_from_preset_or_fields(values, expected):
    assert read_inputs(RunConfig(values={**BASE, **values})).policy.precision is expected


def test_precision_aware_states_are_smaller():
    aware = policy(
        mixed_precision__bf16=True,
        optimizer__use_precision_aware_optimizer=True,
        optimizer__exp_avg_dtype="torch.bfloat16",
        optimizer__exp_avg_sq_dtype="torch.bfloat16",
    )
    assert (aware.master_bytes, aware.moment_bytes) == (2.0, 4.0)


def test_missing_facts_are_named_together():
    with pytest.raises(UsageError) as caught:
        read_inputs(RunConfig(values={"train.global_batch_size": 8}))
    assert len(caught.value.problems) >= 2


def test_local_layers_can_be_asked_for():
    assert read_inputs(RunConfig(values=BASE), layers=LayerImplementation.LOCAL).policy.layers is LayerImplementation.LOCAL
    assert policy(model__transformer_impl="local").layers is LayerImplementation.LOCAL


def recipes():
    catalog = open_catalog()
    usable = [row for row in catalog.summaries() if row.status == "ok" and row.modality == "text" and row.layout and row.gpus]
    return [row.name for row in usable if row.alias_of is None][::25]


@pytest.mark.parametrize("name", recipes())
def test_shipped_recipes_are_estimated(name):
    catalog = open_catalog()
    summary = catalog.summary(name)
    config = resolve_config(catalog.load(name), catalog.schema(), (), world_size=summary.gpus)
    inputs = read_inputs(config)
    world = max(summary.gpus, inputs.layout.minimum_world_size)
    stages = MemoryModel(inputs.shape, policy=inputs.policy).estimate(layout=inputs.layout, batch=inputs.batch, world_size=world)
    assert len(stages) == inputs.layout.pp
    assert sum(stage.layers for stage in stages) in (inputs.shape.num_layers, len(inputs.shape.hybrid_layer_pattern))
    assert all(stage.peak_bytes > 0 for stage in stages)
