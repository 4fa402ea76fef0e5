"""How many samples a step has: constant, or ramped up with the samples consumed.

Megatron-Core's calculator does not ramp from 0.19 on (it ignores the argument and says that it is deprecated), so none is asked.
"""

from __future__ import annotations

from autorecipe.engine.loop.settings import LoopSettings
from autorecipe.errors import Problem, UsageError


def asked_batch(settings: LoopSettings, consumed_samples: int) -> int:
    """Return the samples that the step after so many consumed samples should have.

    Formula: start + floor(consumed / (samples / steps)) x increment up to `samples`, the whole batch afterwards.
    Source: Megatron-Core num_microbatches_calculator.py @ 0.16.1. Evidence: enforced-upstream.
    """
    ramp = settings.ramp_up
    if ramp is None or consumed_samples > ramp.samples:
        return settings.global_batch_size
    steps = (settings.global_batch_size - ramp.start) // ramp.increment
    return ramp.start + int(consumed_samples / (ramp.samples / steps)) * ramp.increment


def running_batch(settings: LoopSettings, consumed_samples: int, *, data_parallel_size: int) -> int:
    """Return the samples that it has: rounded down to what the ranks divide, where the configuration allows that."""
    asked = asked_batch(settings, consumed_samples)
    block = settings.micro_batch_size * data_parallel_size
    return asked // block * block if settings.decrease_batch_size_if_needed else asked


class BatchPlan:
    """Micro batches of each step, for training and for evaluation."""

    def __init__(self, settings: LoopSettings, *, data_parallel_size: int) -> None:
        """Prepare.

        Raises:
            UsageError: a batch size that the data-parallel ranks do not divide.
        """
        check_batch(settings, data_parallel_size=data_parallel_size)
        self._settings = settings
        self._data_parallel_size = data_parallel_size
        self._asked = self.samples = 0
        self.update(0)

    def update(self, consumed_samples: int) -> int:
        """Move to the batch of the next step (`samples`, over all ranks) and return its micro batches per rank."""
        self._asked = asked_batch(self._settings, consumed_samples)
        self.samples = running_batch(self._settings, consumed_samples, data_parallel_size=self._data_parallel_size)
        return self.samples // (self._settings.micro_batch_size * self._data_parallel_size)

    @property
    def lost_samples(self) -> int:
        """Samples by which the current batch was rounded down."""
        return self._asked - self.samples

    @property
    def eval_microbatches(self) -> int:
        """Micro batches per rank of one evaluation batch."""
        return self._settings.eval_global_batch_size // (self._settings.eval_micro_batch_size * self._data_parallel_size)


def check_batch(settings: LoopSettings, *, data_parallel_size: int) -> None:
    """Check that the ranks divide every batch.

    Raises:
        UsageError: naming each batch that does not divide, with the nearest sizes that do.
    """
    rows = [("train.global_batch_size", settings.global_batch_size, settings.micro_batch_size, "train.micro_batch_size")]
    if settings.eval_iters:
        micro = settings.eval_micro_batch_size
        rows.append(("validation.eval_global_batch_size", settings.eval_global_batch_size, micro, "eval_micro_batch_size"))
    if settings.ramp_up is not None and not settings.decrease_batch_size_if_needed:
        start, micro = settings.ramp_up.start, settings.micro_batch_size
        rows.append(("train.rampup_batch_size[0]", start, micro, "train.micro_batch_size"))
        rows.append(("train.rampup_batch_size[1]", settings.ramp_up.increment, micro, "train.micro_batch_size"))
    problems = []
    for path, batch, micro, micro_path in rows:
        block = micro * data_parallel_size
        if batch % block == 0:
            continue
        below, above = batch // block * block, (batch // block + 1) * block
        choices = f"{below} or {above}" if below else f"{above}"
        problems.append(
            Problem(
                path=path,
                code="batch-size",
                message=f"{batch} is not a multiple of {micro_path}={micro} x {data_parallel_size} data-parallel ranks = {block}",
                hint=f"use {choices}, or another number of processes",
            )
        )
    if problems:
        raise UsageError(problems)
