from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from autorecipe.errors import UsageError
from autorecipe.parity.html import _thin
from autorecipe.parity.metrics import parse_reading
from autorecipe.parity.source import load_log, load_logs
from autorecipe.schema.parity import GRAD_NORM, LOSS, Framework, LogForm, Point, Precision


def test_json_lines_with_facts_nesting_and_other_spellings(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [
        {"framework": "autorecipe", "precision": "fp32", "train_iters": 3},
        {"step": 1, "metrics": {"loss": 9.5, "grad_norm": 1.25}, "lr": 1e-3},
        {"iteration": 2, "lm loss": 9.25},
        {"iteration": 2, "grad-norm": 1.5},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + '\n{"iteration": 3, "lm lo')
    log = load_logs([path])[0]
    assert log.form is LogForm.JSON_LINES
    assert (log.framework, log.precision, log.announced_iterations) == (Framework.AUTORECIPE, Precision.FP32, 3)
    assert {n: r.value for n, r in log.series(LOSS).items()} == {1: 9.5, 2: 9.25}
    assert {n: r.value for n, r in log.series(GRAD_NORM).items()} == {1: 1.25, 2: 1.5}
    assert any("1 lines" in note for note in log.notes)


def test_gzipped_logs_are_read(tmp_path: Path, golden: Path) -> None:
    path = tmp_path / "run.log.gz"
    path.write_bytes(gzip.compress((golden / "gpt_2l256h_bf16__bridge_matched.log").read_bytes()))
    assert len(load_logs([path])[0].steps) == 10


def test_event_files_are_read_from_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(tmp_path / "tb"))
    for step in (1, 2, 3):
        values = [("lm loss", 10.0 - step), ("grad-norm", 0.5), ("lm loss vs samples", -1.0)]
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values])
        writer.add_event(Event(step=step, summary=summary))
    writer.close()
    log = load_logs([tmp_path])[0]
    assert log.form is LogForm.TENSORBOARD
    assert {n: r.value for n, r in log.series(LOSS).items()} == {1: 9.0, 2: 8.0, 3: 7.0}
    assert set(log.steps[1]) == {LOSS, GRAD_NORM}


def test_all_unreadable_logs_are_reported_at_once(tmp_path: Path) -> None:
    empty = tmp_path / "empty.log"
    empty.write_text("nothing here\n")
    with pytest.raises(UsageError) as caught:
        load_logs([tmp_path / "absent.log", empty])
    assert [problem.code for problem in caught.value.problems] == ["no-such-log", "empty-log"]


def test_text_in_utf_16_is_read_as_powershell_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(" iteration 1/ 2 | lm loss: 5.5 |\n iteration 2/ 2 | lm loss: 5.4 |\n".encode("utf-16"))
    log = load_log(path)
    assert log is not None
    assert [row["lm loss"].value for row in log.steps.values()] == [5.5, 5.4]


@pytest.mark.parametrize(
    ("text", "value", "resolution"),
    [
        ("1.042335E+01", 10.42335, 1e-5),
        (" 0.693", 0.693, 1e-3),
        (".5", 0.5, 0.1),
        ("3e-4", 3e-4, 1e-4),
        ("32", 32, 0),
        ("-7", -7, 0),
    ],
)
def test_a_printed_number_knows_what_its_last_digit_is_worth(text: str, value: float, resolution: float) -> None:
    reading = parse_reading(text)
    assert reading is not None
    assert (reading.value, reading.resolution) == pytest.approx((value, resolution))


def test_infinities_have_no_resolution_and_words_are_no_numbers() -> None:
    infinite = parse_reading("-inf")
    assert infinite is not None
    assert (infinite.value, infinite.resolution) == (float("-inf"), 0.0)
    assert parse_reading("1.2.3") is None
    assert parse_reading("e5") is None


def test_a_long_curve_is_thinned_and_keeps_its_spikes() -> None:
    points = tuple(
        Point(iteration=n, reference=1.0, candidate=1.0 if n != 4711 else 9.0, tolerance=0.1) for n in range(1, 50_001)
    )
    shown = _thin(points)
    assert len(shown) <= 4 * 900 + 2
    assert 9.0 in [point.candidate for point in shown]
