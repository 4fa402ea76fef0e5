"""Parity experiments with real training, on the smallest model that still has two layers to split."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("megatron.core")

from forked_sides import forked

from autorecipe.api import parity_layouts
from autorecipe.api.parity_layouts import LayoutRequest, run_layouts
from autorecipe.api.parity_run import RunRequest, run_parity
from autorecipe.parity.layouts import LayoutVariant, propose_layouts
from autorecipe.schema.parity import LayoutSentinel, Verdict

MLM = (
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64"
    " --micro-batch-size 2 --global-batch-size 4 --train-iters 4 --lr 1e-3 --min-lr 1e-4 --mock-data"
    " --tokenizer-type NullTokenizer --vocab-size 256 --log-interval 1 --eval-iters 0 --eval-interval 10"
    " --attention-dropout 0 --hidden-dropout 0 --swiglu --normalization RMSNorm --position-embedding-type rope"
    " --disable-bias-linear --untie-embeddings-and-output-weights"
)
SMALL = (
    "model.hidden_size=64",
    "model.num_attention_heads=4",
    "model.num_query_groups=2",
    "model.kv_channels=16",
    "model.ffn_hidden_size=128",
    "model.vocab_size=256",
    "tokenizer.vocab_size=256",
    "dataset.seq_length=32",
    "train.train_iters=3",
    "scheduler.lr_decay_iters=3",
    "scheduler.lr_warmup_iters=0",
    "checkpoint.save_interval=1000",
    "mixed_precision=null",
)
FP32 = ("model.bf16=false", "model.params_dtype=torch.float32", "model.pipeline_dtype=torch.float32")
DENSE = "llama3_8b_pretrain_config"
EXPERTS = ("model.moe_ffn_hidden_size=64",)
GOOD = (Verdict.IDENTICAL, Verdict.WITHIN_ROUNDING)

SKIPS_A_SUM = """
import importlib, runpy, sys
finalize_model_grads = importlib.import_module("megatron.core.distributed.finalize_model_grads")
finalize_model_grads._allreduce_non_tensor_model_parallel_grads = lambda *_, **__: None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A program that does not add up the gradients of layer norms over tensor-parallel ranks, as a wrong engine would."""


def sentinels(
    trainer: object, output: Path, recipe: str, *overrides: str, only: tuple[str, ...] = ()
) -> dict[str, LayoutSentinel]:
    request = LayoutRequest(
        recipe=recipe, overrides=(*SMALL, *overrides), gpus=2, output=output, only=only, shrink=True, timeout_s=600
    )
    return {item.name: item for item in run_layouts(request, say=lambda text: None, run=forked(trainer))}


def verdict_of(item: LayoutSentinel) -> tuple[Verdict | None, str]:
    return (item.report.verdict, item.report.summary) if item.report is not None else (None, item.skipped + item.failed)


def test_layouts_start_alike_and_a_skipped_sum_is_found(
    train_ranks: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(SKIPS_A_SUM)
    core_words = parity_layouts.core_words

    def words(recipe: str, overrides: tuple[str, ...], *, mock: bool) -> tuple[str, ...]:
        own = core_words(recipe, overrides, mock=mock)
        return (str(broken), *own) if "logger.log_params_norm=true" in overrides else own

    def with_a_broken_one(*given: object) -> tuple[LayoutVariant, ...]:
        found = propose_layouts(*given)  # type: ignore[arg-type]
        tensor = next(item for item in found if item.name == "tp2")
        return (*found, LayoutVariant(name="broken", overrides=(*tensor.overrides, "logger.log_params_norm=true")))

    monkeypatch.setattr(parity_layouts, "core_words", words)
    monkeypatch.setattr(parity_layouts, "propose_layouts", with_a_broken_one)
    found = sentinels(train_ranks, tmp_path, DENSE, *FP32, only=("tp2", "vp2pp2", "broken"))
    for name in ("tp2", "vp2pp2"):
        assert verdict_of(found[name])[0] in GOOD, verdict_of(found[name])
    report = found["broken"].report
    assert report is not None
    assert report.verdict is Verdict.BROKEN
    assert report.divergence is not None
    assert report.divergence.iteration == 2, report.summary  # the sum is missed by the first update


@pytest.mark.slow
@pytest.mark.parametrize("precision", [FP32, ()])
@pytest.mark.parametrize(("recipe", "more"), [(DENSE, ()), ("qwen3_30b_a3b_pretrain_config", EXPERTS)])
def test_every_layout_of_a_shrunk_recipe_trains_alike(
    train_ranks: object, tmp_path: Path, recipe: str, more: tuple[str, ...], precision: tuple[str, ...]
) -> None:
    found = sentinels(train_ranks, tmp_path, recipe, *more, *precision)
    run = {name: verdict_of(item) for name, item in found.items() if item.report is not None}
    assert set(run) >= {"tp2", "pp2", "vp2pp2", "cp2", "recompute"}
    assert set(run) >= ({"ep2"} if more else {"mbs1"})
    assert all(verdict in GOOD for verdict, _ in run.values()), run
    if more:
        assert "balances each micro batch" in found["mbs1"].skipped


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
