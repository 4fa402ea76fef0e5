import json
import os
import subprocess
import sys

import pytest

from autorecipe.estimate.inputs import read_inputs
from autorecipe.estimate.memory import MemoryModel
from autorecipe.schema import RunConfig
from autorecipe.schema.estimate import LayerImplementation

pytest.importorskip("megatron.core")
pytestmark = pytest.mark.slow

VALUES = {
    "model.num_layers": 4,
    "model.hidden_size": 1024,
    "model.ffn_hidden_size": 4096,
    "model.num_attention_heads": 16,
    "model.num_query_groups": 4,
    "model.vocab_size": 32000,
    "model.normalization": "RMSNorm",
    "model.gated_linear_unit": True,
    "model.activation_func": "torch.nn.functional:silu",
    "model.add_bias_linear": False,
    "model.position_embedding_type": "rope",
    "model.hidden_dropout": 0.0,
    "model.attention_dropout": 0.0,
    "model.bias_activation_fusion": True,
    "model.share_embeddings_and_output_weights": False,
    "model.tensor_model_parallel_size": 2,
    "model.pipeline_model_parallel_size": 2,
    "model.sequence_parallel": True,
    "mixed_precision.bf16": True,
    "mixed_precision.grad_reduce_in_fp32": True,
    "model.bf16": True,
    "ddp.use_distributed_optimizer": True,
    "optimizer.use_distributed_optimizer": True,
    "optimizer.lr": 1e-4,
    "train.micro_batch_size": 1,
    "train.global_batch_size": 16,
    "dataset.seq_length": 2048,
    "model.seq_length": 2048,
}


def trace(values, *, rank, world_size):
    done = subprocess.run(
        [sys.executable, "-m", "autorecipe.engine.trace"],
        input=json.dumps({"values": values, "rank": rank, "world_size": world_size}),
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_the_traced_model_of_a_rank_agrees_with_the_closed_form():
    measured = trace(VALUES, rank=4, world_size=8)
    inputs = read_inputs(RunConfig(values=VALUES), layers=LayerImplementation.LOCAL, on_gpu=False)
    stages = MemoryModel(inputs.shape, policy=inputs.policy).estimate(layout=inputs.layout, batch=inputs.batch, world_size=8)
    stage = stages[1]
    assert measured["stage"] == 1
    assert measured["parameters"] == stage.parameters
    assert measured["weights_bytes"] == stage.weights_bytes
    assert measured["optimizer_bytes"] == pytest.approx(stage.optimizer_bytes, rel=0.001)
    peak = sum(measured[f"{part}_bytes"] for part in ("weights", "gradients", "optimizer", "activations"))
    assert stage.peak_bytes == pytest.approx(peak, rel=0.02)


def test_what_the_engine_cannot_build_is_an_error_and_not_a_number():
    done = subprocess.run(
        [sys.executable, "-m", "autorecipe.engine.trace"],
        input=json.dumps({"values": {**VALUES, "model.hidden_size": None}, "rank": 0, "world_size": 8}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert done.stdout == ""
