"""Parity experiments with real training, on the smallest model that still has two layers to split."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("megatron.core")

from autorecipe.api.parity_run import RunRequest, run_layouts, run_parity
from autorecipe.schema.parity import Verdict

MLM = (
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64"
    " --micro-batch-size 2 --global-batch-size 4 --train-iters 4 --lr 1e-3 --min-lr 1e-4 --mock-data"
    " --tokenizer-type NullTokenizer --vocab-size 256 --log-interval 1 --eval-iters 0 --eval-interval 10"
    " --attention-dropout 0 --hidden-dropout 0 --swiglu --normalization RMSNorm --position-embedding-type rope"
    " --disable-bias-linear --untie-embeddings-and-output-weights"
)
OVERRIDES = (
    "model.num_layers=2",
    "model.hidden_size=64",
    "model.num_attention_heads=4",
    "model.attention_dropout=0",
    "model.hidden_dropout=0",
    "dataset.seq_length=64",
    "tokenizer.vocab_size=256",
    "train.train_iters=4",
    "train.global_batch_size=4",
    "train.micro_batch_size=2",
    "scheduler.lr_warmup_iters=1",
    "validation.eval_iters=0",
    "logger.log_interval=1",
    "logger.tensorboard_dir=null",
    "checkpoint.save=null",
    "mixed_precision=null",
)


@pytest.mark.slow
def test_a_recipe_trains_alike_in_two_layouts(tmp_path: Path) -> None:
    found = run_layouts(
        "vanilla_gpt_pretrain_config",
        OVERRIDES,
        gpus=2,
        output=tmp_path,
        only=("tp2",),
        timeout_s=600,
        say=lambda text: None,
    )
    by_name = {item.name: item for item in found}
    report = by_name["tp2"].report
    assert report is not None
    assert report.verdict in (Verdict.IDENTICAL, Verdict.WITHIN_ROUNDING), report.summary
    assert by_name["pp2"].skipped == "not asked for"


@pytest.mark.slow
def test_translated_options_train_alike_whatever_the_layout(tmp_path: Path) -> None:
    same_start = "--use-cpu-initialization"
    request = RunRequest(
        a=f"{MLM} {same_start}",
        b=f"{MLM} {same_start} --tensor-model-parallel-size 2 --sequence-parallel",
        engine_a="core",
        engine_b="core",
        output=tmp_path,
        timeout_s=600,
    )
    outcomes, report = run_parity(request, say=lambda text: None)
    assert [outcome.processes for outcome in outcomes] == [2, 2]
    assert report.verdict in (Verdict.IDENTICAL, Verdict.WITHIN_ROUNDING), report.summary
