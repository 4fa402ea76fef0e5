import json
from pathlib import Path
from typing import Any

import pytest
import torch

from autorecipe.engine.loop.meter import IntervalMeter
from autorecipe.engine.loop.metrics import JsonLinesSink, Sinks


def test_each_interval_averages_its_own_iterations_only() -> None:
    meter = IntervalMeter()
    meter.add({"lm loss": torch.tensor(4.0)}, skipped=False, is_nan=False)
    assert meter.mean_losses() == {"lm loss": 4.0}
    meter.reset()
    meter.add({"lm loss": torch.tensor(2.0)}, skipped=False, is_nan=False)
    meter.add({"lm loss": torch.tensor(3.0)}, skipped=False, is_nan=False)
    assert meter.mean_losses() == {"lm loss": 2.5}


def test_skipped_updates_are_counted_and_not_averaged() -> None:
    meter = IntervalMeter()
    meter.add({"lm loss": torch.tensor(9.0)}, skipped=True, is_nan=True)
    meter.add({"lm loss": torch.tensor(3.0)}, skipped=False, is_nan=False)
    assert meter.mean_losses() == {"lm loss": 3.0}
    assert (meter.iterations, meter.skipped, meter.nan) == (2, 1, 1)


def test_a_paused_meter_does_not_count_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("autorecipe.engine.loop.meter.time.perf_counter", lambda: now[0])
    meter = IntervalMeter()
    meter.add({}, skipped=False, is_nan=False)
    now[0] = 1.0
    meter.pause()
    now[0] = 50.0
    meter.resume()
    now[0] = 51.0
    assert meter.elapsed_ms() == pytest.approx(2000.0)


def test_a_resumed_trace_drops_steps_that_will_be_done_again_and_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = JsonLinesSink(path, resumed_at=0)
    for iteration in (1, 2, 3):
        sink.write(iteration, {"lm loss": float(iteration)}, consumed_samples=8 * iteration)
    sink.close()
    with path.open("a") as file:
        file.write('{"iteration": 4, "lm l')
    resumed = JsonLinesSink(path, resumed_at=2)
    resumed.write(3, {"lm loss": float("nan")}, consumed_samples=24)
    resumed.close()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [1, 2, 3]
    assert rows[-1]["lm loss"] is None
    JsonLinesSink(path, resumed_at=0).close()
    assert path.read_text() == ""


def test_the_test_sets_record_is_made_again_by_a_resumed_run(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = JsonLinesSink(path, resumed_at=0)
    sink.write(4, {"lm loss": 1.0}, consumed_samples=8)
    sink.write(4, {"lm loss test": 2.0}, consumed_samples=8)
    sink.close()
    JsonLinesSink(path, resumed_at=4).close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"iteration": 4, "consumed_samples": 8, "lm loss": 1.0}
    ]


def test_facts_stand_first_and_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for resumed_at in (0, 1):
        sink = JsonLinesSink(path, resumed_at=resumed_at, facts={"framework": "autorecipe"})
        sink.write(resumed_at + 1, {"lm loss": 1.0}, consumed_samples=8)
        sink.close()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows[0] == {"framework": "autorecipe"}
    assert [row["iteration"] for row in rows[1:]] == [1, 2]


class Disk:
    """A file on a disk that fills up in the middle of a line, and has space again later."""

    name = "metrics.jsonl"

    def __init__(self, file: Any) -> None:
        self.file = file
        self.room: int | None = None

    def write(self, data: bytes) -> int:
        taken = data if self.room is None else data[: self.room]
        self.file.write(taken)
        if self.room is not None:
            self.room -= len(taken)
        return len(taken)

    def close(self) -> None:
        self.file.close()


def test_a_full_disk_costs_numbers_and_not_the_run(tmp_path: Path) -> None:
    path, said = tmp_path / "metrics.jsonl", []
    sink = JsonLinesSink(path, resumed_at=0)
    disk = sink._file = Disk(sink._file)  # type: ignore[assignment]
    sinks = Sinks([sink], say=said.append)
    for iteration in range(1, 6):
        disk.room = {2: 20, 3: 0}.get(iteration)
        sinks.write(iteration, {"lm loss": 1.0}, consumed_samples=iteration)
    sinks.close()
    assert len(said) == 2 and "from iteration 2 on are NOT recorded: [Errno 28]" in said[0] and "from iteration 4 on" in said[1]
    resumed = JsonLinesSink(path, resumed_at=5)
    resumed.close()
    assert [json.loads(line)["iteration"] for line in path.read_text().splitlines()] == [1, 4, 5]
