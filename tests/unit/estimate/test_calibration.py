import json
from pathlib import Path

import pytest

from autorecipe.catalog.hardware import load_gpus
from autorecipe.estimate.calibration import load_errors, load_memory, load_shapes, load_throughput, memory_class, time_class
from autorecipe.estimate.inputs import read_inputs
from autorecipe.estimate.memory import MemoryModel
from autorecipe.estimate.time import TimeModel
from autorecipe.schema import RunConfig
from autorecipe.schema.estimate import LayerImplementation

ROOT = Path(__file__).resolve().parents[3]
TRACES = ROOT / "tests/golden/estimate/traces.jsonl"


def test_every_measurement_names_its_source_and_fits_its_world():
    gpus = load_gpus()
    rows = [*load_throughput(), *load_memory()]
    assert len(rows) > 800
    for row in rows:
        assert row.source
        assert row.policy_from
        assert row.gpu in gpus
        assert row.step_seconds > 0 or row.peak_bytes > 0
        assert row.gpus % row.layout.dense_model_parallel_size == 0


def test_every_class_of_a_measurement_has_a_published_error():
    errors = load_errors()
    for row in load_throughput():
        if row.is_megatron and not row.flag and row.group != "functional":
            assert time_class(row.shape, row.policy) in errors["time"]
    for row in load_memory():
        if row.is_megatron and not row.flag:
            assert memory_class(row.shape, row.policy) in errors["memory"]


def test_dense_step_times_are_close_to_published_ones():
    gpus = load_gpus()
    rows = [row for row in load_throughput() if row.is_megatron and not row.flag and not row.shape.is_moe and not row.group]
    errors = []
    for row in rows[::4]:
        model = TimeModel(row.shape, policy=row.policy, gpu=gpus[row.gpu])
        errors.append(abs(model.step_seconds(row.layout, row.batch, row.gpus) / row.step_seconds - 1))
    errors.sort()
    assert errors[len(errors) // 2] < 0.10
    assert errors[int(0.9 * len(errors))] < 0.25


def test_dense_peaks_are_close_to_published_ones():
    rows = [row for row in load_memory() if row.group == "dense CI model" and not row.flag]
    errors = []
    for row in rows:
        stage = MemoryModel(row.shape, policy=row.policy).estimate(layout=row.layout, batch=row.batch, world_size=row.gpus)[-1]
        errors.append(abs(stage.peak_bytes / row.peak_bytes - 1))
    errors.sort()
    assert errors[len(errors) // 2] < 0.03
    assert errors[int(0.9 * len(errors))] < 0.10


def traced():
    import sys

    sys.path.insert(0, str(ROOT / "bench"))
    try:
        from layouts import LAYOUTS
    finally:
        sys.path.pop(0)
    known = {row["name"]: row for row in map(json.loads, TRACES.read_text(encoding="utf-8").splitlines())}
    return [(layout, known[layout.name]) for layout in LAYOUTS if layout.name in known]


@pytest.mark.parametrize(("layout", "measured"), traced(), ids=lambda value: getattr(value, "name", ""))
def test_the_closed_form_agrees_with_the_traced_model(layout, measured):
    inputs = read_inputs(RunConfig(values=layout.values), layers=LayerImplementation.LOCAL, on_gpu=False)
    model = MemoryModel(inputs.shape, policy=inputs.policy)
    stage = model.estimate(layout=inputs.layout, batch=inputs.batch, world_size=layout.gpus)[layout.stage]
    assert stage.layers == measured["layers"]
    assert stage.parameters == pytest.approx(measured["parameters"], rel=1e-6)
    assert stage.weights_bytes == pytest.approx(measured["weights_bytes"], rel=1e-6)
    assert stage.optimizer_bytes == pytest.approx(measured["optimizer_bytes"], rel=0.002)
    peak = sum(measured[f"{part}_bytes"] for part in ("weights", "gradients", "optimizer", "activations"))
    assert stage.peak_bytes == pytest.approx(peak, rel=0.02)


def test_shapes_of_measured_models_are_whole():
    for name, shape in load_shapes().items():
        assert shape.vocab_size > 0, name
        assert shape.num_layers > 0, name
