"""The closed form: peak memory of the worst rank of any layout, in microseconds.

`MemoryModel` is prepared once per (shape, policy) and answers for many layouts: what depends on few axes is remembered, so
that a search pays only for the combination. `estimate_memory` is the one-shot form with the full breakdown.
"""

from __future__ import annotations

from collections.abc import Mapping

from autorecipe.estimate.activations import Saved, Tokens, block_activations, count_tokens, element_bytes
from autorecipe.estimate.adapters import adapter_parameters
from autorecipe.estimate.blocks import Block, block_parameters, layer_blocks, mtp_blocks, multi_token_extra, padded_vocab
from autorecipe.estimate.overhead import judge, outside_bytes, reserved_bytes
from autorecipe.estimate.stages import Chunk, StagePlan, in_flight, plan_stages
from autorecipe.estimate.states import RankParameters, StateBytes, shard_block, state_bytes
from autorecipe.record import dataclass
from autorecipe.schema.batch import Batch
from autorecipe.schema.estimate import ExecutionPolicy, LayerImplementation, MemoryEstimate, Sharding, StageMemory
from autorecipe.schema.evidence import Evidence
from autorecipe.schema.hardware import Gpu
from autorecipe.schema.layout import Layout
from autorecipe.schema.model import ModelShape
from autorecipe.units import MIB

WORKSPACE_BYTES = 100 * MIB
"""Workspaces of cuBLAS and Transformer Engine that stay in the allocator.

Source: Megatron-LM golden values 2026-08-22: resident bytes less parameters, gradients and optimizer, median of 77 small H100
and GB200 runs (96 to 108 MiB for most). Evidence: published.
"""

NOT_MODELLED = (
    "fragmentation beyond the stated interval",
    "uneven expert routing beyond the stated imbalance",
    "vision, audio and other towers outside the language model",
    "buffers of data loading, evaluation and checkpoint writing",
)


@dataclass(frozen=True)
class StageActivations:
    """Bytes of one stage that depend on the micro batch and not on data parallelism."""

    plan: StagePlan
    saved: float
    by_kind: Mapping[str, float]
    logits: float
    transient: float
    in_flight: float

    @property
    def total(self) -> float:
        """Everything above the resident state."""
        return self.saved + self.logits + self.transient


class MemoryModel:
    """The closed form for one shape under one policy.

    Args:
        shape: the model.
        policy: how a step is executed.
    """

    def __init__(self, shape: ModelShape, *, policy: ExecutionPolicy) -> None:
        self.shape = shape
        self.policy = policy
        self.layers = layer_blocks(shape)
        self._parameters = {block: block_parameters(shape, block) for block in {b for layer in self.layers for b in layer}}
        self._mtp = multi_token_extra(shape)
        self.mtp_blocks = mtp_blocks(shape, self.layers) if shape.mtp_num_layers else ()
        for block in self.mtp_blocks:
            self._parameters.setdefault(block, block_parameters(shape, block))
        self._plans: dict[tuple[int, int], tuple[StagePlan, ...]] = {}
        self._looked_at: dict[tuple[int, int], tuple[StagePlan, ...]] = {}
        self._resident: dict[tuple[int, ...], tuple[float, ...]] = {}
        self._active: dict[tuple[object, ...], tuple[float, ...]] = {}
        self._shared_sizes: dict[tuple[int | bool, ...], dict[Block, Saved]] = {}
        self._tokens: dict[tuple[int | bool, ...], tuple[Tokens, dict[Block, Saved]]] = {}
        self._distinct: dict[tuple[int, int, int], tuple[tuple[Chunk, int], ...]] = {}
        self._alive: dict[tuple[int, int, int, int], tuple[tuple[tuple[Chunk, int], ...], float]] = {}

    def peak_bytes(self, layout: Layout, batch: Batch, world_size: int) -> float:
        """Return the peak of allocated bytes on the worst rank; the hot path of a search.

        The three arguments are positional on purpose: this is called 10^5 times a second.
        """
        dp = world_size // (layout.tp * layout.pp * layout.cp)
        microbatches = max(1, batch.global_batch_size // max(1, batch.micro_batch_size * dp))
        cap = min(microbatches, 2 * layout.pp * layout.vp)
        active_key = (
            layout.tp,
            layout.cp,
            layout.etp,
            layout.ep,
            layout.sequence_parallel,
            layout.pp,
            layout.vp,
            cap,
            batch.micro_batch_size,
            batch.seq_length,
        )
        active = self._active.get(active_key)
        if active is None:
            stages = self.representatives(layout.pp, layout.vp)
            known = self._sizes(layout, batch)
            active = tuple(self.stage_activations(stage, layout, batch, cap, known).total for stage in stages)
            self._active[active_key] = active
        resident = self._resident_by_stage(layout, world_size)
        return max(map(float.__add__, active, resident))

    def resident_bytes(self, layout: Layout, world_size: int) -> float:
        """Return what stays allocated between steps on the fullest rank: a lower bound of the peak, cheaper than it."""
        return max(self._resident_by_stage(layout, world_size))

    def _resident_by_stage(self, layout: Layout, world_size: int) -> tuple[float, ...]:
        key = (layout.tp, layout.cp, layout.ep, layout.etp, layout.pp, layout.vp, world_size)
        found = self._resident.get(key)
        if found is None:
            stages = self.representatives(layout.pp, layout.vp)
            values = [self.stage_states(stage, layout, world_size)[1] for stage in stages]
            found = tuple(value.weights + value.gradients + value.optimizer for value in values)
            self._resident[key] = found
        return found

    def estimate(self, *, layout: Layout, batch: Batch, world_size: int) -> tuple[StageMemory, ...]:
        """Return the breakdown of every pipeline stage."""
        dp = max(1, layout.data_parallel_size(world_size))
        microbatches = max(1, batch.num_microbatches(dp))
        stages = []
        for plan in self._stage_plans(layout.pp, layout.vp):
            active = self.stage_activations(plan, layout, batch, microbatches)
            parameters, states = self.stage_states(plan, layout, world_size)
            stages.append(
                StageMemory(
                    stage=plan.stage,
                    layers=plan.layers,
                    parameters=round(parameters.total),
                    weights_bytes=states.weights,
                    gradients_bytes=states.gradients,
                    optimizer_bytes=states.optimizer,
                    activations_bytes=active.saved,
                    activations_by_kind=active.by_kind,
                    logits_bytes=active.logits,
                    transient_bytes=active.transient,
                    microbatches_in_flight=active.in_flight,
                )
            )
        return tuple(stages)

    def stage_parameters(self, plan: StagePlan, *, tp: int, ep: int, etp: int) -> RankParameters:
        """Count the parameters of one rank of a stage."""
        dense = expert = matrix = trainable_dense = trainable_expert = 0.0
        adapters = self.policy.adapters
        pipelined = not (plan.chunks[0].embedding and plan.chunks[-1].output)
        for chunk in plan.chunks:
            counts = dict(chunk.blocks)
            for block in self.mtp_blocks if chunk.mtp_layers else ():
                counts[block] = counts.get(block, 0) + chunk.mtp_layers
            for block, count in counts.items():
                block_dense, block_expert, block_matrix = shard_block(self._parameters[block], tp=tp, ep=ep, etp=etp)
                dense += count * block_dense
                expert += count * block_expert
                matrix += count * block_matrix
                if adapters is not None:
                    adapter_dense, adapter_expert = adapter_parameters(self.shape, block, adapters, tp=tp, etp=etp)
                    trainable_dense += count * adapter_dense
                    trainable_expert += count * adapter_expert
            dense += self._ends(chunk, tp=tp, pipelined=pipelined)
            if chunk.mtp_layers:
                extra_dense, _, extra_matrix = shard_block(self._mtp, tp=tp, ep=ep, etp=etp)
                dense += chunk.mtp_layers * extra_dense
                matrix += chunk.mtp_layers * extra_matrix
        if adapters is None:
            return RankParameters(dense, expert, matrix, dense, expert)
        return RankParameters(dense + trainable_dense, expert + trainable_expert, matrix, trainable_dense, trainable_expert)

    def stage_states(self, plan: StagePlan, layout: Layout, world_size: int) -> tuple[RankParameters, StateBytes]:
        """Return parameters and resident bytes of one rank of a stage."""
        parameters = self.stage_parameters(plan, tp=layout.tp, ep=layout.ep, etp=layout.etp)
        dense_ranks = max(1, world_size // (layout.tp * layout.pp))
        expert_ranks = max(1, world_size // (layout.pp * layout.ep * layout.etp))
        return parameters, state_bytes(parameters, self.policy, dense_ranks=dense_ranks, expert_ranks=expert_ranks)

    def stage_activations(
        self,
        plan: StagePlan,
        layout: Layout,
        batch: Batch,
        num_microbatches: int,
        known: tuple[Tokens, Mapping[Block, Saved]] | None = None,
    ) -> StageActivations:
        """Return activation, logit and transient bytes of one stage at its peak.

        Formula: sum over chunks of (micro batches alive x bytes saved), plus the larger of the loss and the working set of
        the block whose backward pass runs first; full recomputation keeps block inputs, and the whole of one group while it
        is recomputed.
        """
        tokens, sizes = known or self._sizes(layout, batch)
        by_kind: dict[str, float] = {}
        working = 0.0
        recomputed = 0.0
        chunks, average = self._alive_chunks(plan, layout, num_microbatches)
        for chunk, count in chunks:
            for kind, size in self._chunk_saved(chunk, tokens, sizes).items():
                by_kind[kind] = by_kind.get(kind, 0.0) + count * size
            for block in chunk.blocks:
                working = max(working, sizes[block].working)
            recomputed = max(recomputed, self._recomputed_group(chunk, sizes))
        logits, head = self._loss(plan.chunks[-1], tokens)
        if head:
            by_kind["head"] = head
        boundary = 0.0 if layout.pp == 1 else 2 * element_bytes(self.policy) * tokens.outside * self.shape.hidden_size
        transient = boundary + self._gather_buffers(plan, layout)
        if self.policy.layers is LayerImplementation.TE:
            transient += WORKSPACE_BYTES
        elif tokens.outside < tokens.inside:
            # Megatron-Core's own linear layers gather the sequence into one buffer that stays.
            transient += element_bytes(self.policy) * tokens.inside * self.shape.hidden_size
        if recomputed + working > logits:
            transient += recomputed + working - logits
        return StageActivations(plan, sum(by_kind.values()), by_kind, logits, transient, average)

    def _alive_chunks(
        self, plan: StagePlan, layout: Layout, num_microbatches: int
    ) -> tuple[tuple[tuple[Chunk, int], ...], float]:
        """Return (distinct chunks with the micro batches alive in all equal ones, mean alive per chunk) of a stage."""
        key = (layout.pp, layout.vp, plan.stage, num_microbatches)
        found = self._alive.get(key)
        if found is None:
            alive = in_flight(layout.pp, layout.vp, plan.stage, num_microbatches)
            merged: dict[object, tuple[Chunk, int]] = {}
            for chunk, count in zip(plan.chunks, alive, strict=True):
                same = (tuple(sorted(chunk.blocks.items())), chunk.mtp_layers)
                merged[same] = (chunk, merged[same][1] + count if same in merged else count)
            found = (tuple(merged.values()), sum(alive) / len(alive))
            self._alive[key] = found
        return found

    def distinct_chunks(self, plan: StagePlan, layout: Layout) -> tuple[tuple[Chunk, int], ...]:
        """Return the chunks of a stage that differ, each with how often it occurs."""
        key = (layout.pp, layout.vp, plan.stage)
        found = self._distinct.get(key)
        if found is None:
            merged: dict[object, tuple[Chunk, int]] = {}
            for chunk in plan.chunks:
                same = (tuple(sorted(chunk.blocks.items())), chunk.output, chunk.mtp_layers)
                merged[same] = (chunk, merged[same][1] + 1 if same in merged else 1)
            found = self._distinct[key] = tuple(merged.values())
        return found

    def _stage_plans(self, pp: int, vp: int) -> tuple[StagePlan, ...]:
        plans = self._plans.get((pp, vp))
        if plans is None:
            plans = plan_stages(self.layers, pp=pp, vp=vp, split=self.policy.split, mtp_layers=self.shape.mtp_num_layers)
            self._plans[(pp, vp)] = plans
        return plans

    def representatives(self, pp: int, vp: int) -> tuple[StagePlan, ...]:
        """Return the stages that can be the worst: of equal ones the first holds most micro batches."""
        chosen = self._looked_at.get((pp, vp))
        if chosen is None:
            seen: dict[object, StagePlan] = {}
            for plan in self._stage_plans(pp, vp):
                key = tuple(
                    (tuple(sorted(chunk.blocks.items())), chunk.embedding, chunk.output, chunk.mtp_layers)
                    for chunk in plan.chunks
                )
                seen.setdefault(key, plan)
            chosen = tuple(seen.values())
            self._looked_at[(pp, vp)] = chosen
        return chosen

    def _sizes(self, layout: Layout, batch: Batch) -> tuple[Tokens, Mapping[Block, Saved]]:
        """Return the token counts of a layout and what each kind of block saves under it.

        Only experts see the expert axes, so the other blocks are shared by all layouts that differ in those alone.
        """
        shared_key = (layout.tp, layout.cp, layout.sequence_parallel, batch.micro_batch_size, batch.seq_length)
        key = (*shared_key, layout.ep, layout.etp)
        found = self._tokens.get(key)
        if found is None:
            tokens = count_tokens(layout, batch)
            shared = self._shared_sizes.get(shared_key)
            if shared is None:
                others = [block for block in self._parameters if block is not Block.MOE]
                shared = {block: block_activations(self.shape, block, tokens, self.policy) for block in others}
                self._shared_sizes[shared_key] = shared
            sizes = dict(shared)
            if Block.MOE in self._parameters:
                sizes[Block.MOE] = block_activations(self.shape, Block.MOE, tokens, self.policy)
            found = (tokens, sizes)
            self._tokens[key] = found
        return found

    def _chunk_saved(self, chunk: Chunk, tokens: Tokens, sizes: Mapping[Block, Saved]) -> dict[str, float]:
        """Bytes that one micro batch leaves in one chunk, by kind of block."""
        recompute = self.policy.recompute
        kept: dict[str, float] = {}
        if recompute.is_full:
            entry = element_bytes(self.policy) * tokens.outside * self.shape.hidden_size
            if recompute.method == "block":
                covered = min(recompute.num_layers, chunk.layers)
                rest = 1 - covered / chunk.layers if chunk.layers else 0.0
                kept["layer inputs"] = covered * entry
                for block, count in chunk.blocks.items():
                    kept[block.value] = rest * count * sizes[block].full
                return kept
            kept["layer inputs"] = -(-chunk.layers // max(1, recompute.num_layers)) * entry
            return kept
        for block, count in chunk.blocks.items():
            kept[block.value] = count * sizes[block].kept
        for block in self.mtp_blocks if chunk.mtp_layers else ():
            kept["mtp"] = kept.get("mtp", 0.0) + chunk.mtp_layers * sizes[block].kept
        return kept

    def _recomputed_group(self, chunk: Chunk, sizes: Mapping[Block, Saved]) -> float:
        """Bytes of what is rebuilt at once during a backward pass."""
        recompute = self.policy.recompute
        if recompute.is_full:
            if not chunk.layers:
                return 0.0
            if recompute.method == "block" and recompute.num_layers < chunk.layers:
                # The last layers keep their tensors; the first are rebuilt when those are gone.
                return 0.0
            layers = recompute.num_layers if recompute.method == "uniform" else 1
            whole = sum(count * sizes[block].full for block, count in chunk.blocks.items())
            return min(layers, chunk.layers) * whole / chunk.layers
        return max((sizes[block].full - sizes[block].kept for block in chunk.blocks), default=0.0)

    def _ends(self, chunk: Chunk, *, tp: int, pipelined: bool) -> float:
        """Parameters of embedding, final norm and output layer in a chunk."""
        shape = self.shape
        table = padded_vocab(shape, tp) * shape.hidden_size / tp
        total = 0.0
        if chunk.embedding:
            total += table
            if shape.position_embedding_type == "learned_absolute":
                total += (shape.max_position_embeddings or shape.seq_length) * shape.hidden_size
        if chunk.output:
            total += shape.hidden_size * (2 if shape.normalization == "LayerNorm" else 1)
            if pipelined or not shape.share_embeddings_and_output_weights:
                total += table
            if chunk.mtp_layers and pipelined and not shape.share_embeddings_and_output_weights:
                total += table
        return total

    def _loss(self, chunk: Chunk, tokens: Tokens) -> tuple[float, float]:
        """Return (peak of logits and loss, bytes saved by the final norm) of a chunk that has the output layer.

        Formula: N logits of V / TP entries; unfused and native: 16-bit logits and a 32-bit softmax (6 bytes); TE: the 16-bit
        logits alone, overwritten by their gradient, and its working copy (4 bytes); linear: one block of the vocabulary at a
        time (negligible).
        Source: Megatron-Core cross_entropy.py and fused_cross_entropy.py @ 0.16.1. Evidence: derived, checked by the trace.
        """
        if not chunk.output:
            return 0.0, 0.0
        entries = tokens.inside * padded_vocab(self.shape, tokens.tp) / tokens.tp
        each = {"unfused": 6.0, "native": 6.0, "te": 4.0, "linear": 0.1}[self.policy.cross_entropy]
        if element_bytes(self.policy) == 4.0:
            each += 2.0
        head = 2 * element_bytes(self.policy) * tokens.outside * self.shape.hidden_size
        depths = 1 + chunk.mtp_layers
        return entries * each + (depths - 1) * entries * 4.0, head * depths

    def _gather_buffers(self, plan: StagePlan, layout: Layout) -> float:
        """Unsharded weights (and gradients) of two layers at a time, under full sharding."""
        if self.policy.sharding not in (Sharding.FULL, Sharding.OPTIMIZER_GRADS):
            return 0.0
        parameters = self.stage_parameters(plan, tp=layout.tp, ep=layout.ep, etp=layout.etp)
        layers = max(1, plan.layers)
        weights = 2.0 if self.policy.sharding is Sharding.FULL else 0.0
        return 2 * parameters.total / layers * (weights + self.policy.grad_bytes)


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
    allocated = (worst.peak_bytes * 0.96, worst.peak_bytes * 1.04)
    reserved = reserved_bytes(worst.peak_bytes, shape=shape, policy=policy)
    outside = outside_bytes(layout, world_size=world_size, policy=policy)
    capacity = gpu.memory_bytes if gpu is not None else 0
    return MemoryEstimate(
        method="closed-form",
        evidence=Evidence.DERIVED,
        stages=stages,
        worst_stage=worst.stage,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        outside_bytes=outside,
        capacity_bytes=capacity,
        verdict=judge(allocated=allocated, reserved=reserved, outside=outside, capacity=capacity) if capacity else None,
        not_modelled=NOT_MODELLED,
        assumptions=assumptions,
    )
