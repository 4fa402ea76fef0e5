"""Parity runs of the real upstream programs on the CPU, where the environment says where they are.

MEGATRON_LM: a checkout of Megatron-LM, or a folder into which megatron-core 0.19 or newer was unpacked.
MEGATRON_BRIDGE: a checkout of Megatron Bridge, or its unpacked wheel.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("megatron.core")

from autorecipe.api.parity_run import RunRequest, run_parity
from autorecipe.parity.compare import CompareOptions
from autorecipe.schema.parity import Framework, ParityReport, Verdict

MLM = (
    "--num-layers 2 --hidden-size 128 --num-attention-heads 4 --ffn-hidden-size 512 --seq-length 128"
    " --max-position-embeddings 128 --micro-batch-size 2 --global-batch-size 8 --train-iters 4 --eval-iters 0"
    " --eval-interval 10 --mock-data --bf16 --tokenizer-type NullTokenizer --vocab-size 1000 --lr 3e-4 --min-lr 3e-5"
    " --seed 1234 --log-interval 1 --attention-dropout 0 --hidden-dropout 0 --use-distributed-optimizer"
)
BRIDGE = (
    "vanilla_gpt_pretrain_config model.num_layers=2 model.hidden_size=128 model.num_attention_heads=4"
    " model.ffn_hidden_size=512 model.seq_length=128 dataset.seq_length=128 train.train_iters=4 train.global_batch_size=8"
    " train.micro_batch_size=2 validation.eval_interval=10 validation.eval_iters=0 optimizer.lr=3e-4 optimizer.min_lr=3e-5"
    " scheduler.lr_warmup_iters=1 scheduler.lr_decay_iters=4 rng.seed=1234 logger.log_interval=1 model.attention_dropout=0"
    " model.hidden_dropout=0 tokenizer.vocab_size=1000"
)


def place(variable: str) -> Path:
    text = os.environ.get(variable)
    if not text:
        pytest.skip(f"{variable} names no upstream program")
    return Path(text)


def run(tmp_path: Path, *, a: str, b: str, engines: tuple[str, str], match: bool = False) -> ParityReport:
    request = RunRequest(
        a=a,
        b=b,
        engine_a=engines[0],
        engine_b=engines[1],
        output=tmp_path,
        megatron_lm=place("MEGATRON_LM"),
        bridge=place("MEGATRON_BRIDGE") if "bridge" in engines else None,
        match=match,
        timeout_s=900,
        options=CompareOptions(expect_identical=False),
    )
    _, report = run_parity(request, say=lambda text: None)
    return report


def test_both_upstream_programs_give_the_same_digits_once_matched(tmp_path: Path) -> None:
    report = run(tmp_path, a=MLM, b=BRIDGE, engines=("mlm", "bridge"), match=True)
    assert report.frameworks == (Framework.MEGATRON_LM, Framework.BRIDGE)
    assert report.num_iterations == 4
    assert report.verdict is Verdict.IDENTICAL, report.summary


def test_the_documented_pair_breaks_with_the_learning_rate_first(tmp_path: Path) -> None:
    report = run(tmp_path, a=MLM, b=BRIDGE, engines=("mlm", "bridge"))
    assert report.verdict is Verdict.BROKEN
    assert report.divergence is not None
    assert report.divergence.metric == "learning rate"


def test_this_engine_trains_as_megatron_lm_does(tmp_path: Path) -> None:
    report = run(tmp_path, a=MLM, b=f"{BRIDGE} engine.modules=own", engines=("mlm", "core"), match=True)
    assert report.frameworks == (Framework.MEGATRON_LM, Framework.AUTORECIPE)
    assert report.verdict.holds, report.summary
    first = next(entry for entry in report.series if entry.metric == "lm loss").points[0]
    assert first.reference == first.candidate  # the same weights and data
