"""A run that is killed at any moment and started again ends bit-identical to one that was left alone."""

import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Outcome, read_trace

pytestmark = pytest.mark.xdist_group("ranks")

LAYOUT: dict[str, Any] = {
    "model.tensor_model_parallel_size": 2,
    "model.sequence_parallel": True,
    "train.train_iters": 30,
    "checkpoint.save_interval": 3,
    "checkpoint.most_recent_k": 2,
}


def kill_until_done(
    train_ranks: Callable[..., Outcome], folder: Path, *, values: dict[str, Any], kills: int, seed: int
) -> tuple[int, Outcome, float]:
    """Train whole beside a run that is killed at random moments, and return (kills done, last outcome, whole run's time)."""
    whole = train_ranks(folder / "whole", ranks=2, values=values)
    assert whole.codes == [0, 0], whole.log
    generator = random.Random(seed)
    done = 0
    while done < kills:
        moment = generator.uniform(0.2, whole.seconds)
        outcome = train_ranks(folder / "killed", ranks=2, values=values, signal=signal.SIGKILL, signal_at=moment)
        if outcome.codes == [0, 0]:  # it was quicker than the kill: begin another run
            break
        assert all(code == -signal.SIGKILL for code in outcome.codes), outcome.log
        done += 1
    last = train_ranks(folder / "killed", ranks=2, values=values)
    assert last.codes == [0, 0], last.log
    return done, last, whole.seconds


@pytest.mark.parametrize("asynchronous", [False, True])
def test_kills_at_random_moments_change_nothing(train_ranks: Callable[..., Outcome], tmp_path: Path, asynchronous: bool) -> None:
    values = {**LAYOUT, "checkpoint.async_save": asynchronous}
    kill_until_done(train_ranks, tmp_path, values=values, kills=2, seed=asynchronous)
    assert read_trace(tmp_path / "killed") == read_trace(tmp_path / "whole")
