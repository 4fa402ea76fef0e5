"""The closed form: peak memory of the worst rank of any layout, in microseconds.

`MemoryModel` is prepared once per (shape, policy) and answers for many layouts: what depends on few axes is remembered, so
that a search pays only for the combination. `estimate_memory` is the one-shot form with the full breakdown. States are in
`states`, activations in `stage_activations`, the verdict in `overhead`.
"""

from __future__ import annotations

from autorecipe.estimate.overhead import ALLOCATED_BAND, judge, outside_bytes, reserved_bytes
from autorecipe.estimate.stage_activations import ActivationModel
from autorecipe.estimate.stages import Pipeline, make_pipeline
from autorecipe.estimate.states import RankCounter, gather_bytes, state_bytes
from autorecipe.estimate.tokens import Tokens, count_tokens
from autorecipe.schema.batch import Batch
from autorecipe.schema.blocks import layer_blocks
from autorecipe.schema.estimate import ExecutionPolicy, MemoryEstimate, StageMemory, StageSplit
from autorecipe.schema.evidence import Evidence
from autorecipe.schema.hardware import Gpu
from autorecipe.schema.layout import Layout
from autorecipe.schema.model import ModelShape

NOT_MODELLED = (
    "fragmentation beyond the stated interval",
    "uneven expert routing beyond the stated imbalance",
    "vision, audio and other towers outside the language model",
    "buffers of data loading, evaluation and checkpoint writing",
)


class MemoryModel:
    """The closed form for one shape under one policy.

    Args:
        shape: the model.
        policy: how a step is executed.
        counter: counts of the same shape and adapters to share, or None.
    """

    def __init__(self, shape: ModelShape, *, policy: ExecutionPolicy, counter: RankCounter | None = None) -> None:
        self.shape = shape
        self.policy = policy
        self.layers = layer_blocks(shape)
        self.counter = counter or RankCounter(shape, policy.adapters)
        self.activations = ActivationModel(shape, policy=policy, kinds=self.counter.kinds, mtp_blocks=self.counter.mtp_blocks)
        self._pipelines: dict[tuple[int, int], Pipeline] = {}
        self._resident: dict[tuple[object, ...], tuple[float, ...]] = {}

    def pipeline(self, pp: int, vp: int) -> Pipeline:
        """Return the stages under the policy's own split."""
        found = self._pipelines.get((pp, vp))
        if found is None:
            found = self._pipelines[(pp, vp)] = self.make_pipeline(pp, vp, self.policy.split)
        return found

    def make_pipeline(self, pp: int, vp: int, split: StageSplit) -> Pipeline:
        """Return the stages under any split; keep what this returns, since results are remembered by it."""
        return make_pipeline(self.layers, pp=pp, vp=vp, split=split, mtp_layers=self.shape.mtp_num_layers)

    def peak_bytes(self, layout: Layout, batch: Batch, world_size: int) -> float:
        """Return the peak of allocated bytes on the worst rank."""
        pipeline = self.pipeline(layout.pp, layout.vp)
        dp = world_size // (layout.tp * layout.pp * layout.cp)
        microbatches = max(1, batch.global_batch_size // max(1, batch.micro_batch_size * dp))
        return self.peak_of(
            self.resident_by_stage(layout, world_size, pipeline), pipeline, count_tokens(layout, batch), microbatches
        )

    def peak_of(self, resident: tuple[float, ...], pipeline: Pipeline, tokens: Tokens, num_microbatches: int) -> float:
        """Return the peak where the resident bytes are known; the hot path of a search (positional on purpose)."""
        return max(map(float.__add__, self.activations.totals(pipeline, tokens, num_microbatches), resident))

    def floor_of(self, resident: tuple[float, ...], pipeline: Pipeline, tokens: Tokens, num_microbatches: int) -> float:
        """Return what no recomputation gets below; for a policy of full recomputation (positional on purpose)."""
        return max(map(float.__add__, self.activations.floors(pipeline, tokens, num_microbatches), resident))

    def resident_by_stage(self, layout: Layout, world_size: int, pipeline: Pipeline) -> tuple[float, ...]:
        """Return bytes of states (and of FSDP's buffers) of each stage that differs: less than any peak, and the same for every
        recomputation, micro batch and CP.
        """
        key = (pipeline, layout.tp, layout.ep, layout.etp, world_size)
        found = self._resident.get(key)
        if found is None:
            values = []
            dense_ranks, expert_ranks = _ranks(layout, world_size)
            counts = self.counter.by_representative(pipeline, tp=layout.tp, ep=layout.ep, etp=layout.etp)
            for plan, count in zip(pipeline.representatives, counts, strict=True):
                states = state_bytes(count, self.policy, dense_ranks=dense_ranks, expert_ranks=expert_ranks)
                values.append(states.total + gather_bytes(count, self.policy, layers=plan.layers))
            found = self._resident[key] = tuple(values)
        return found

    def estimate(self, *, layout: Layout, batch: Batch, world_size: int) -> tuple[StageMemory, ...]:
        """Return the breakdown of every pipeline stage."""
        dp = max(1, layout.data_parallel_size(world_size))
        microbatches = max(1, batch.num_microbatches(dp))
        pipeline = self.pipeline(layout.pp, layout.vp)
        tokens = count_tokens(layout, batch)
        dense_ranks, expert_ranks = _ranks(layout, world_size)
        stages = []
        for plan in pipeline.stages:
            active = self.activations.of_stage(pipeline, plan, tokens, microbatches)
            count = self.counter.count(plan, tp=layout.tp, ep=layout.ep, etp=layout.etp)
            states = state_bytes(count, self.policy, dense_ranks=dense_ranks, expert_ranks=expert_ranks)
            stages.append(
                StageMemory(
                    stage=plan.stage,
                    layers=plan.layers,
                    parameters=round(count.total),
                    weights_bytes=states.weights,
                    gradients_bytes=states.gradients,
                    optimizer_bytes=states.optimizer,
                    activations_bytes=active.saved,
                    activations_by_kind=active.by_kind,
                    logits_bytes=active.logits,
                    transient_bytes=active.transient + gather_bytes(count, self.policy, layers=plan.layers),
                    microbatches_in_flight=active.in_flight,
                )
            )
        return tuple(stages)


def _ranks(layout: Layout, world_size: int) -> tuple[int, int]:
    """Return (ranks that share a dense parameter, ranks that share an expert parameter)."""
    dense = max(1, world_size // (layout.tp * layout.pp))
    return dense, max(1, world_size // (layout.pp * layout.ep * layout.etp))


def estimate_memory(
    shape: ModelShape,
    *,
    layout: Layout,
    batch: Batch,
    policy: ExecutionPolicy,
    world_size: int,
    gpu: Gpu | None = None,
    assumptions: tuple[str, ...] = (),
) -> MemoryEstimate:
    """Estimate the memory of every pipeline stage and judge the worst rank.

    Args:
        shape: the model.
        layout: parallel layout; its axes must divide the world (see `Layout.fits_world`).
        batch: batch sizes and sequence.
        policy: how a step is executed.
        world_size: GPUs of the run.
        gpu: the GPU to judge against, or None for no verdict.
        assumptions: what the caller assumed; passed through.

    Returns:
        the closed-form estimate; `error` is filled in by the caller that knows the published errors.
    """
    model = MemoryModel(shape, policy=policy)
    stages = model.estimate(layout=layout, batch=batch, world_size=world_size)
    worst = max(stages, key=lambda stage: stage.peak_bytes)
    allocated = (worst.peak_bytes * ALLOCATED_BAND[0], worst.peak_bytes * ALLOCATED_BAND[1])
    reserved = reserved_bytes(worst.peak_bytes, shape=shape, policy=policy)
    outside = outside_bytes(layout, world_size=world_size, policy=policy)
    fact, capacity = gpu.usable_memory if gpu is not None else ("", 0)
    return MemoryEstimate(
        method="closed-form",
        evidence=Evidence.DERIVED,
        stages=stages,
        worst_stage=worst.stage,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        outside_bytes=outside,
        capacity_bytes=capacity,
        capacity_fact=fact,
        verdict=judge(allocated=allocated, reserved=reserved, outside=outside, capacity=capacity) if capacity else None,
        not_modelled=NOT_MODELLED,
        assumptions=assumptions,
    )
