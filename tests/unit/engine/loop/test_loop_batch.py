"""Batches that grow, held to the calculator of Megatron-Core 0.16; later releases no longer grow any."""

import pytest
from megatron.core import num_microbatches_calculator as calculator

from autorecipe.engine.loop.batch import BatchPlan
from autorecipe.engine.loop.settings import read_settings
from autorecipe.schema.run import RunConfig

COUNTS = getattr(calculator, "RampupBatchsizeNumMicroBatchesCalculator", None)


@pytest.mark.skipif(COUNTS is None, reason="this release of Megatron-Core grows no batch")
@pytest.mark.parametrize("ramp", [[4, 4, 50], [12, 6, 1], [10, 2, 333], [2, 2, 7]])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_batch_grows_as_megatron_core_counts_it(ramp: list[int], ranks: int) -> None:
    values = {
        "train.train_iters": 9,
        "train.global_batch_size": 36,
        "train.micro_batch_size": 2,
        "train.rampup_batch_size": ramp,
        "train.decrease_batch_size_if_needed": True,
        "validation.eval_iters": 0,
        "dataset.seq_length": 8,
    }
    settings = read_settings(RunConfig(values=values))
    plan = BatchPlan(settings, data_parallel_size=ranks)
    theirs = COUNTS(settings.global_batch_size, 2, ranks, True, 1, *ramp)
    for consumed in range(ramp[2] + 40):
        theirs.update(consumed, consistency_check=False)
        assert plan.update(consumed) == theirs.num_micro_batches
        assert plan.samples == theirs.current_running_global_batch_size
        assert plan.lost_samples == theirs.current_global_batch_size - theirs.current_running_global_batch_size


def test_nothing_to_grow_is_a_constant_batch() -> None:
    for ramp in ([8, 2, 100], [2, 2, 0]):
        values = {"train.train_iters": 9, "train.global_batch_size": 8, "train.micro_batch_size": 2, "dataset.seq_length": 8}
        settings = read_settings(RunConfig(values={**values, "train.rampup_batch_size": ramp}))
        assert BatchPlan(settings, data_parallel_size=1).update(0) == 4
