"""When nothing fits: the smallest GPU count that does, and what else would help, by layer of change."""

from __future__ import annotations

from autorecipe.plan.search import SearchResult, search
from autorecipe.record import replace
from autorecipe.schema.layer import Layer
from autorecipe.schema.plan import PlanRequest, WayOut
from autorecipe.units import render_gib

MAX_GPUS = 65536


def find_ways_out(request: PlanRequest, result: SearchResult) -> tuple[WayOut, ...]:
    """Return what would make a request fit, cheapest change of the training first.

    Formula: the GPU count is doubled from the next power of two until a candidate fits, then up to three counts of whole hosts
    between that and half of it are tried; each other change is searched on its own on the given GPUs.
    Evidence: derived.
    """
    ways = []
    if result.at_risk:
        best = result.at_risk[0]
        ways.append(
            WayOut(
                change=f"{best.candidate.render()} may fit ({render_gib(best.peak)} plus what the allocator reserves): try it",
                layer=Layer.EXECUTION,
            )
        )
    ways += _offload(request)
    ways += _fsdp(request)
    more = smallest_world(request)
    if more is not None:
        ways.append(
            WayOut(change=f"{more} GPUs: the smallest count tried that fits", layer=Layer.EXECUTION, overrides={"gpus": more})
        )
    ways += _shorter_sequence(request)
    return tuple(ways)


def smallest_world(request: PlanRequest) -> int | None:
    """Return the smallest GPU count tried on which something fits, or None up to 65,536."""
    count = 1 << request.cluster.num_gpus.bit_length()
    while not _fits_on(request, count):
        count *= 2
        if count > MAX_GPUS:
            return None
    node = request.cluster.gpu.gpus_per_node
    between = (fewer for fewer in (count // 8 * 5, count // 8 * 6, count // 8 * 7) if fewer % node == 0)
    return next((fewer for fewer in between if request.cluster.num_gpus < fewer < count and _fits_on(request, fewer)), count)


def _fits_on(request: PlanRequest, count: int) -> bool:
    node = max(request.cluster.gpus_per_node, min(count, request.cluster.gpu.gpus_per_node))
    cluster = replace(request.cluster, num_gpus=count, gpus_per_node=node)
    return bool(search(replace(request, cluster=cluster), keep=1).fitting)


def _offload(request: PlanRequest) -> list[WayOut]:
    if request.policy.optimizer_offload or request.policy.adapters is not None:
        return []
    policy = replace(request.policy, optimizer_offload=1.0)
    if not search(replace(request, policy=policy), keep=1).fitting:
        return []
    return [
        WayOut(
            change="optimizer states in host memory (slower; needs host memory for them)",
            layer=Layer.EXECUTION,
            overrides={"optimizer.optimizer_cpu_offload": True, "optimizer.optimizer_offload_fraction": 1.0},
        )
    ]


def _fsdp(request: PlanRequest) -> list[WayOut]:
    if request.with_fsdp or request.policy.fsdp:
        return []
    found = search(replace(request, with_fsdp=True), keep=1).fitting
    if not found:
        return []
    return [
        WayOut(
            change=f"fully sharded data parallelism: {found[0].candidate.render()}",
            layer=Layer.EXECUTION,
            overrides={"ddp.use_megatron_fsdp": True, "ddp.data_parallel_sharding_strategy": "optim_grads_params"},
        )
    ]


def _shorter_sequence(request: PlanRequest) -> list[WayOut]:
    sequence = request.batch.seq_length // 2
    while sequence >= 1024:
        shorter = replace(request, batch=replace(request.batch, seq_length=sequence))
        if search(shorter, keep=1).fitting:
            return [
                WayOut(
                    change=f"sequence {sequence} instead of {request.batch.seq_length}: a new convergence experiment",
                    layer=Layer.CONVERGENCE,
                    overrides={"dataset.seq_length": sequence},
                )
            ]
        sequence //= 2
    return []
