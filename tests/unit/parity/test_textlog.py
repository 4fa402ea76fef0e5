from __future__ import annotations

from pathlib import Path

import pytest

from autorecipe.parity.metrics import parse_reading
from autorecipe.parity.textlog import parse_text_log
from autorecipe.schema.parity import GRAD_NORM, LEARNING_RATE, LOSS, SAMPLES, Framework, Precision


def line(number: int, loss: str = "9.5E+00", *, total: int = 3, prefix: str = "") -> str:
    return (
        f"{prefix} iteration {number:8d}/{total:8d} | consumed samples: {number * 8:12d} | learning rate: 3.000000E-04 |"
        f" lm loss: {loss} | grad norm: 0.693 |"
    )


def losses(text: str) -> dict[int, float]:
    return {number: reading.value for number, reading in parse_text_log(text, name="x").series(LOSS).items()}


def test_reads_every_metric_of_a_real_line(golden: Path) -> None:
    log = parse_text_log((golden / "gpt_2l256h_bf16__mlm_documented.log").read_text(), name="mlm")
    assert list(log.steps) == list(range(1, 11))
    first = log.steps[1]
    assert (first[LOSS].value, first[LOSS].resolution) == (10.42335, pytest.approx(1e-5))
    assert first[GRAD_NORM].value == 0.693
    assert first[LEARNING_RATE].value == 2.73e-4
    assert first[SAMPLES].value == 32
    assert log.announced_iterations == 10
    assert log.num_parameters == 9903104
    assert log.tokens_per_step == 32 * 512


@pytest.mark.parametrize(
    ("file", "framework", "precision"),
    [
        ("gpt_2l256h_bf16__mlm_documented.log", Framework.MEGATRON_LM, Precision.BF16),
        ("gpt_2l256h_bf16__bridge_matched.log", Framework.BRIDGE, None),
        ("gpt_2l256h_fp32__mlm_h200.log", Framework.MEGATRON_LM, Precision.FP32),
    ],
)
def test_recognises_the_program_and_its_arithmetic(
    golden: Path, file: str, framework: Framework, precision: Precision | None
) -> None:
    log = parse_text_log((golden / file).read_text(), name=file)
    assert (log.framework, log.precision) == (framework, precision)


@pytest.mark.parametrize(
    ("stamp", "framework"),
    [
        ("[2026-12-01 05:36:09.965169]", Framework.MEGATRON_LM),
        ("[2026-12-01 05:36:09]", Framework.BRIDGE),
        ("", Framework.UNKNOWN),
    ],
)
def test_without_a_header_the_time_stamp_tells(stamp: str, framework: Framework) -> None:
    assert parse_text_log(line(1, prefix=stamp), name="x").framework is framework


@pytest.mark.parametrize(
    "prefix",
    ["[default3]:", "3: ", "[rank0]: [2026-12-01 05:36:09]", "node-07: 12: ", "[1,0]<stdout>:", "\x1b[32mINFO\x1b[0m "],
)
def test_prefixes_do_not_matter(prefix: str) -> None:
    text = "\n".join(line(number, f"{number}.5E+00", prefix=prefix) for number in (1, 2, 3)) + "\n"
    assert losses(text) == {1: 1.5, 2: 2.5, 3: 3.5}


def test_colours_inside_a_number_do_not_matter() -> None:
    assert losses(line(1, "\x1b[1m9.5E+00\x1b[0m") + "\r\n") == {1: 9.5}


def test_interleaved_ranks_count_once() -> None:
    text = "\n".join(line(number, prefix=f"[rank{rank}]:") for number in (1, 2) for rank in (1, 0)) + "\n"
    log = parse_text_log(text, name="x")
    assert list(log.steps) == [1, 2]
    assert any("ranks that print the same" in note for note in log.notes)


def test_ranks_that_disagree_are_reported() -> None:
    text = line(1, "9.5E+00", prefix="[rank0]:") + "\n" + line(1, "9.6E+00", prefix="[rank1]:") + "\n"
    log = parse_text_log(text, name="x")
    assert log.series(LOSS)[1].value == 9.5
    assert any("other numbers" in note for note in log.notes)


def test_two_ranks_in_one_line_are_two_reports() -> None:
    text = line(1, "9.5E+00", prefix="[rank0]:") + line(2, "9.4E+00", prefix=" [rank1]:") + "\n"
    assert losses(text) == {1: 9.5, 2: 9.4}


def test_a_restart_keeps_the_later_lines() -> None:
    text = "\n".join([line(1, "9.0E+00"), line(2, "8.0E+00"), line(2, "8.1E+00"), line(3, "7.0E+00")]) + "\n"
    log = parse_text_log(text, name="x")
    assert log.series(LOSS)[2].value == 8.1
    assert any("restart" in note for note in log.notes)


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_cut_last_line_never_yields_a_wrong_number(cut: int) -> None:
    text = "\n".join(line(number, "9.512345E+00") for number in (1, 2, 3))
    whole = parse_text_log(text, name="x").steps[3]
    log = parse_text_log(text[:-cut], name="x")
    for metric, reading in log.steps.get(3, {}).items():
        assert reading == whole[metric]


def test_validation_lines_are_not_iterations() -> None:
    text = line(1) + "\n validation loss at iteration 1 | lm loss value: 9.1E+00 | lm loss PPL: 9E+03 |\n"
    assert losses(text) == {1: 9.5}


def test_the_argument_table_is_read() -> None:
    table = (
        "------------------------ arguments ------------------------\n"
        "  accumulate_allreduce_grads_in_fp32 .............. False\n"
        "  bf16 ............................................ True\n"
        "  micro_batch_size ................................ 2\n"
    )
    log = parse_text_log(table + line(1) + "\n", name="x")
    assert log.framework is Framework.MEGATRON_LM
    assert log.facts["accumulate_allreduce_grads_in_fp32"] == "False"
    assert log.precision is Precision.BF16


@pytest.mark.parametrize(
    ("text", "value", "resolution"),
    [("1.042335E+01", 10.42335, 1e-5), ("0.693", 0.693, 1e-3), ("32", 32.0, 0.0), ("2.73E-04", 2.73e-4, 1e-6)],
)
def test_resolution_is_the_last_printed_digit(text: str, value: float, resolution: float) -> None:
    reading = parse_reading(text)
    assert reading is not None
    assert reading.value == pytest.approx(value)
    assert reading.resolution == pytest.approx(resolution)


@pytest.mark.parametrize("text", ["", "abc", "1.0.0", "12 34", "0x10"])
def test_what_is_not_a_number_is_none(text: str) -> None:
    assert parse_reading(text) is None


def test_the_summary_that_bridge_prints_is_read_and_nothing_beside_it() -> None:
    text = """\
/somewhere/autorecipe/engine/upstream/megatron_bridge.py:55: UserWarning: Function 'pretrain' is experimental.
======
Configuration Summary (Non-Default Values vs Megatron Core)
======

[model] Non-default values (vs Mcore TransformerConfig):
  bf16: True  (Mcore default: False)
  num_query_groups: 4  (Mcore default: None)

[train]:
  global_batch_size: 8

[dataset]:
  seq_length: 128
  split: '1,1,1'

  not_a_setting: 1
INFO: Using reduce-scatter for gradient reductions because self.ddp_config.use_distributed_optimizer=True
 [2026-12-01 13:54:32] iteration        1/       6 | consumed samples:            8 | lm loss: 6.953119E+00 |
"""
    log = parse_text_log(text, name="bridge.log")
    assert (log.framework, log.precision, log.tokens_per_step) == (Framework.BRIDGE, Precision.BF16, 1024)
    assert log.facts == {
        "model.bf16": "True",
        "model.num_query_groups": "4",
        "train.global_batch_size": "8",
        "dataset.seq_length": "128",
        "dataset.split": "1,1,1",
    }
