from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autorecipe.parity.tolerance import RoundingModel, measure_spread, student_quantile, width_factor
from autorecipe.schema.parity import GRAD_NORM, LEARNING_RATE, LOSS, Precision, Reading

GOLDEN = Path(__file__).parents[2] / "golden" / "parity"


def curve(values: list[float]) -> dict[int, Reading]:
    return {number: Reading(value=value) for number, value in enumerate(values, start=1)}


@settings(deadline=None)
@given(st.lists(st.floats(0.5, 12.0), min_size=1, max_size=40))
def test_coarser_arithmetic_never_tightens_the_tolerance(values: list[float]) -> None:
    order = (Precision.FP32, Precision.FP16, Precision.BF16, Precision.FP8)
    for metric in (LOSS, GRAD_NORM):
        rows = [RoundingModel(precision).series(metric, curve(values), curve(values)) for precision in order]
        for number in rows[0]:
            tolerances = [row[number] for row in rows]
            assert tolerances == sorted(tolerances)


@settings(deadline=None)
@given(st.lists(st.floats(0.5, 12.0), min_size=1, max_size=40))
def test_loss_tolerance_stays_below_its_cap(values: list[float]) -> None:
    tolerances = RoundingModel(Precision.BF16).series(LOSS, curve(values), curve(values))
    assert all(tolerances[number] <= 4 * 2**-8 * value * 1.0001 for number, value in enumerate(values, start=1))


def test_more_tokens_in_a_step_tighten_the_first_iteration() -> None:
    few = RoundingModel(Precision.BF16, 1024).series(LOSS, curve([10.0]), curve([10.0]))[1]
    many = RoundingModel(Precision.BF16, 1_048_576).series(LOSS, curve([10.0]), curve([10.0]))[1]
    assert many < few / 10


PAIRS = [json.loads(line) for line in (GOLDEN / "first_iteration.jsonl").read_text().splitlines()]
"""First losses and gradient norms of one configuration in two layouts, bf16, by hidden size, tokens, model and seed."""


def first_tolerance(pair: dict[str, Any], metric: str = LOSS) -> float:
    values = pair["losses"] if metric == LOSS else pair["norms"]
    digit = 1e-6 if metric == LOSS else 1e-3
    one, other = ({1: Reading(value=value, resolution=digit)} for value in values)
    return RoundingModel(Precision.BF16, pair["tokens"], hidden_size=pair["hidden"]).series(metric, one, other)[1]


def test_every_measured_pair_is_within_the_first_iteration_s_tolerance() -> None:
    assert len(PAIRS) == 44
    for pair in PAIRS:
        assert abs(pair["losses"][1] - pair["losses"][0]) <= first_tolerance(pair), pair
        assert abs(pair["norms"][1] - pair["norms"][0]) <= first_tolerance(pair, GRAD_NORM), pair


def test_the_first_iteration_s_tolerance_is_no_wider_than_the_measurements_ask_for() -> None:
    groups: dict[tuple[int, int], list[float]] = {}
    for pair in PAIRS:
        gap = abs(pair["losses"][1] - pair["losses"][0])
        groups.setdefault((pair["hidden"], pair["tokens"]), []).append(gap / first_tolerance(pair))
    for shares in groups.values():
        assert max(shares) > 0.25


def test_another_seed_is_never_within_the_first_iteration_s_tolerance() -> None:
    for one, other in itertools.combinations(PAIRS, 2):
        same = all(one[name] == other[name] for name in ("model", "hidden", "tokens"))
        if same:
            assert abs(one["losses"][0] - other["losses"][1]) > first_tolerance(one), (one, other)


def test_wider_models_round_more() -> None:
    factors = [width_factor(size) for size in (64, 256, 512, 513, 4096)]
    assert factors == sorted(factors)
    assert factors[:3] == [0.5, 1.0, 2.0]
    assert width_factor(None) == 1.0


def test_the_learning_rate_is_held_to_the_printed_digit() -> None:
    tolerance = RoundingModel(Precision.BF16).series(LEARNING_RATE, curve([3e-4]), curve([3e-4]))[1]
    assert tolerance < 1e-9


@pytest.mark.parametrize("runs", [2, 3, 5])
def test_a_further_run_falls_inside_the_measured_spread(runs: int) -> None:
    source = random.Random(7)
    outside = total = 0
    for _ in range(40):
        samples = [curve([8.0 + source.gauss(0, 0.01) for _ in range(30)]) for _ in range(runs + 1)]
        spread = measure_spread(samples[:runs])
        means = {n: sum(run[n].value for run in samples[:runs]) / runs for n in spread}
        outside += sum(abs(samples[runs][n].value - means[n]) > spread[n] for n in spread)
        total += len(spread)
    assert outside / total < 0.01


def test_equal_runs_have_no_spread() -> None:
    assert set(measure_spread([curve([3.0, 2.0]), curve([3.0, 2.0])]).values()) == {0.0}


def test_quantiles_fall_with_the_degrees_of_freedom() -> None:
    values = [student_quantile(degrees) for degrees in range(1, 100)]
    assert values == sorted(values, reverse=True)
    assert student_quantile(9) == student_quantile(8)
