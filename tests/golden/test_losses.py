"""Recorded training runs against what Megatron-LM's pretrain_gpt.py printed on the same machine (one H200, one CPU).

The files hold one step a line: iteration, lm loss, gradient norm, learning rate. docs/reference/engine-speed.md says how to make
them again.
"""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
LOSSES = Path(__file__).parent / "losses"
sys.path[:0] = [str(TESTS), str(TESTS / "gpu")]

import golden_runs  # noqa: E402

import tolerances  # noqa: E402

RECORDED = sorted(path for path in LOSSES.glob("*__*.txt") if not path.stem.endswith("__megatron-lm"))


def read(path):
    return [tuple(line.split()) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_every_iteration_agrees(path):
    name = path.stem.split("__")[0]
    expected = golden_runs.undo_average(read(LOSSES / f"{name}__megatron-lm.txt"))
    bound = tolerances.GOLDEN[golden_runs.bound_name(name)]
    actual = read(path)
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours[3] == theirs[3]  # the learning rate as printed
        assert float(ours[1]) == pytest.approx(float(theirs[1]), rel=bound.loss)
        assert float(ours[2]) == pytest.approx(float(theirs[2]), rel=bound.grad_norm)


def test_on_one_cpu_every_printed_digit_is_megatron_lms():
    """Both programs on the same machine, one thread: docs/decisions/0004-digits-of-a-cpu.md."""
    expected = golden_runs.undo_average(read(LOSSES / "cpu_gpt_bf16__megatron-lm.txt"))
    assert read(LOSSES / "cpu_gpt_bf16__core-local.txt") == expected
    assert len(expected) == 10


def test_both_kinds_of_modules_are_recorded():
    names = {path.stem for path in RECORDED}
    assert {"llama_fp32__own", "llama_fp32__core-local", "moe_fp32__own", "seed_bf16__core-local"} <= names
