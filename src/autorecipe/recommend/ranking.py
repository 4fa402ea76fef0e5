"""Order layouts that fit by the planner's predicted step time; loaded only when a recipe has to be resized."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autorecipe.plan.coster import Coster
from autorecipe.recommend.search import Option
from autorecipe.schema.estimate import Recompute, StageSplit
from autorecipe.schema.layout import Layout
from autorecipe.schema.plan import Candidate, PlanRequest

FULL_RECOMPUTE = Recompute(granularity="full", method="uniform", num_layers=1)

NO_DIFFERENCE = 1.05
"""Options whose predicted step times differ by less than this count as equally fast.

Source: the time estimate's median error on public measurements is 6% (data/calibration/errors.json). Evidence: derived.
"""

AXES = ("tp", "pp", "cp", "ep", "etp")


def choose_fastest(options: Sequence[Option], request: PlanRequest, *, shipped: Layout) -> Option:
    """Return the option with the shortest predicted step; of those that are as good as equal, the one nearest to the recipe.

    Formula: predicted step time of the planner; within 5% of the fastest, the fewest doublings and halvings of TP, PP, CP, EP
    and ETP against the recipe, then the recipe's micro batch size, then the shortest step.
    Source: plan/coster.py. Evidence: derived.

    Args:
        options: legal options that fit, at least one.
        request: model, batch, policy and cluster.
        shipped: the recipe's layout.
    """
    coster = Coster(request)
    timed = [(coster.seconds(_candidate(option, request, shipped)), option) for option in options]
    limit = NO_DIFFERENCE * min(seconds for seconds, _ in timed)

    def rank(entry: tuple[float, Option]) -> tuple[float, bool, float]:
        seconds, option = entry
        moves = sum(abs(math.log2(getattr(option.layout, axis) / getattr(shipped, axis))) for axis in AXES)
        return (moves, option.micro_batch_size != request.batch.micro_batch_size, seconds)

    return min((entry for entry in timed if entry[0] <= limit), key=rank)[1]


def _candidate(option: Option, request: PlanRequest, shipped: Layout) -> Candidate:
    """An uneven split belongs to the recipe's own pipeline."""
    layout = option.layout
    own = (layout.pp, layout.vp) == (shipped.pp, shipped.vp)
    return Candidate(
        layout=layout,
        micro_batch_size=option.micro_batch_size,
        recompute=FULL_RECOMPUTE if option.recompute else request.policy.recompute,
        split=request.policy.split if own else StageSplit(),
        fsdp=request.policy.fsdp,
    )
