from typing import Any

import pytest

from autorecipe.engine.loop.batch import check_batch
from autorecipe.engine.loop.settings import read_settings
from autorecipe.errors import UsageError
from autorecipe.schema.run import RunConfig

MINIMUM = {"train.train_iters": 10, "train.global_batch_size": 32, "train.micro_batch_size": 4, "dataset.seq_length": 512}


def run_with(**extra: Any) -> RunConfig:
    return RunConfig(values={**MINIMUM, **{path.replace("__", "."): value for path, value in extra.items()}})


def test_every_missing_field_is_named_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        read_settings(RunConfig(values={}))
    paths = {problem.path for problem in caught.value.problems}
    assert paths == {"train.train_iters", "train.global_batch_size", "train.micro_batch_size", "dataset.seq_length"}


def test_evaluation_batches_fall_back_to_training_batches() -> None:
    settings = read_settings(run_with())
    assert (settings.eval_global_batch_size, settings.eval_micro_batch_size) == (32, 4)


def test_validation_samples_count_one_evaluation_more_than_the_interval_gives() -> None:
    settings = read_settings(run_with(validation__eval_interval=10, validation__eval_iters=2))
    assert settings.valid_samples == 2 * 2 * 32
    assert settings.test_samples == 2 * 32
    late = read_settings(run_with(validation__eval_interval=5, validation__eval_iters=2, validation__start_eval_at_iter=10))
    assert late.valid_samples == (10 // 5 + 1 - 10 // 5) * 2 * 32


def test_a_run_counted_in_samples_gets_its_iterations() -> None:
    settings = read_settings(RunConfig(values={**MINIMUM, "train.train_iters": None, "train.train_samples": 100}))
    assert settings.train_iters == 100 // 32


def test_a_run_resumes_from_where_it_saves() -> None:
    assert str(read_settings(run_with(checkpoint__save="a/b")).load_dir) == "a/b"
    assert str(read_settings(run_with(checkpoint__save="a/b", checkpoint__load="c")).load_dir) == "c"


@pytest.mark.parametrize("value", [[16, 8], [64, 8, 100], [15, 8, 100], "16 8 100"])
def test_a_ramp_up_that_cannot_be_followed_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="rampup_batch_size"):
        read_settings(run_with(train__rampup_batch_size=value))


def test_batches_that_ranks_do_not_divide_are_refused_with_the_sizes_that_they_do() -> None:
    settings = read_settings(run_with(train__global_batch_size=30))
    with pytest.raises(UsageError) as caught:
        check_batch(settings, data_parallel_size=2)
    problem = caught.value.problems[0]
    assert "30" in problem.message and "8" in problem.message
    assert "24 or 32" in problem.hint
    check_batch(read_settings(run_with(train__global_batch_size=32)), data_parallel_size=2)
