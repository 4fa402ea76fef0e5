"""What a token budget costs: steps, days, GPU hours, money."""

from __future__ import annotations

import math

from autorecipe.schema.estimate import BudgetEstimate, TimeEstimate


def estimate_budget(
    time: TimeEstimate, *, tokens: float, tokens_per_step: int, gpus: int, price: float | None = None
) -> BudgetEstimate:
    """Multiply a step out to a token budget.

    Formula: steps = ceil(tokens / tokens a step); days = steps x step time / 86400. Restarts, evaluation and saving are left out.
    Source: arithmetic. Evidence: derived. Error: that of the step time.

    Args:
        time: step time with its interval.
        tokens: token budget.
        tokens_per_step: GBS x sequence.
        gpus: GPUs of the run.
        price: price of one GPU hour, or None.
    """
    steps = math.ceil(tokens / tokens_per_step)
    seconds = steps * time.step_seconds
    hours = seconds / 3600 * gpus
    low, high = time.interval_seconds
    return BudgetEstimate(
        tokens=tokens,
        steps=steps,
        days=seconds / 86400,
        gpu_hours=hours,
        cost=None if price is None else hours * price,
        interval_days=(steps * low / 86400, steps * high / 86400),
    )
