"""The closed form against peaks of fine-tuning, measured on one H200 (`python bench/memory_finetune_h200.py --out FILE`).

Several configurations shared the GPU while they were measured, so what lies outside torch's allocator was not recorded.
"""

import json
from pathlib import Path

import pytest

from autorecipe.estimate.inputs import read_inputs
from autorecipe.estimate.memory import MemoryModel
from autorecipe.schema.estimate import LayerImplementation
from autorecipe.schema.run import RunConfig

PEAKS = Path(__file__).parents[2] / "golden" / "estimate" / "h200_finetune_peaks.jsonl"
ROWS = [json.loads(line) for line in PEAKS.read_text(encoding="utf-8").splitlines()]


def estimate(row):
    inputs = read_inputs(RunConfig(values=row["values"]), layers=LayerImplementation.LOCAL)
    return MemoryModel(inputs.shape, policy=inputs.policy).peak_bytes(inputs.layout, inputs.batch, 1)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_full_fine_tuning_lora_and_dora_are_met_within_a_fifth_of_a_percent(row):
    assert abs(estimate(row) / row["allocated_bytes"] - 1) < 0.002


def test_what_lora_saves_is_predicted():
    by_name = {row["name"]: row for row in ROWS}
    full, lora = by_name["8b width, 8 layers, sft 4096"], by_name["8b width, 8 layers, lora 4096"]
    assert full["allocated_bytes"] / lora["allocated_bytes"] == pytest.approx(4.21, abs=0.005)
    assert estimate(full) / estimate(lora) == pytest.approx(4.21, rel=0.01)
