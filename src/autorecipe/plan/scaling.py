"""The best choice over a range of GPU counts: strong scaling (global batch fixed) or weak scaling (it grows)."""

from __future__ import annotations

from collections.abc import Sequence

from autorecipe.plan.coster import Coster
from autorecipe.plan.planner import make_choice, replace_cluster
from autorecipe.plan.search import search
from autorecipe.schema.plan import PlanRequest, Scaling, ScalingPoint


def plan_scaling(request: PlanRequest, *, gpu_counts: Sequence[int], scaling: Scaling) -> tuple[ScalingPoint, ...]:
    """Return the best choice for each GPU count.

    Args:
        request: what to plan; its global batch belongs to its own GPU count.
        gpu_counts: counts to look at, in the order wanted.
        scaling: strong or weak. Weak scaling rounds the global batch to a whole multiple and is a convergence change.

    Returns:
        one point per count; efficiency is tokens/s/GPU against the first point that runs.
    """
    points: list[ScalingPoint] = []
    reference: float | None = None
    for count in gpu_counts:
        batch = request.batch.global_batch_size
        if scaling is Scaling.WEAK:
            batch = max(1, round(batch * count / request.cluster.num_gpus))
        moved = replace_cluster(request, count, global_batch_size=batch)
        found = search(moved, keep=1).fitting
        choice = make_choice(moved, found[0], Coster(moved), base=None, explain=False) if found else None
        efficiency = None
        if choice is not None:
            reference = reference or choice.tokens_per_second_per_gpu
            efficiency = choice.tokens_per_second_per_gpu / reference
        points.append(ScalingPoint(num_gpus=count, global_batch_size=batch, choice=choice, efficiency=efficiency))
    return tuple(points)
