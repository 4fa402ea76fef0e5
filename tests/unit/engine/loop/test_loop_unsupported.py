from typing import Any

import pytest

from autorecipe.engine.loop.unsupported import REFUSED, SAID, check_supported
from autorecipe.errors import UsageError
from autorecipe.schema.run import RunConfig


def run_with(values: dict[str, Any]) -> RunConfig:
    return RunConfig(values=values)


def test_settings_that_ask_for_nothing_pass_in_silence() -> None:
    neutral = {path: values[0] if values else None for path, (values, _) in REFUSED.items()}
    neutral |= {path: values[0] if values else None for path, values in SAID.items()}
    assert check_supported(run_with(neutral)) == ()


def test_settings_that_would_train_something_else_are_refused_all_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        check_supported(
            run_with({"train.num_epochs": 1, "checkpoint.ckpt_format": "torch", "dataset._class": "EnergonDatasetConfig"})
        )
    assert [problem.path for problem in caught.value.problems] == ["train.num_epochs", "checkpoint.ckpt_format", "dataset"]
    assert all("--engine bridge" in problem.hint for problem in caught.value.problems)


def test_settings_without_influence_on_the_training_are_said() -> None:
    notes = check_supported(run_with({"logger.mlflow_experiment": "x", "profiling.use_nsys_profiler": True}))
    assert notes == (
        "logger.mlflow_experiment='x' has no effect in --engine core",
        "profiling.use_nsys_profiler=True has no effect in --engine core",
    )


def test_an_adapter_without_weights_to_adapt_is_refused() -> None:
    with pytest.raises(UsageError, match="needs the weights that it adapts"):
        check_supported(run_with({"peft._class": "LoRA"}))
    assert check_supported(run_with({"peft._class": "LoRA", "checkpoint.pretrained_checkpoint": "x"})) == ()
