"""Command lines of pretrain_gpt.py, translated and trained here, print what Megatron-LM printed on a CPU.

tests/golden/mlm_cpu.jsonl holds what `megatron.training` of Megatron-Core 0.19.2 printed for each on one CPU thread (torch 2.13,
its own local layers, the engine's stand-in for CUDA and its Adam). Initial weights, data order, dropout and schedules have to
be the same.
"""

import json
from pathlib import Path

import golden_runs
import pytest
from tests.e2e.conftest import Trainer

import tolerances

pytestmark = pytest.mark.xdist_group("ranks")

RUNS = [json.loads(line) for line in Path(__file__).parents[1].joinpath("golden", "mlm_cpu.jsonl").read_text().splitlines()]
BASE = [
    "--num-layers",
    "2",
    "--hidden-size",
    "64",
    "--num-attention-heads",
    "4",
    "--seq-length",
    "64",
    "--max-position-embeddings",
    "64",
    "--micro-batch-size",
    "2",
    "--global-batch-size",
    "8",
    "--vocab-size",
    "500",
    "--train-iters",
    "5",
    "--eval-iters",
    "1",
    "--eval-interval",
    "100",
    "--lr",
    "3e-3",
    "--min-lr",
    "3e-4",
    "--seed",
    "1234",
    "--attention-dropout",
    "0",
    "--hidden-dropout",
    "0",
    "--transformer-impl",
    "local",
    "--no-gradient-accumulation-fusion",
    "--no-persist-layer-norm",
    "--no-masked-softmax-fusion",
    "--no-rope-fusion",
    "--mock-data",
    "--use-mcore-models",
    "--tokenizer-type",
    "NullTokenizer",
    "--log-interval",
    "1",
    "--no-bias-swiglu-fusion",
    "--no-bias-gelu-fusion",
    "--no-bias-dropout-fusion",
]
QUICK = {
    "gpt_dropout",
    "gpt_mbs1",
    "gpt_wsd",
    "llama_gqa",
    "llama_dropout",
    "llama_decoupled",
    "moe_sigmoid",
    "moe_jitter",
    "gpt_bf16",
}


def parameters():
    for run in RUNS:
        yield pytest.param(run, id=run["name"], marks=() if run["name"] in QUICK else pytest.mark.slow)


@pytest.mark.parametrize("run", parameters())
def test_prints_what_megatron_lm_prints(train_ranks: Trainer, run: dict, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    answer = train_ranks.call("mlm_run:train_words", {"words": [*BASE, *run["words"]], "modules": "core-local"}, log)
    assert answer["code"] == 0, answer["error"]
    expected = golden_runs.undo_average([tuple(map(str, line)) for line in run["lines"]])
    actual = golden_runs.read_lines(log.read_text())
    is_half = {"--bf16", "--fp16"} & set(run["words"])
    bound = tolerances.MEGATRON_LM_CPU["half" if is_half else "fp32"]
    assert [row[0] for row in actual] == [row[0] for row in expected]
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours[3] == theirs[3]  # the learning rate as printed
        assert float(ours[1]) == pytest.approx(float(theirs[1]), rel=bound.loss)
        assert float(ours[2]) == pytest.approx(float(theirs[2]), rel=bound.grad_norm)
