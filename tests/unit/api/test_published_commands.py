"""The commands that Megatron Bridge's guides publish, as run_recipe.py takes them, on the GPUs that they name."""

import pytest

from autorecipe.api.machine import Machine
from autorecipe.api.train import TrainRequest, prepare_training
from autorecipe.errors import NegativeAnswer
from autorecipe.schema.finding import Severity

HOST = Machine(
    num_cores=64, memory_available_bytes=2**40, num_gpus=8, gpu_title="NVIDIA H100 80GB HBM3", gpu_memory_bytes=80 * 2**30
)
GRAPHS = (
    "model.cuda_graph_impl=transformer_engine",
    "model.cuda_graph_scope=[attn,moe_router,moe_preprocess]",
    "model.use_te_rng_tracker=True",
    "rng.te_rng_tracker=True",
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")


def prepare(recipe, *overrides, world=8, **more):
    request = TrainRequest(recipe=recipe, overrides=overrides, dataset="mock", world_size=world, local_world_size=8, **more)
    return prepare_training(request, machine=HOST)


@pytest.mark.parametrize(
    ("recipe", "overrides", "world"),
    [
        ("llama3_8b_pretrain_config", (), 2),
        ("llama3_8b_pretrain_config", (), 8),
        ("llama3_8b_pretrain_config", ("model.tensor_model_parallel_size=2", "train.global_batch_size=64"), 8),
        ("qwen3_30b_a3b_pretrain_config", GRAPHS, 16),
    ],
)
def test_a_published_command_would_run(recipe, overrides, world):
    assert not [
        item for item in prepare(recipe, *overrides, world=world, check_memory=False).findings if item.severity is Severity.ERROR
    ]


def test_the_long_context_command_runs_as_it_would_upstream_and_says_what_it_does_not_do():
    plan = prepare("llama3_8b_pretrain_config", "model.seq_length=32768", "model.context_parallel_size=4", check_memory=False)
    assert plan.run.get("model.seq_length") == plan.run.get("dataset.seq_length") == 8192
    [finding] = [item for item in plan.findings if item.rule == "ORD001"]
    assert finding.severity is Severity.AUTO_FIX
    assert finding.hint == "set dataset.seq_length=32768"
    meant = prepare("llama3_8b_pretrain_config", "dataset.seq_length=32768", "model.context_parallel_size=4", check_memory=False)
    assert meant.run.get("model.seq_length") == 32768


def test_the_graph_command_names_the_gpus_that_it_needs():
    with pytest.raises(NegativeAnswer) as caught:
        prepare("qwen3_30b_a3b_pretrain_config", *GRAPHS, world=8)
    [problem] = caught.value.problems
    assert problem.code == "PAR002"
    assert "needs 16 GPUs" in problem.message
    assert "model.expert_model_parallel_size=8" in problem.hint and "16 processes" in problem.hint
    assert prepare("qwen3_30b_a3b_pretrain_config", *GRAPHS, "model.expert_model_parallel_size=8", world=8, check_memory=False)
