"""How many micro batches a step has: constant, or ramped up with the samples consumed (Megatron-Core's calculator)."""

from __future__ import annotations

from autorecipe.engine.loop.settings import LoopSettings
from autorecipe.errors import Problem, UsageError


class BatchPlan:
    """Micro batches of each step, for training and for evaluation."""

    def __init__(self, settings: LoopSettings, *, data_parallel_size: int, rank: int) -> None:
        """Prepare.

        Raises:
            UsageError: a batch size that the data-parallel ranks do not divide.
        """
        from megatron.core import num_microbatches_calculator as calculator

        check_batch(settings, data_parallel_size=data_parallel_size)
        self._settings = settings
        self._data_parallel_size = data_parallel_size
        self._calculator = calculator
        ramp = settings.ramp_up
        calculator.unset_num_microbatches_calculator()
        calculator.init_num_microbatches_calculator(
            rank,
            None if ramp is None else [ramp.start, ramp.increment, ramp.samples],
            settings.global_batch_size,
            settings.micro_batch_size,
            data_parallel_size,
            settings.decrease_batch_size_if_needed,
        )

    def update(self, consumed_samples: int) -> int:
        """Move to the batch of the next step and return its micro batches per rank."""
        self._calculator.update_num_microbatches(consumed_samples, consistency_check=True, verbose=False)
        return int(self._calculator.get_num_microbatches())

    @property
    def samples(self) -> int:
        """Samples of the current step, over all ranks."""
        return int(self._calculator.get_num_microbatches()) * self._settings.micro_batch_size * self._data_parallel_size

    @property
    def lost_samples(self) -> int:
        """Samples by which the current batch was rounded down."""
        return int(self._calculator.get_current_global_batch_size() - self._calculator.get_current_running_global_batch_size())

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
