"""Bytes that one pipeline stage holds at its peak beyond its states: saved activations of the micro batches alive, logits, and
the working set of what runs.

Formula: sum over chunks of (micro batches alive x bytes saved), plus the larger of the loss and the working set of the block
whose backward pass runs first; full recomputation keeps block inputs, and the whole of one group while it is recomputed.
Source: Korthikanti et al. 2022 (arXiv 2205.05198); Megatron-Core schedules.py @ 0.16.1 for what is alive.
Evidence: derived; checked by the trace.
Error: printed by bench/estimators.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import mul

from autorecipe.estimate.activations import Saved, block_activations, element_bytes
from autorecipe.estimate.stages import Chunk, Pipeline, StagePlan, in_flight
from autorecipe.estimate.tokens import Tokens
from autorecipe.record import dataclass
from autorecipe.schema.blocks import Block, padded_vocab
from autorecipe.schema.estimate import ExecutionPolicy, LayerImplementation
from autorecipe.schema.model import ModelShape
from autorecipe.units import MIB

WORKSPACE_BYTES = 100 * MIB
"""Workspaces of cuBLAS and Transformer Engine that stay in the allocator.

Source: Megatron-LM golden values 2026-08-22: resident bytes less parameters, gradients and optimizer, median of 77 small H100
and GB200 runs (96 to 108 MiB for most). Evidence: published.
"""

BLAS_WORKSPACE_BYTES = 64 * MIB
"""The same where this project's own layers run: torch gives cuBLAS 32 MiB for each of two threads, forward and autograd.

Source: torch 2.11 on one H200, resident bytes less states of 27 runs: 64 to 66 MiB for most, 90 at most. Evidence: measured
there, assumed for other GPUs.
"""

LOSS_BYTES = {"unfused": 6.0, "native": 6.0, "te": 4.0, "in_place": 2.0, "linear": 0.1}
"""Bytes of one logit at the peak of the loss: 16-bit logits and a 32-bit softmax; Transformer Engine's overwrites the logits by
their gradient beside one working copy; the engine's own (`in_place`) needs no copy; `linear` holds one block of the vocabulary at
a time.

Source: Megatron-Core cross_entropy.py and fused_cross_entropy.py @ 0.16.1, engine/fusion. Evidence: derived, checked by the trace
and on one H200.
"""


@dataclass(frozen=True)
class StageActivations:
    """Bytes of one stage that depend on the micro batch and not on data parallelism."""

    saved: float
    by_kind: Mapping[str, float]
    logits: float
    transient: float
    in_flight: float

    @property
    def total(self) -> float:
        """Everything above the resident state but the gather buffers of full sharding."""
        return self.saved + self.logits + self.transient


@dataclass(frozen=True)
class _Alive:
    """What is alive on a stage.

    Attributes:
        chunks: chunks that differ, with the micro batches alive in all equal ones.
        counts: blocks alive, in the order of the model's kinds; under full recomputation those that keep their tensors.
        present: kinds of block on the stage.
        mtp: prediction depths alive.
        inputs: layer inputs alive, of full recomputation.
        outputs: output layers of the stage's last chunk: none, or one and one for each prediction depth beside it.
        group: number of this set of chunks, equal for stages whose chunks are alike.
        average: micro batches alive per chunk.
    """

    chunks: tuple[tuple[Chunk, int], ...]
    counts: tuple[float, ...]
    present: frozenset[Block]
    mtp: int
    inputs: int
    outputs: int
    group: int
    average: float


class _Sizes:
    """What each kind of block saves for given tokens, and what follows from it for a stage."""

    def __init__(
        self,
        saved: Mapping[Block, Saved],
        kinds: tuple[Block, ...],
        mtp_blocks: tuple[Block, ...],
        boundaries: tuple[float, float],
    ) -> None:
        self.saved = saved
        self.boundaries = boundaries
        self.kept = tuple(saved[block].kept for block in kinds)
        self.full = tuple(saved[block].full for block in kinds)
        self.losses: dict[int, tuple[float, float]] = {0: (0.0, 0.0)}
        self.depth = sum(saved[block].kept for block in mtp_blocks)
        self.groups: dict[int, float] = {}
        self._working: dict[frozenset[Block], float] = {}
        self._largest: dict[frozenset[Block], float] = {}

    def working(self, present: frozenset[Block]) -> float:
        """Return the largest working set of these blocks, with the most that selective recomputation rebuilds at once."""
        found = self._working.get(present)
        if found is None:
            again = max((self.saved[block].full - self.saved[block].kept for block in present), default=0.0)
            found = self._working[present] = again + self.largest(present)
        return found

    def largest(self, present: frozenset[Block]) -> float:
        """Return the largest working set of these blocks."""
        found = self._largest.get(present)
        if found is None:
            found = self._largest[present] = max((self.saved[block].working for block in present), default=0.0)
        return found


class ActivationModel:
    """Activations of any stage for one shape under one policy; remembers what depends on few axes.

    Args:
        shape: the model.
        policy: how a step is executed.
        kinds: blocks that occur in the model.
        mtp_blocks: blocks of one multi-token-prediction depth.
    """

    def __init__(
        self, shape: ModelShape, *, policy: ExecutionPolicy, kinds: frozenset[Block], mtp_blocks: tuple[Block, ...]
    ) -> None:
        self.shape = shape
        self.policy = policy
        self.kinds = tuple(sorted(kinds))
        self.mtp_blocks = mtp_blocks
        self.element = element_bytes(policy)
        self._shared: dict[tuple[int | bool, ...], dict[Block, Saved]] = {}
        self._routed: dict[tuple[int | bool, ...], _Sizes] = {}
        self._sizes: dict[Tokens, _Sizes] = {}
        self._alive: dict[tuple[Pipeline, int], tuple[_Alive, ...]] = {}
        self._groups: dict[tuple[object, ...], int] = {}

    def sizes(self, tokens: Tokens) -> _Sizes:
        """Return what each kind of block saves. Only experts see ETP, nothing sees EP: under an even split each rank gets as many
        tokens as it sends.
        """
        found = self._sizes.get(tokens)
        if found is None:
            found = self._sizes[tokens] = self._make_sizes(tokens)
        return found

    def _make_sizes(self, tokens: Tokens) -> _Sizes:
        shared_key = (tokens.tp, tokens.cp, tokens.outside < tokens.inside, tokens.samples, tokens.sequence)
        key = (*shared_key, tokens.etp)
        found = self._routed.get(key)
        if found is None:
            shared = self._shared.get(shared_key)
            if shared is None:
                others = [block for block in self.kinds if block is not Block.MOE]
                shared = {block: block_activations(self.shape, block, tokens, self.policy) for block in others}
                self._shared[shared_key] = shared
            saved = dict(shared)
            if Block.MOE in self.kinds:
                saved[Block.MOE] = block_activations(self.shape, Block.MOE, tokens, self.policy)
            boundaries = (self._boundary(1, tokens), self._boundary(2, tokens))
            found = self._routed[key] = _Sizes(saved, self.kinds, self.mtp_blocks, boundaries)
        return found

    def floors(self, pipeline: Pipeline, tokens: Tokens, num_microbatches: int) -> list[float]:
        """Return bytes of each stage that differs below which no recomputation gets: under full recomputation, without what is
        rebuilt. Only for a policy of full recomputation.
        """
        return self.totals(pipeline, tokens, num_microbatches, rebuilds=False)

    def totals(self, pipeline: Pipeline, tokens: Tokens, num_microbatches: int, *, rebuilds: bool = True) -> list[float]:
        """Return the bytes of each stage that differs; the hot path of a search."""
        sizes = self.sizes(tokens)
        boundary = sizes.boundaries[pipeline.pp > 1]
        is_full = self.policy.recompute.is_full
        layer_input = self.element * tokens.outside * self.shape.hidden_size
        out = []
        for alive in self._alive_by_stage(pipeline, num_microbatches):
            if is_full:
                saved = alive.inputs * layer_input + sum(map(mul, alive.counts, sizes.full))
                working = sizes.largest(alive.present)
                if rebuilds:
                    working += self._rebuilt(alive, sizes)
            else:
                saved = sum(map(mul, alive.counts, sizes.kept)) + alive.mtp * sizes.depth
                working = sizes.working(alive.present)
            loss = sizes.losses.get(alive.outputs)
            if loss is None:
                loss = sizes.losses[alive.outputs] = self._loss(alive.outputs, tokens)
            out.append(saved + loss[1] + boundary + (loss[0] if loss[0] > working else working))
        return out

    def _rebuilt(self, alive: _Alive, sizes: _Sizes) -> float:
        found = sizes.groups.get(alive.group)
        if found is None:
            found = max(self._recomputed_group(chunk, sizes.saved) for chunk, _ in alive.chunks)
            sizes.groups[alive.group] = found
        return found

    def of_stage(self, pipeline: Pipeline, plan: StagePlan, tokens: Tokens, num_microbatches: int) -> StageActivations:
        """Return the breakdown of one stage."""
        return self.stage(plan, self._alive_chunks(plan, pipeline, num_microbatches), pipeline, tokens)

    def stage(self, plan: StagePlan, alive: _Alive, pipeline: Pipeline, tokens: Tokens) -> StageActivations:
        """Return activation, logit and transient bytes of one stage at its peak."""
        sizes = self.sizes(tokens).saved
        by_kind: dict[str, float] = {}
        working = recomputed = 0.0
        for chunk, count in alive.chunks:
            for kind, size in self._chunk_saved(chunk, tokens, sizes).items():
                by_kind[kind] = by_kind.get(kind, 0.0) + count * size
            for block in chunk.blocks:
                working = max(working, sizes[block].working)
            recomputed = max(recomputed, self._recomputed_group(chunk, sizes))
        logits, head = self._loss(alive.outputs, tokens)
        if head:
            by_kind["head"] = head
        transient = self._boundary(pipeline.pp, tokens) + max(0.0, recomputed + working - logits)
        return StageActivations(sum(by_kind.values()), by_kind, logits, transient, alive.average)

    def _boundary(self, pp: int, tokens: Tokens) -> float:
        """Tensors between stages, and workspaces that stay."""
        size = self.element * self.shape.hidden_size
        boundary = 0.0 if pp == 1 else 2 * size * tokens.outside
        if self.policy.layers is LayerImplementation.TE:
            return boundary + WORKSPACE_BYTES
        boundary += BLAS_WORKSPACE_BYTES if self.policy.on_gpu else 0.0
        # Megatron-Core's own linear layers gather the sequence into one buffer that stays.
        return boundary + (size * tokens.inside if tokens.outside < tokens.inside else 0.0)

    def _alive_by_stage(self, pipeline: Pipeline, num_microbatches: int) -> tuple[_Alive, ...]:
        key = (pipeline, min(num_microbatches, 2 * pipeline.pp * pipeline.vp))
        found = self._alive.get(key)
        if found is None:
            found = tuple(self._alive_chunks(plan, pipeline, num_microbatches) for plan in pipeline.representatives)
            self._alive[key] = found
        return found

    def _alive_chunks(self, plan: StagePlan, pipeline: Pipeline, num_microbatches: int) -> _Alive:
        alive = in_flight(pipeline.pp, pipeline.vp, plan.stage, num_microbatches)
        merged: dict[object, tuple[Chunk, int]] = {}
        blocks: dict[Block, float] = {}
        mtp = inputs = 0
        is_full = self.policy.recompute.is_full
        for chunk, count in zip(plan.chunks, alive, strict=True):
            same = chunk.composition
            merged[same] = (chunk, merged[same][1] + count if same in merged else count)
            mtp += chunk.mtp_layers * count
            inputs += self._kept_inputs(chunk) * count
            stay = count * (self._kept_whole(chunk) if is_full else self._on_device(chunk))
            for block, times in chunk.blocks.items():
                blocks[block] = blocks.get(block, 0.0) + times * stay
        counts = tuple(blocks.get(block, 0.0) for block in self.kinds)
        group = self._groups.setdefault(tuple(merged), len(self._groups))
        last = plan.chunks[-1]
        outputs = 1 + last.mtp_layers if last.output else 0
        average = sum(alive) / len(alive)
        return _Alive(tuple(merged.values()), counts, frozenset(blocks), mtp, inputs, outputs, group, average)

    def _chunk_saved(self, chunk: Chunk, tokens: Tokens, sizes: Mapping[Block, Saved]) -> dict[str, float]:
        """Bytes that one micro batch leaves in one chunk, by kind of block."""
        kept: dict[str, float] = {}
        if self.policy.recompute.is_full:
            inputs = self._kept_inputs(chunk)
            kept["layer inputs"] = inputs * self.element * tokens.outside * self.shape.hidden_size
            rest = self._kept_whole(chunk)
            if rest:
                for block, count in chunk.blocks.items():
                    kept[block.value] = rest * count * sizes[block].full
            return kept
        for block, count in chunk.blocks.items():
            kept[block.value] = count * self._on_device(chunk) * sizes[block].kept
        for block in self.mtp_blocks if chunk.mtp_layers else ():
            kept["mtp"] = kept.get("mtp", 0.0) + chunk.mtp_layers * sizes[block].kept
        return kept

    def _on_device(self, chunk: Chunk) -> float:
        """Part of a chunk's layers whose activations are not in host memory."""
        if not self.policy.offloaded_layers or not chunk.layers:
            return 1.0
        return 1.0 - min(self.policy.offloaded_layers, chunk.layers) / chunk.layers

    def _kept_inputs(self, chunk: Chunk) -> int:
        """Layer inputs that full recomputation keeps; prediction depths are recomputed too."""
        recompute = self.policy.recompute
        if recompute.method == "block":
            return min(recompute.num_layers, chunk.layers)
        return -(-chunk.layers // max(1, recompute.num_layers)) + chunk.mtp_layers

    def _kept_whole(self, chunk: Chunk) -> float:
        """Part of a chunk's layers that full recomputation by block leaves alone."""
        recompute = self.policy.recompute
        if recompute.method != "block" or not chunk.layers:
            return 0.0
        return 1 - min(recompute.num_layers, chunk.layers) / chunk.layers

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

    def _loss(self, outputs: int, tokens: Tokens) -> tuple[float, float]:
        """Return (peak of logits and loss, bytes saved by the final norm) of a chunk with so many output layers."""
        if not outputs:
            return 0.0, 0.0
        entries = tokens.inside * padded_vocab(self.shape, tokens.tp) / tokens.tp
        each = LOSS_BYTES[self.policy.cross_entropy] + (2.0 if self.element == 4.0 else 0.0)
        head = 2 * self.element * tokens.outside * self.shape.hidden_size
        peak = entries * each + (outputs - 1) * entries * 4.0
        if self.policy.cross_entropy == "in_place":
            # Beside the logits' gradient stand the weight's (or its placeholder) and the hidden states', scaled and not.
            peak += self.element * self.shape.hidden_size * (padded_vocab(self.shape, tokens.tp) / tokens.tp + 3 * tokens.inside)
        return peak, head * outputs
