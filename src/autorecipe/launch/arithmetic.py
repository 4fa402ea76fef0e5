"""Hosts x GPUs against what a recipe needs: both meshes whole, and a benchmark's own count.

All numbers come from the resolved configuration, never from a job's or recipe's name (the count in a benchmark's name apart,
which is what the name is for).
"""

from __future__ import annotations

from autorecipe.errors import Problem
from autorecipe.record import dataclass
from autorecipe.schema.batch import Batch
from autorecipe.schema.launch import Allocation
from autorecipe.schema.layout import Layout
from autorecipe.units import MOST_GPUS


@dataclass(frozen=True, kw_only=True)
class Shares:
    """How an allocation divides.

    Attributes:
        world_size: processes.
        data_parallel_size: dense DP.
        expert_data_parallel_size: expert DP.
        num_microbatches: gradient accumulation steps, or None where the batch does not divide.
    """

    world_size: int
    data_parallel_size: int
    expert_data_parallel_size: int
    num_microbatches: int | None


@dataclass(frozen=True, kw_only=True)
class WeakScaling:
    """What upstream's runner does with a benchmark recipe on another GPU count.

    Attributes:
        canonical_gpus: count in the name.
        requested_gpus: count asked for.
        global_batch_size: in the recipe.
        effective_global_batch_size: that runs unless `train.global_batch_size` is given; None where it is not whole.
    """

    canonical_gpus: int
    requested_gpus: int
    global_batch_size: int
    effective_global_batch_size: int | None


def check_allocation(layout: Layout, allocation: Allocation, *, recipe: str) -> list[Problem]:
    """Return what is wrong with a layout on an allocation; empty where it runs.

    Formula: world % (TP x PP x CP) == 0 and world % (PP x EP x ETP) == 0.
    Source: Megatron-LM megatron/core/parallel_state.py; Megatron-Bridge config.py:1025. Evidence: enforced-upstream.
    """
    world = allocation.world_size
    problems = []
    if allocation.num_nodes < 1 or allocation.gpus_per_node < 1:
        problems.append(
            Problem(
                code="launch-allocation",
                path="--nodes",
                message=f"{allocation.num_nodes} x {allocation.gpus_per_node} is no allocation",
                hint="give at least one host and one GPU",
            )
        )
        return problems
    if world > MOST_GPUS:
        message = f"{allocation.num_nodes} x {allocation.gpus_per_node} = {world} GPUs; {MOST_GPUS} at most"
        return [Problem(code="launch-allocation", path="--nodes", message=message, hint="give fewer hosts")]
    hint = f"use a multiple of {layout.minimum_world_size} GPUs, or `autorecipe recommend {recipe} --gpus {world}` to resize"
    if world % layout.dense_model_parallel_size:
        problems.append(
            Problem(
                code="launch-dense-mesh",
                path="--nodes x --gpus-per-node",
                message=(
                    f"{allocation.num_nodes} x {allocation.gpus_per_node} = {world} GPUs cannot hold {layout.render()}: "
                    f"TP x PP x CP = {layout.dense_model_parallel_size} does not divide {world}"
                ),
                hint=hint,
            )
        )
    if world % layout.expert_model_parallel_size:
        problems.append(
            Problem(
                code="launch-expert-mesh",
                path="--nodes x --gpus-per-node",
                message=(
                    f"{allocation.num_nodes} x {allocation.gpus_per_node} = {world} GPUs cannot hold {layout.render()}: "
                    f"PP x EP x ETP = {layout.expert_model_parallel_size} does not divide {world}"
                ),
                hint=hint,
            )
        )
    return problems


def share_allocation(layout: Layout, batch: Batch | None, world_size: int) -> Shares:
    """Return data-parallel sizes and accumulation; call after `check_allocation`."""
    dp = layout.data_parallel_size(world_size)
    divides = batch is not None and batch.divides(dp)
    return Shares(
        world_size=world_size,
        data_parallel_size=dp,
        expert_data_parallel_size=layout.expert_data_parallel_size(world_size),
        num_microbatches=batch.num_microbatches(dp) if batch is not None and divides else None,
    )


def scale_weakly(*, canonical_gpus: int, requested_gpus: int, global_batch_size: int) -> WeakScaling:
    """Return the global batch that runs when a benchmark recipe gets another GPU count.

    Formula: GBS x requested / canonical, which must be whole.
    Source: Megatron-Bridge scripts/training/run_recipe.py:368. Evidence: enforced-upstream.
    """
    product = global_batch_size * requested_gpus
    return WeakScaling(
        canonical_gpus=canonical_gpus,
        requested_gpus=requested_gpus,
        global_batch_size=global_batch_size,
        effective_global_batch_size=product // canonical_gpus if product % canonical_gpus == 0 else None,
    )
