from __future__ import annotations

from pathlib import Path

import pytest

from autorecipe.api import parity_layouts
from autorecipe.api.parity_layouts import LayoutRequest, run_layouts
from autorecipe.api.resolve import resolve_run
from autorecipe.cli.main import execute
from autorecipe.errors import NegativeAnswer, UsageError
from autorecipe.parity.experiment import SideRun
from autorecipe.parity.layouts import LayoutVariant, find_random_draws, propose_layouts
from autorecipe.schema.parity import RunOutcome, Verdict

RECIPE = "vanilla_gpt_pretrain_config"
TINY = ("model.num_layers=4", "model.hidden_size=64", "model.num_attention_heads=4", "dataset.seq_length=64")
TINY += ("tokenizer.vocab_size=256", "train.global_batch_size=8", "train.micro_batch_size=2", "train.train_iters=2")
TINY += ("scheduler.lr_warmup_iters=0",)
STILL = ("model.attention_dropout=0", "model.hidden_dropout=0")


def variants(*overrides: str, processes: int = 2) -> dict[str, LayoutVariant]:
    config = resolve_run(RECIPE, [*TINY, *overrides], world_size=processes)
    return {item.name: item for item in propose_layouts(config, processes)}


def printing(losses: dict[str, str]) -> tuple[list[SideRun], object]:
    """Give a list of the runs that are started, and a runner that prints one loss for each name."""
    started: list[SideRun] = []

    def run(side: SideRun, output: Path, **_: object) -> RunOutcome:
        started.append(side)
        if side.name == "start":
            (output / "start-weights").mkdir(parents=True)
        if losses.get(side.name) == "crash":
            raise NegativeAnswer("out of luck")
        log = output / f"{side.name}.log"
        rows = [f" iteration {n}/ 2 | lm loss: {losses.get(side.name, '5.500000')} | grad norm: 1.0 |" for n in (1, 2)]
        log.write_text("\n".join(rows) + "\n")
        return RunOutcome(name=side.name, log=str(log), command=side.program, seconds=1.0, processes=side.processes)

    return started, run


def request(output: Path, *overrides: str, **more: object) -> LayoutRequest:
    return LayoutRequest(recipe=RECIPE, overrides=(*TINY, *STILL, *overrides), gpus=2, output=output, **more)  # type: ignore[arg-type]


def test_layouts_fit_the_shape_or_say_why_not() -> None:
    found = variants("model.num_layers=3")
    assert set(found) == {"dp2", "tp2", "pp2", "vp2pp2", "cp2", "recompute", "mbs1"}
    assert "3 layers do not split 2 ways" in found["pp2"].obstacle
    assert found["tp2"].obstacle == found["cp2"].obstacle == ""
    assert "model.sequence_parallel=true" in found["tp2"].overrides
    assert {text.partition("=")[0] for text in found["dp2"].overrides} >= {"model.tensor_model_parallel_size"}


def test_an_axis_takes_the_largest_size_that_fits() -> None:
    found = variants("train.global_batch_size=16", processes=8)
    assert {"tp4", "pp4", "vp2pp2", "cp8"} <= set(found)
    assert not any(found[name].obstacle for name in ("tp4", "pp4", "vp2pp2", "cp8"))


def test_experts_add_a_layout_and_keep_micro_batches_apart() -> None:
    experts = ("model.num_moe_experts=4", "model.moe_router_load_balancing_type=aux_loss", "model.moe_aux_loss_coeff=0.01")
    found = variants(*experts)
    assert found["ep2"].obstacle == ""
    assert "balances each micro batch" in found["mbs1"].notes[0]
    assert variants(*experts[:2], "model.moe_aux_loss_coeff=0")["mbs1"].notes == ()


def test_every_layout_has_the_same_padded_vocabulary() -> None:
    sizes = {
        resolve_run(RECIPE, [*TINY, "tokenizer.vocab_size=1000", *item.overrides], world_size=4).get("derived.padded_vocab_size")
        for item in variants("tokenizer.vocab_size=1000", processes=4).values()
        if not item.obstacle
    }
    assert sizes == {1024}


def test_random_draws_are_refused_by_name(tmp_path: Path) -> None:
    config = resolve_run(RECIPE, [*TINY, "model.attention_dropout=0.1", "model.hidden_dropout=0"], world_size=2)
    assert [problem.path for problem in find_random_draws(config)] == ["model.attention_dropout"]
    with pytest.raises(UsageError, match=r"model\.hidden_dropout"):
        run_layouts(LayoutRequest(recipe=RECIPE, overrides=TINY, gpus=2, output=tmp_path), say=lambda text: None)


def test_all_layouts_load_what_one_run_without_an_update_saved(tmp_path: Path) -> None:
    started, run = printing({"tp2": "5.510000"})
    found = {item.name: item for item in run_layouts(request(tmp_path, only=("tp2", "cp2")), say=lambda text: None, run=run)}  # type: ignore[arg-type]
    assert [side.name for side in started] == ["start", "dp2", "tp2", "cp2"]
    assert {"optimizer.lr=0", "train.train_iters=1", f"checkpoint.save={tmp_path}/start-weights"} <= set(started[0].program)
    for side in started[1:]:
        assert f"checkpoint.pretrained_checkpoint={tmp_path}/start-weights" in side.program
        assert "checkpoint.save=null" in side.program
    assert found["tp2"].report is not None and found["tp2"].report.verdict is Verdict.BROKEN
    assert found["cp2"].report is not None and found["cp2"].report.verdict is Verdict.IDENTICAL
    assert found["pp2"].skipped == "not asked for"


def test_given_weights_are_the_common_start(tmp_path: Path) -> None:
    started, run = printing({})
    given = "checkpoint.pretrained_checkpoint=/weights"
    run_layouts(request(tmp_path, given, only=("tp2",)), say=lambda text: None, run=run)  # type: ignore[arg-type]
    assert [side.name for side in started] == ["dp2", "tp2"]
    assert all(given in side.program for side in started)


def test_a_layout_that_changes_the_training_is_broken_whatever_its_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def altered(*given: object) -> tuple[LayoutVariant, ...]:
        first, tensor, *_ = propose_layouts(*given)  # type: ignore[arg-type]
        return first, LayoutVariant(name="altered", overrides=tensor.overrides), tensor

    monkeypatch.setattr(parity_layouts, "propose_layouts", altered)
    real = parity_layouts._words
    monkeypatch.setattr(
        parity_layouts,
        "_words",
        lambda variant, *rest: (*real(variant, *rest), *(["optimizer.adam_beta2=0.9"] if variant.name == "altered" else [])),
    )
    _, run = printing({})
    found = {item.name: item for item in run_layouts(request(tmp_path), say=lambda text: None, run=run)}  # type: ignore[arg-type]
    assert found["tp2"].report is not None and found["tp2"].report.verdict is Verdict.IDENTICAL
    report = found["altered"].report
    assert report is not None and report.verdict is Verdict.BROKEN
    assert [item.name for item in report.fact_differences] == ["optimizer.adam_beta2"]


def test_a_layout_that_fails_does_not_hide_the_others(tmp_path: Path) -> None:
    _, run = printing({"tp2": "crash"})
    found = {item.name: item for item in run_layouts(request(tmp_path, only=("tp2", "cp2")), say=lambda text: None, run=run)}  # type: ignore[arg-type]
    assert "out of luck" in found["tp2"].failed
    assert not found["tp2"].holds
    assert found["cp2"].holds


def test_unknown_layouts_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["parity", "layouts", RECIPE, *TINY, *STILL, "--gpus", "2", "--only", "tp9"]) == 2
    assert "known: dp2, tp2" in capsys.readouterr().err
