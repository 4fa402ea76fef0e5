from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from autorecipe.parity.compare import CompareOptions, compare_logs
from autorecipe.parity.source import load_logs
from autorecipe.parity.textlog import parse_text_log
from autorecipe.schema.parity import GRAD_NORM, LEARNING_RATE, LOSS, SAMPLES, Framework, Onset, Reading, TrainingLog, Verdict

MLM = "gpt_2l256h_bf16__mlm_documented.log"


def load(golden: Path, *names: str) -> list[TrainingLog]:
    return load_logs([golden / name for name in names])


def render(losses: list[float], *, norms: list[float] | None = None, rates: list[float] | None = None, head: str = "") -> str:
    total = len(losses)
    norms = norms or [1.0] * total
    rates = rates or [3e-4] * total
    rows = [
        f" iteration {i + 1:8d}/{total:8d} | consumed samples: {(i + 1) * 32:12d} | learning rate: {rates[i]:.6E} |"
        f" lm loss: {losses[i]:.6E} | grad norm: {norms[i]:.3f} |"
        for i in range(total)
    ]
    return head + "\n".join(rows) + "\n"


def log_of(losses: list[float], **kwargs: object) -> TrainingLog:
    return parse_text_log(render(losses, **kwargs), name="made")  # type: ignore[arg-type]


CURVE = [10.4, 10.28, 10.14, 10.03, 9.91, 9.87, 9.74, 9.66, 9.64, 9.59]
BF16 = "# autorecipe --bf16 --global-batch-size 32 --seq-length 512\n"


def test_the_documented_pair_is_broken_by_the_learning_rate(golden: Path) -> None:
    report = compare_logs(*load(golden, MLM, "gpt_2l256h_bf16__bridge_documented.log"))
    assert report.verdict is Verdict.BROKEN
    assert report.divergence is not None
    assert (report.divergence.metric, report.divergence.iteration) == (LEARNING_RATE, 1)
    losses = next(entry for entry in report.series if entry.metric == LOSS)
    assert losses.first_divergence == 2
    assert losses.points[0].difference == 0.0


def test_the_matched_pair_is_identical_at_all_ten_iterations(golden: Path) -> None:
    report = compare_logs(*load(golden, MLM, "gpt_2l256h_bf16__bridge_matched.log"))
    assert (report.verdict, report.num_iterations) == (Verdict.IDENTICAL, 10)
    assert report.frameworks == (Framework.MEGATRON_LM, Framework.BRIDGE)
    assert any("averages iterations 1 and 2" in note for note in report.notes)


def test_only_megatron_lm_is_unaveraged(golden: Path) -> None:
    report = compare_logs(*load(golden, "gpt_2l256h_bf16__bridge_documented.log", "gpt_2l256h_bf16__bridge_documented.log"))
    assert not any("averages" in note for note in report.notes)


def test_an_unnamed_log_is_unaveraged_by_arithmetic(golden: Path) -> None:
    reference, bridge = load(golden, MLM, "gpt_2l256h_bf16__bridge_matched.log")
    unnamed = dataclasses.replace(reference, framework=Framework.UNKNOWN)
    report = compare_logs(unnamed, bridge)
    assert report.verdict is Verdict.IDENTICAL
    assert any("by arithmetic" in note for note in report.notes)


def test_an_old_megatron_lm_that_resets_is_left_alone() -> None:
    old = log_of(CURVE, head="# Megatron-LM\n")
    report = compare_logs(old, log_of(CURVE, head=BF16))
    assert report.verdict is Verdict.IDENTICAL
    assert any("left as printed" in note for note in report.notes)


@pytest.mark.parametrize("model", ["gpt_2l256h", "llama_4l256h"])
def test_another_arithmetic_of_the_same_run_is_rounding(golden: Path, model: str) -> None:
    report = compare_logs(*load(golden, f"{model}_bf16__mlm_h200.log", f"{model}_fp32__mlm_h200.log"))
    assert report.verdict is Verdict.WITHIN_ROUNDING


def test_dropout_on_one_side_shows_at_the_first_iteration(golden: Path) -> None:
    report = compare_logs(*load(golden, "gpt_2l256h_bf16__mlm_h200.log", "gpt_2l256h_bf16__mlm_h200_dropout.log"))
    assert report.verdict is Verdict.BROKEN
    assert report.divergence is not None
    assert (report.divergence.iteration, report.divergence.onset) == (1, Onset.FIRST_ITERATION)
    assert "dropout" in report.divergence.cause
    assert {item.name for item in report.fact_differences} == {"attention_dropout", "hidden_dropout"}


def test_other_initial_weights_show_at_the_first_iteration(golden: Path) -> None:
    report = compare_logs(*load(golden, MLM, "gpt_2l256h_bf16__mlm_h200.log"))
    assert report.divergence is not None
    assert (report.verdict, report.divergence.iteration) == (Verdict.BROKEN, 1)
    assert "seed" in report.divergence.cause


def test_other_architectures_are_not_ranked(golden: Path) -> None:
    report = compare_logs(*load(golden, "llama_4l256h_fp32__mlm_h200.log", "moe_4l256h_fp32__mlm_h200.log"))
    assert report.verdict is Verdict.NOT_COMPARABLE
    assert "num_experts" in report.summary


def test_other_vocabularies_are_not_ranked() -> None:
    one = log_of(CURVE, head="# autorecipe tokenizer.vocab_size=32000\n")
    other = log_of(CURVE, head="# autorecipe tokenizer.vocab_size=1024\n")
    assert compare_logs(one, other).verdict is Verdict.NOT_COMPARABLE


def test_a_truncated_log_is_incomplete_and_can_be_accepted(golden: Path) -> None:
    text = (golden / "gpt_2l256h_bf16__bridge_matched.log").read_text()
    short = parse_text_log(text[: text.index("iteration        8/") + 60], name="short")
    reference = load(golden, MLM)[0]
    report = compare_logs(reference, short)
    assert report.verdict is Verdict.INCOMPLETE
    assert "ends at iteration 7 of 10" in report.summary
    assert compare_logs(reference, short, options=CompareOptions(last=7)).verdict is Verdict.IDENTICAL
    accepted = compare_logs(reference, short, options=CompareOptions(allow_incomplete=True))
    assert accepted.verdict is Verdict.IDENTICAL


def test_a_shifted_schedule_is_named() -> None:
    rates = [1e-4, 2e-4, 3e-4, 2.7e-4, 2.4e-4, 2.1e-4, 1.8e-4, 1.5e-4, 1.2e-4, 0.9e-4]
    later = [0.5e-4, *rates[:-1]]
    other = [value + 0.03 * (i > 0) for i, value in enumerate(CURVE)]
    report = compare_logs(log_of(CURVE, rates=rates, head=BF16), log_of(other, rates=later, head=BF16))
    assert report.divergence is not None
    assert report.divergence.metric == LEARNING_RATE
    assert "shifted schedule" in report.divergence.cause


def test_a_difference_from_the_third_iteration_points_at_betas() -> None:
    other = [value + (0.0 if i < 2 else 0.02 * (i - 1)) for i, value in enumerate(CURVE)]
    report = compare_logs(log_of(CURVE, head=BF16), log_of(other, head=BF16))
    assert report.divergence is not None
    assert report.divergence.iteration == 3
    assert "betas" in report.divergence.cause


def test_a_jump_is_told_from_growth() -> None:
    jump = [*CURVE[:6], *(value + 0.5 for value in CURVE[6:])]
    growth = [value + 0.0003 * i * i for i, value in enumerate(CURVE)]
    reference = log_of(CURVE, head=BF16)
    jumped = compare_logs(reference, log_of(jump, head=BF16)).divergence
    grown = compare_logs(reference, log_of(growth, head=BF16)).divergence
    assert jumped is not None
    assert grown is not None
    assert (jumped.onset, jumped.iteration) == (Onset.JUMP, 7)
    assert grown.onset is Onset.GROWTH


def test_a_gradient_norm_of_its_own_is_broken() -> None:
    report = compare_logs(log_of(CURVE, head=BF16), log_of(CURVE, norms=[1.414] * 10, head=BF16))
    assert report.verdict is Verdict.BROKEN
    assert report.divergence is not None
    assert report.divergence.metric == GRAD_NORM


def test_other_sample_counts_come_first() -> None:
    text = render(CURVE, head=BF16)
    other = text.replace("consumed samples:           64", "consumed samples:           96")
    report = compare_logs(parse_text_log(text, name="a"), parse_text_log(other, name="b"))
    assert report.divergence is not None
    assert report.divergence.metric == SAMPLES


def test_not_a_number_on_one_side_is_broken_on_both_is_not() -> None:
    bad = [*CURVE[:5], float("nan"), *CURVE[6:]]
    assert compare_logs(log_of(CURVE, head=BF16), log_of(bad, head=BF16)).verdict is Verdict.BROKEN
    assert compare_logs(log_of(bad, head=BF16), log_of(bad, head=BF16)).verdict is Verdict.IDENTICAL


def test_repeats_widen_the_tolerance_to_what_was_measured() -> None:
    noisy = [log_of([value + 0.03 * sign * (i > 0) for i, value in enumerate(CURVE)], head=BF16) for sign in (0, 1, -1)]
    candidate = log_of([value + 0.04 * (i > 0) for i, value in enumerate(CURVE)], head=BF16)
    assert compare_logs(noisy[0], candidate).verdict is Verdict.BROKEN
    report = compare_logs(noisy[0], candidate, reference_repeats=noisy[1:])
    assert report.verdict is Verdict.WITHIN_SPREAD
    assert report.tolerance is not None
    assert report.tolerance.spread_runs == 3


def test_identical_can_be_demanded() -> None:
    other = log_of([value + 1e-4 * (i > 1) for i, value in enumerate(CURVE)], head=BF16)
    reference = log_of(CURVE, head=BF16)
    assert compare_logs(reference, other).verdict is Verdict.WITHIN_ROUNDING
    assert compare_logs(reference, other, options=CompareOptions(expect_identical=True)).verdict is Verdict.BROKEN


def test_a_log_agrees_with_itself(golden: Path) -> None:
    for path in sorted(golden.glob("*.log")):
        log = load_logs([path])[0]
        assert compare_logs(log, log).verdict is Verdict.IDENTICAL, path.name


def test_settings_that_headers_state_differently_are_listed() -> None:
    table = "------- arguments -------\n  accumulate_allreduce_grads_in_fp32 ...... {}\n  train_iters .... 10\n"
    one = log_of(CURVE, head=table.format("True").replace("------- arguments -------", "-" * 8 + " arguments " + "-" * 8))
    other = log_of(CURVE, head=table.format("False").replace("------- arguments -------", "-" * 8 + " arguments " + "-" * 8))
    found = compare_logs(one, other).fact_differences
    assert [(item.name, item.reference, item.candidate) for item in found] == [
        ("accumulate_allreduce_grads_in_fp32", "True", "False")
    ]


TABLE = """\
------------------------ arguments ------------------------
  bf16 ............................................ True
  group_query_attention ........................... {grouped}
  hidden_size ..................................... 128
  moe_router_topk ................................. 2
  num_attention_heads ............................. 4
  num_experts ..................................... {experts}
  num_layers ...................................... 2
  num_query_groups ................................ 1
  padded_vocab_size ............................... None
  vocab_size ...................................... 1000
"""
SUMMARY = """\
Configuration Summary (Non-Default Values vs Megatron Core)
[model] Non-default values (vs Mcore TransformerConfig):
  bf16: True  (Mcore default: False)
  num_query_groups: 4  (Mcore default: None)
  num_attention_heads: 4  (Mcore default: 0)
{more}
[tokenizer]:
  vocab_size: 1000
"""
ROW = " iteration 1/ 1 | consumed samples: 8 | lm loss: 6.953119E+00 |\n"


@pytest.mark.parametrize(
    ("grouped", "experts", "more", "reason"),
    [
        ("False", "None", "", ""),
        ("True", "None", "", "num_query_groups 1 / 4"),
        ("False", "8", "  num_moe_experts: 8\n  moe_router_topk: 4", "moe_router_topk 2 / 4"),
        ("False", "8", "  num_moe_experts: 4\n", "num_experts 8 / 4"),
        ("False", "None", "  num_layers: 3\n", "num_layers 2 / 3"),
    ],
)
def test_only_what_acts_makes_another_architecture(grouped: str, experts: str, more: str, reason: str) -> None:
    mlm = parse_text_log(TABLE.format(grouped=grouped, experts=experts) + ROW, name="a")
    bridge = parse_text_log(SUMMARY.format(more=more) + ROW, name="b")
    report = compare_logs(mlm, bridge)
    assert (report.verdict is Verdict.NOT_COMPARABLE) == bool(reason)
    assert reason in report.summary


def test_a_loss_that_is_no_number_is_the_cause_by_itself() -> None:
    bad = [*CURVE[:5], float("nan"), *CURVE[6:]]
    report = compare_logs(log_of(CURVE, head=BF16), log_of(bad, head=BF16))
    assert report.divergence is not None
    assert "the candidate's loss is nan at iteration 6" in report.divergence.cause
    assert "where both are numbers" in report.summary


def test_iterations_of_one_log_alone_are_said() -> None:
    whole = log_of(CURVE, head=BF16)
    later = dataclasses.replace(whole, name="later", steps={n: row for n, row in whole.steps.items() if n > 4})
    report = compare_logs(whole, later)
    assert report.verdict is Verdict.IDENTICAL
    assert any("4 iterations from 1 to 4 are in made alone" in note for note in report.notes)
    none = dataclasses.replace(whole, name="none", steps={n + 100: row for n, row in whole.steps.items()})
    assert "made has iterations 1 to 10; none has iterations 101 to 110" in compare_logs(whole, none).summary


def test_two_ranks_in_one_line_are_no_restart() -> None:
    rows = render(CURVE, head=BF16).splitlines()
    glued = parse_text_log("\n".join([rows[0], *(row + row for row in rows[1:])]) + "\n", name="glued")
    assert not any("restart" in note for note in glued.notes)
    assert len(glued.steps) == 10


def test_a_finer_form_of_the_same_numbers_is_identical() -> None:
    """An event file keeps single precision: a rate of 2.318019E-04 comes back as 2.3180186e-04."""
    printed = log_of(CURVE, rates=[2.318019e-4] * 10, head=BF16)
    for error, verdict in ((5.4e-11, Verdict.IDENTICAL), (2e-10, Verdict.BROKEN)):
        rows = {
            n: {**row, LEARNING_RATE: Reading(value=2.318019e-4 + error, resolution=1.4e-11)} for n, row in printed.steps.items()
        }
        found = compare_logs(printed, dataclasses.replace(printed, steps=rows), options=CompareOptions(expect_identical=True))
        assert found.verdict is verdict
    last = log_of(CURVE, rates=[2.318020e-4] * 10, head=BF16)
    assert compare_logs(printed, last, options=CompareOptions(expect_identical=True)).verdict is not Verdict.IDENTICAL
