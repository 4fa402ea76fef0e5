"""Runs of this project's engine with one fault planted in each, and runs that only differ in execution."""

from __future__ import annotations

from pathlib import Path

import pytest

from autorecipe.api.parity import compare_log_files
from autorecipe.errors import UsageError
from autorecipe.parity.compare import CompareOptions
from autorecipe.schema.parity import LOSS, Onset, ParityReport, Verdict


def compare(golden: Path, name: str, **kwargs: object) -> ParityReport:
    paths = [golden / f"gpt_2l256h_bf16__core_{side}.log" for side in ("reference", name)]
    return compare_log_files(paths, **kwargs)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["true_micro_batch_1", "true_tensor_parallel_2"])
def test_true_pairs_pass(golden: Path, name: str) -> None:
    assert compare(golden, name).verdict is Verdict.WITHIN_ROUNDING


def test_a_repeated_run_is_identical(golden: Path) -> None:
    assert compare(golden, "repeat").verdict is Verdict.IDENTICAL


@pytest.mark.parametrize(
    ("name", "metric", "word"),
    [
        ("fault_beta2", "lm loss", "betas"),
        ("fault_seed", "lm loss", "seed"),
        ("fault_dropout", "lm loss", "dropout"),
        ("fault_schedule", "learning rate", "warmup"),
    ],
)
def test_faults_are_found_in_the_losses_alone(golden: Path, name: str, metric: str, word: str) -> None:
    report = compare(golden, name, use_settings=False)
    assert report.verdict is Verdict.BROKEN
    assert report.divergence is not None
    assert report.divergence.metric == metric
    assert word in report.divergence.cause


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("fault_beta2", "optimizer.adam_beta2"),
        ("fault_seed", "rng.seed"),
        ("fault_dropout", "model.hidden_dropout"),
        ("fault_schedule", "scheduler.lr_warmup_iters"),
        ("fault_bf16_reduction", "mixed_precision.grad_reduce_in_fp32"),
    ],
)
def test_the_headers_name_the_setting(golden: Path, name: str, path: str) -> None:
    report = compare(golden, name)
    assert report.verdict is Verdict.BROKEN
    assert path in [item.name for item in report.fact_differences]


def test_a_fault_below_rounding_is_found_where_identity_is_expected(golden: Path) -> None:
    loose = compare(golden, "fault_bf16_reduction", use_settings=False)
    strict = compare(golden, "fault_bf16_reduction", use_settings=False, options=CompareOptions(expect_identical=True))
    assert loose.verdict is Verdict.WITHIN_ROUNDING
    assert strict.verdict is Verdict.BROKEN
    assert "from iteration 3" in strict.summary


def test_dropout_shows_at_once_and_a_wrong_beta_builds_up(golden: Path) -> None:
    dropout, beta = (compare(golden, name, use_settings=False).divergence for name in ("fault_dropout", "fault_beta2"))
    assert dropout is not None
    assert beta is not None
    assert dropout.onset is Onset.FIRST_ITERATION
    assert beta.onset is Onset.GROWTH


SMALL_FAULTS = [
    # name, settings that the headers state otherwise, first iteration whose losses show it, word of the cause
    ("beta2", ["optimizer.adam_beta2"], 3, "betas"),
    ("seed", ["rng.seed"], 1, "seed"),
    ("dropout", ["model.hidden_dropout"], 1, "dropout"),
    ("warmup", ["scheduler.lr_warmup_iters"], 3, "warmup"),
    ("eps", ["optimizer.adam_eps"], 3, "epsilon"),
    ("weight_decay", ["scheduler.start_weight_decay", "scheduler.end_weight_decay"], 4, "weight decay"),
    ("no_clip", ["optimizer.clip_grad"], 8, "clipping"),
    ("data_order", ["dataset.random_seed"], 1, "order"),
    ("decayed_biases", [], 4, ""),
    ("expert_bias", [], 2, ""),
]
"""Runs of twelve iterations in fp32: a change of a digit shows. The last two are planted in code, no header states them."""


def small(golden: Path, name: str, *, use_settings: bool) -> ParityReport:
    model = "moe" if name == "expert_bias" else "gpt"
    pair = [golden / f"{model}_2l64h_fp32__core_{side}.log" for side in ("reference", f"fault_{name}")]
    return compare_log_files(pair, use_settings=use_settings)[0]


@pytest.mark.parametrize(("name", "paths", "begins", "word"), SMALL_FAULTS)
def test_fp32_shows_every_fault_within_twelve_iterations(
    golden: Path, name: str, paths: list[str], begins: int, word: str
) -> None:
    losses, whole = small(golden, name, use_settings=False), small(golden, name, use_settings=True)
    assert losses.verdict is whole.verdict is Verdict.BROKEN
    (series,) = [entry for entry in losses.series if entry.metric == LOSS]
    assert series.first_divergence == begins
    assert losses.divergence is not None
    assert word in losses.divergence.cause
    assert [item.name for item in whole.fact_differences] == paths


@pytest.mark.parametrize("name", ["weight_decay", "decayed_biases", "expert_bias"])
def test_what_grows_is_no_jump(golden: Path, name: str) -> None:
    report = small(golden, name, use_settings=False)
    assert report.divergence is not None
    assert report.divergence.onset is Onset.GROWTH


def logs(golden: Path, *names: str) -> list[Path]:
    return [golden / f"gpt_2l256h_bf16__core_{name}.log" for name in names]


def test_a_spread_that_was_measured_decides_and_hides_no_fault(golden: Path) -> None:
    """Micro batch 1 and TP 2 are further runs of the same training: they differ as far as rounding takes them."""
    reference, micro, tensor, fault = logs(golden, "reference", "true_micro_batch_1", "true_tensor_parallel_2", "fault_beta2")
    (report,) = compare_log_files([reference, tensor], reference_repeats=[micro])
    assert report.verdict is Verdict.WITHIN_ROUNDING
    assert report.tolerance is not None and report.tolerance.spread is not None
    assert report.tolerance.spread_runs == 2
    assert 1e-5 < report.tolerance.spread < 2e-3
    (report,) = compare_log_files([reference, fault], reference_repeats=[micro, tensor], use_settings=False)
    assert report.verdict is Verdict.BROKEN


@pytest.mark.parametrize(
    ("repeat", "reason"),
    [
        ("fault_seed", r"lm loss is .* at iteration 1"),
        ("fault_dropout", r"lm loss is .* at iteration 1"),
        ("fault_schedule", "learning rate is"),
        ("fault_beta2", r"optimizer\.adam_beta2"),
        ("reference", "given twice"),
    ],
)
def test_a_run_of_something_else_measures_no_spread(golden: Path, repeat: str, reason: str) -> None:
    reference, candidate, stranger = logs(golden, "reference", "true_tensor_parallel_2", repeat)
    with pytest.raises(UsageError, match=reason):
        compare_log_files([reference, candidate], reference_repeats=[stranger])


def test_the_candidate_is_no_repeat_of_the_reference(golden: Path) -> None:
    reference, fault = logs(golden, "reference", "fault_beta2")
    with pytest.raises(UsageError, match="given twice"):
        compare_log_files([reference, fault], reference_repeats=[fault])
