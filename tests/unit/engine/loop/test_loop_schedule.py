from typing import Any

import pytest

from autorecipe.engine.loop.schedule import build_scheduler, read_schedule
from autorecipe.engine.loop.settings import read_settings
from autorecipe.errors import UsageError
from autorecipe.schema.run import RunConfig

BASE = {
    "train.train_iters": 10,
    "train.global_batch_size": 32,
    "train.micro_batch_size": 4,
    "dataset.seq_length": 512,
    "optimizer.lr": 3e-4,
    "optimizer.min_lr": 3e-5,
}


def schedule_of(**extra: Any) -> Any:
    run = RunConfig(values={**BASE, **{path.replace("__", "."): value for path, value in extra.items()}})
    return read_schedule(run, read_settings(run))


class Groups:
    """Stands for an optimizer: the schedule only writes into its parameter groups."""

    def __init__(self) -> None:
        self.param_groups: list[dict[str, Any]] = [{"default_config": True, "wd_mult": 1.0}, {"wd_mult": 0.0}]


def rates(schedule: Any, steps: int) -> list[str]:
    groups = Groups()
    scheduler = build_scheduler(schedule, groups)
    printed = []
    for _ in range(steps):
        scheduler.step(increment=32)
        printed.append(f"{groups.param_groups[0]['lr']:.6E}")
    return printed


def test_linear_rates_equal_megatron_lms_log() -> None:
    printed = rates(schedule_of(scheduler__lr_decay_style="linear"), 10)
    assert printed[0] == "2.730000E-04" and printed[1] == "2.460000E-04" and printed[-1] == "3.000000E-05"


def test_cosine_rates_with_warmup_equal_bridges_log() -> None:
    printed = rates(
        schedule_of(scheduler__lr_decay_style="cosine", scheduler__lr_warmup_iters=1, scheduler__lr_decay_iters=10), 7
    )
    assert printed == [
        "3.000000E-04", "2.918585E-04", "2.684160E-04", "2.325000E-04", "1.884425E-04", "1.415575E-04", "9.750000E-05",
    ]  # fmt: skip


def test_a_warmup_longer_than_the_run_is_cut_and_said() -> None:
    schedule = schedule_of(scheduler__lr_warmup_iters=500)
    assert schedule.warmup_samples == 10 * 32 - 1
    assert "lr_warmup_iters" in schedule.notes[0]


def test_the_weight_decay_that_acts_is_the_schedules_and_said() -> None:
    schedule = schedule_of(optimizer__weight_decay=0.1, scheduler__start_weight_decay=0.033, scheduler__end_weight_decay=0.033)
    assert schedule.start_weight_decay == schedule.end_weight_decay == 0.033
    assert "0.033" in schedule.notes[0] and "0.1" in schedule.notes[0]
    assert schedule_of(optimizer__weight_decay=0.1).start_weight_decay == 0.1


def test_a_fraction_of_warmup_counts_from_the_decay() -> None:
    assert schedule_of(scheduler__lr_warmup_fraction=0.25).warmup_samples == 0.25 * 320


def test_a_run_without_a_learning_rate_is_refused() -> None:
    with pytest.raises(UsageError, match=r"optimizer\.lr"):
        schedule_of(optimizer__lr=None)
