"""The closed form against peaks of this project's engine, measured on one H200 (`python bench/memory_h200.py --out FILE`)."""

import json
from pathlib import Path

import pytest

from autorecipe.estimate.inputs import read_inputs
from autorecipe.estimate.memory import MemoryModel
from autorecipe.estimate.overhead import outside_bytes
from autorecipe.schema import Layout
from autorecipe.schema.estimate import ExecutionPolicy, LayerImplementation
from autorecipe.schema.run import RunConfig

PEAKS = Path(__file__).parents[2] / "golden" / "estimate" / "h200_peaks.jsonl"
ROWS = [json.loads(line) for line in PEAKS.read_text(encoding="utf-8").splitlines()]


def estimate(row, *, on_gpu=True):
    inputs = read_inputs(RunConfig(values=row["values"]), layers=LayerImplementation.LOCAL, on_gpu=on_gpu)
    return MemoryModel(inputs.shape, policy=inputs.policy).peak_bytes(inputs.layout, inputs.batch, 1)


def rows(*, stale):
    return [pytest.param(row, id=row["name"]) for row in ROWS if ("stale" in row) == stale]


@pytest.mark.parametrize("row", rows(stale=False))
def test_dense_and_latent_attention_peaks_are_met_within_a_fifth_of_a_percent(row):
    assert abs(estimate(row) / row["allocated_bytes"] - 1) < 0.002


@pytest.mark.parametrize("row", rows(stale=True))
def test_expert_peaks_of_an_earlier_engine_are_judged_by_a_trace_of_the_present_one(row):
    assert row["values"]["model.num_moe_experts"]
    assert abs(estimate(row, on_gpu=False) / row["traced_bytes"] - 1) < 0.02
    assert row["traced_bytes"] < row["allocated_bytes"]


def test_device_memory_outside_the_allocator_lies_in_the_stated_interval():
    low, high = outside_bytes(Layout(), world_size=1, policy=ExecutionPolicy())
    for row in ROWS:
        assert low < row["device_bytes"] - row["reserved_bytes"] < high, row["name"]


def test_enough_configurations_were_measured():
    assert len(ROWS) >= 12
