"""Time of one optimizer step of any layout: device time by part, communication exposed and hidden, bubble, optimizer.

`TimeModel` is prepared once per (shape, policy, GPU) and remembers what depends on few axes; `estimate_time` is the one-shot
form with the breakdown. One block is in `block_time`, what is done once a step in `step_time`.

Formula: m x (slowest stage's micro batch) + (PP - 1) / VP x (average stage) + exposed data-parallel communication + optimizer
+ fixed work, times the jitter of the network.
Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2 for the bubble; kernels.py and communication.py for the parts.
Evidence: derived; coefficients fitted to public measurements.
Error: data/calibration/errors.json, reproduced by bench/estimators.py.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from operator import mul

from autorecipe.estimate.block_time import BlockTimes, KernelTimes, Parts
from autorecipe.estimate.coefficients import Coefficients, load_coefficients
from autorecipe.estimate.flops import model_flops_per_token
from autorecipe.estimate.kernels import peak_flops
from autorecipe.estimate.memory import MemoryModel
from autorecipe.estimate.stages import Chunk, Pipeline
from autorecipe.estimate.step_time import StepTimes
from autorecipe.estimate.tokens import Tokens, count_tokens
from autorecipe.schema.batch import Batch
from autorecipe.schema.blocks import Block
from autorecipe.schema.estimate import ExecutionPolicy, FlopFormula, TimeEstimate
from autorecipe.schema.hardware import Gpu
from autorecipe.schema.layout import Layout
from autorecipe.schema.model import ModelShape


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """Seconds of one step by part: exposed ones add up to the step, hidden ones run beside them."""

    exposed: dict[str, float]
    hidden: dict[str, float]
    num_microbatches: int
    bubble: float


@dataclass(frozen=True, slots=True)
class _Work:
    """What each stage that differs runs for one micro batch.

    Attributes:
        kinds: (block, part recomputed as a whole) of all stages.
        stages: for each stage how many of each kind, and how many output layers.
    """

    kinds: tuple[tuple[Block, float], ...]
    stages: tuple[tuple[tuple[int, ...], int], ...]


class TimeModel:
    """The step time of one shape under one policy on one GPU type.

    Args:
        shape: the model.
        policy: how a step is executed.
        gpu: the GPU type.
        coefficients: fitted numbers; None for those of this release.
        memory: a prepared memory model of the same shape and policy, to share its counts.
        kernels: prepared kernel times of the same shape, GPU and policy but for recomputation, to share.
    """

    def __init__(
        self,
        shape: ModelShape,
        *,
        policy: ExecutionPolicy,
        gpu: Gpu,
        coefficients: Coefficients | None = None,
        memory: MemoryModel | None = None,
        kernels: KernelTimes | None = None,
    ) -> None:
        self.shape = shape
        self.policy = policy
        self.gpu = gpu
        self.c = coefficients or load_coefficients()
        self.memory = memory or MemoryModel(shape, policy=policy)
        self.blocks = BlockTimes(kernels or KernelTimes(shape, policy=policy, gpu=gpu, c=self.c), policy=policy)
        self.step = StepTimes(self.memory.counter, policy=policy, gpu=gpu, c=self.c)
        self._work: dict[Pipeline, _Work] = {}
        self._whole: dict[Tokens, float] = {}
        self._jitters: dict[int, float] = {}

    def step_seconds(self, layout: Layout, batch: Batch, world_size: int) -> float:
        """Return the expected step time."""
        pipeline = self.memory.pipeline(layout.pp, layout.vp)
        return self.seconds_of(layout, batch, world_size, pipeline, count_tokens(layout, batch))

    def seconds_of(self, layout: Layout, batch: Batch, world_size: int, pipeline: Pipeline, tokens: Tokens) -> float:
        """Return the same for given stages and token counts; the hot path of a search (positional on purpose)."""
        stages = self._stage_seconds(layout, tokens, world_size, pipeline)
        forward, backward = max(stages, key=sum)
        average = sum(weight * sum(stage) for weight, stage in zip(pipeline.weights, stages, strict=True)) / pipeline.pp
        sync, _ = self.step.data_parallel(layout, world_size, pipeline, forward=forward, backward=backward)
        work = microbatches_of(layout, batch, world_size) * (forward + backward) + (layout.pp - 1) / layout.vp * average
        once = sync + self.step.optimizer(layout, world_size, pipeline) + self.c.step_seconds
        return (work + once) * (1.0 + self._jitter(world_size))

    def bound_of(self, layout: Layout, microbatches: int, world_size: int, tokens: Tokens) -> float:
        """Return seconds that no step of a layout gets below, without looking at its stages (positional on purpose).

        Formula: (m + (PP - 1) / VP) x seconds of all layers / PP x jitter: the slowest stage is no faster than the average one,
        and transfers, reductions and the optimizer take no less than nothing. Evidence: derived; tested against `seconds_of`.
        """
        whole = self._whole.get(tokens)
        if whole is None:
            whole = self._whole[tokens] = self._all_layers(tokens) * (1.0 - 1e-9)
        factor = self._jitters.get(world_size)
        if factor is None:
            factor = self._jitters[world_size] = 1.0 + self._jitter(world_size)
        return (microbatches + (layout.pp - 1) / layout.vp) * whole / layout.pp * factor

    def _all_layers(self, tokens: Tokens) -> float:
        """Return forward and backward seconds of one micro batch on all stages together, or less."""
        recompute = self.policy.recompute
        repeats = 1.0 if recompute.is_full and recompute.method != "block" else 0.0
        layers = sum(count * self.blocks.of(block, tokens, repeats).total for block, count in self.memory.counter.blocks.items())
        return layers + (1 + self.shape.mtp_num_layers) * self.blocks.head(tokens).total

    def breakdown(self, layout: Layout, batch: Batch, world_size: int, pipeline: Pipeline | None = None) -> StepBreakdown:
        """Return the same step by part."""
        pipeline = pipeline or self.memory.pipeline(layout.pp, layout.vp)
        tokens = count_tokens(layout, batch)
        microbatches = microbatches_of(layout, batch, world_size)
        seconds = self._stage_seconds(layout, tokens, world_size, pipeline)
        totals = [sum(stage) for stage in seconds]
        average = sum(weight * total for weight, total in zip(pipeline.weights, totals, strict=True)) / pipeline.pp
        slowest = self._stage_parts(totals.index(max(totals)), layout, tokens, world_size, pipeline)
        exposed = {name: microbatches * value for name, value in slowest.parts.items()}
        hidden = {name: microbatches * value for name, value in slowest.hidden.items()}
        bubble = (layout.pp - 1) / layout.vp * average
        exposed["bubble"] = bubble
        sync, sync_hidden = self.step.data_parallel(
            layout, world_size, pipeline, forward=slowest.forward, backward=slowest.backward
        )
        exposed["dp communication"] = exposed.get("dp communication", 0.0) + sync
        hidden["dp communication"] = hidden.get("dp communication", 0.0) + sync_hidden
        exposed["optimizer"] = self.step.optimizer(layout, world_size, pipeline)
        exposed["fixed"] = self.c.step_seconds
        exposed["jitter"] = sum(exposed.values()) * self._jitter(world_size)
        return StepBreakdown(exposed, hidden, round(microbatches), bubble)

    def _jitter(self, world_size: int) -> float:
        return self.c.jitter * math.log2(max(1, -(-world_size // self.gpu.gpus_per_node)))

    def _stage_seconds(self, layout: Layout, tokens: Tokens, world_size: int, pipeline: Pipeline) -> list[tuple[float, float]]:
        """Return (forward, backward) seconds of one micro batch on each stage that differs from the others."""
        sends = self.step.pipeline(layout, tokens, world_size)
        work = self._works(pipeline)
        parts = [self.blocks.of(block, tokens, repeats) for block, repeats in work.kinds]
        forwards, backwards = [part.forward for part in parts], [part.backward for part in parts]
        head = self.blocks.head(tokens)
        stages = []
        for index, (counts, heads) in enumerate(work.stages):
            forward = sends.forward + heads * head.forward + sum(map(mul, counts, forwards))
            backward = sends.backward + heads * head.backward + sum(map(mul, counts, backwards))
            if self.step.shards_weights:
                sharded = self.step.fsdp(index, layout, world_size, pipeline, forward=forward, backward=backward)
                forward += sharded.forward
                backward += sharded.backward
            stages.append((forward, backward))
        return stages

    def _stage_parts(self, index: int, layout: Layout, tokens: Tokens, world_size: int, pipeline: Pipeline) -> Parts:
        """Return the parts of one stage, by its index among those that differ."""
        work = self._works(pipeline)
        counts, heads = work.stages[index]
        stage = Parts()
        for (block, repeats), count in zip(work.kinds, counts, strict=True):
            if count:
                stage.merge(self.blocks.of(block, tokens, repeats), times=count)
        if heads:
            stage.merge(self.blocks.head(tokens), times=heads)
        stage.merge(self.step.pipeline(layout, tokens, world_size))
        if self.step.shards_weights:
            stage.merge(self.step.fsdp(index, layout, world_size, pipeline, forward=stage.forward, backward=stage.backward))
        return stage

    def _works(self, pipeline: Pipeline) -> _Work:
        found = self._work.get(pipeline)
        if found is None:
            stages = [self._count(chunks) for chunks in pipeline.chunks]
            kinds = tuple({kind: None for counts, _ in stages for kind in counts})
            found = _Work(kinds, tuple((tuple(counts[kind] for kind in kinds), heads) for counts, heads in stages))
            self._work[pipeline] = found
        return found

    def _count(self, chunks: tuple[tuple[Chunk, int], ...]) -> tuple[Counter[tuple[Block, float]], int]:
        """Add up the chunks of a stage; prediction depths run each of their blocks and an output layer of their own."""
        blocks: Counter[tuple[Block, float]] = Counter()
        heads = 0
        for chunk, times in chunks:
            repeats = self._repeated(chunk)
            for block, count in chunk.blocks.items():
                blocks[(block, repeats)] += times * count
            for block in self.memory.counter.mtp_blocks if chunk.mtp_layers else ():
                blocks[(block, repeats)] += times * chunk.mtp_layers
            heads += times * (chunk.output + chunk.mtp_layers)
        return blocks, heads

    def _repeated(self, chunk: Chunk) -> float:
        """Part of a chunk's layers that full recomputation runs twice."""
        recompute = self.policy.recompute
        if not recompute.is_full:
            return 0.0
        if recompute.method == "block":
            return min(1.0, recompute.num_layers / chunk.layers) if chunk.layers else 0.0
        return 1.0


def microbatches_of(layout: Layout, batch: Batch, world_size: int) -> float:
    """Return the micro batches of a step, at least one."""
    dp = max(1, world_size // (layout.tp * layout.pp * layout.cp))
    return max(1.0, batch.global_batch_size / (batch.micro_batch_size * dp))


def estimate_time(
    shape: ModelShape,
    *,
    layout: Layout,
    batch: Batch,
    policy: ExecutionPolicy,
    gpu: Gpu,
    world_size: int,
    formula: FlopFormula = FlopFormula.MEGATRON,
    assumptions: tuple[str, ...] = (),
    coefficients: Coefficients | None = None,
) -> TimeEstimate:
    """Estimate the time of one optimizer step.

    Args:
        shape: the model.
        layout: parallel layout.
        batch: batch sizes and sequence.
        policy: how a step is executed.
        gpu: the GPU type.
        world_size: GPUs of the run.
        formula: which FLOPs count as work in TFLOP/s and MFU.
        assumptions: what the caller assumed; passed through.
        coefficients: fitted numbers; None for those of this release.

    Returns:
        the estimate; `error` and the interval are filled in by the caller that knows the published errors.
    """
    model = TimeModel(shape, policy=policy, gpu=gpu, coefficients=coefficients)
    found = model.breakdown(layout, batch, world_size)
    step = sum(found.exposed.values())
    tokens = batch.tokens_per_step / step / world_size
    per_token = model_flops_per_token(shape, sequence=batch.seq_length, formula=formula, frozen=policy.adapters is not None)
    peak, name = peak_flops(gpu, policy.precision)
    return TimeEstimate(
        step_seconds=step,
        interval_seconds=(step, step),
        breakdown_seconds=found.exposed,
        hidden_seconds=found.hidden,
        tokens_per_second_per_gpu=tokens,
        flops_per_token=per_token,
        tflops_per_gpu=tokens * per_token / 1e12,
        mfu=tokens * per_token / peak,
        mfu_precision=name,
        flop_formula=formula,
        bubble_fraction=found.bubble / step,
        num_microbatches=found.num_microbatches,
        assumptions=assumptions,
    )
