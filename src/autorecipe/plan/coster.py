"""Memory and time of the candidates of one request: models prepared once, what they share shared."""

from __future__ import annotations

from collections.abc import Mapping

from autorecipe.estimate.block_time import KernelTimes
from autorecipe.estimate.coefficients import load_coefficients
from autorecipe.estimate.memory import MemoryModel
from autorecipe.estimate.overhead import ALLOCATED_BAND, outside_bytes, reserved_bytes
from autorecipe.estimate.stages import Pipeline
from autorecipe.estimate.states import RankCounter
from autorecipe.estimate.time import TimeModel
from autorecipe.estimate.tokens import Tokens, count_tokens
from autorecipe.record import dataclass, replace
from autorecipe.schema.batch import Batch
from autorecipe.schema.estimate import ExecutionPolicy, Recompute, Sharding, StageSplit, Verdict
from autorecipe.schema.layout import Layout
from autorecipe.schema.plan import Candidate, PlanRequest


@dataclass(frozen=True)
class Scored:
    """A candidate with the two numbers that rank it."""

    seconds: float
    peak: float
    verdict: Verdict
    candidate: Candidate
    num_microbatches: int


class Coster:
    """Memory and time of candidates of one request.

    Args:
        request: what is planned.
    """

    def __init__(self, request: PlanRequest) -> None:
        self.request = request
        self.world = request.cluster.num_gpus
        self._counter = RankCounter(request.shape, request.policy.adapters)
        self._kernels: KernelTimes | None = None
        self._memory: dict[tuple[Recompute, bool], MemoryModel] = {}
        self._time: dict[tuple[Recompute, bool], TimeModel] = {}
        self._pipelines: dict[tuple[int, int, StageSplit], Pipeline] = {}
        self._batches: dict[int, Batch] = {}
        self._tokens: dict[tuple[int, ...], Tokens] = {}
        self._limits: dict[tuple[bool, ...], tuple[float, float]] = {}

    def policy(self, candidate: Candidate) -> ExecutionPolicy:
        """Return the request's policy with what a candidate decides."""
        return replace(self._policy(candidate.recompute, fsdp=candidate.fsdp), split=candidate.split)

    def _policy(self, recompute: Recompute, *, fsdp: bool) -> ExecutionPolicy:
        policy = replace(self.request.policy, recompute=recompute)
        return replace(policy, sharding=Sharding.FULL, fsdp=True) if fsdp else policy

    def memory_model(self, recompute: Recompute, *, fsdp: bool) -> MemoryModel:
        """Return the prepared memory model of a recomputation setting."""
        model = self._memory.get((recompute, fsdp))
        if model is None:
            model = MemoryModel(self.request.shape, policy=self._policy(recompute, fsdp=fsdp), counter=self._counter)
            self._memory[(recompute, fsdp)] = model
        return model

    def time_model(self, recompute: Recompute, *, fsdp: bool) -> TimeModel:
        """Return the prepared time model of a recomputation setting."""
        model = self._time.get((recompute, fsdp))
        if model is None:
            memory = self.memory_model(recompute, fsdp=fsdp)
            request = self.request
            if self._kernels is None:
                self._kernels = KernelTimes(request.shape, policy=request.policy, gpu=request.cluster.gpu, c=load_coefficients())
            model = TimeModel(request.shape, policy=memory.policy, gpu=request.cluster.gpu, memory=memory, kernels=self._kernels)
            self._time[(recompute, fsdp)] = model
        return model

    def pipeline(self, pp: int, vp: int, split: StageSplit) -> Pipeline:
        """Return the stages of a split."""
        found = self._pipelines.get((pp, vp, split))
        if found is None:
            model = self.memory_model(self.request.policy.recompute, fsdp=False)
            found = self._pipelines[(pp, vp, split)] = model.make_pipeline(pp, vp, split)
        return found

    def batch(self, micro_batch_size: int) -> Batch:
        """Return the request's batch with another micro batch size."""
        found = self._batches.get(micro_batch_size)
        if found is None:
            found = self._batches[micro_batch_size] = replace(self.request.batch, micro_batch_size=micro_batch_size)
        return found

    def tokens(self, layout: Layout, micro_batch_size: int) -> Tokens:
        """Return the token counts of a layout and a micro batch size."""
        key = (layout.tp, layout.cp, layout.ep, layout.etp, micro_batch_size, layout.sequence_parallel)
        found = self._tokens.get(key)
        if found is None:
            found = self._tokens[key] = count_tokens(layout, self.batch(micro_batch_size))
        return found

    def limits(self, layout: Layout) -> tuple[float, float]:
        """Return (largest peak that fits, largest peak that may fit) in allocated bytes for a layout.

        Formula: `judge` is linear in the peak, so its two thresholds are solved once per set of communicators.
        """
        edp = self.world // layout.expert_model_parallel_size
        dp = self.world // layout.dense_model_parallel_size
        key = (layout.tp > 1, layout.pp > 1, layout.cp > 1, layout.ep > 1, layout.etp > 1, dp > 1, edp > 1)
        found = self._limits.get(key)
        if found is None:
            policy, capacity = self.request.policy, self.request.cluster.gpu.usable_memory[1]
            low, high = reserved_bytes(1.0, shape=self.request.shape, policy=policy)
            outside = outside_bytes(layout, world_size=self.world, policy=policy)
            fits = (capacity - outside[1]) / high
            low_factor = max(ALLOCATED_BAND[0], low * ALLOCATED_BAND[0] / ALLOCATED_BAND[1])
            found = (fits, (capacity - outside[0]) / low_factor)
            self._limits[key] = found
        return found

    def verdict(self, peak: float, layout: Layout) -> Verdict:
        """Judge a peak of allocated bytes against the GPU."""
        fits, may_fit = self.limits(layout)
        if peak <= fits:
            return Verdict.FITS
        return Verdict.AT_RISK if peak <= may_fit else Verdict.OOM

    def score(self, candidate: Candidate) -> Scored:
        """Cost one legal candidate."""
        layout, fsdp, recompute = candidate.layout, candidate.fsdp, candidate.recompute
        pipeline = self.pipeline(layout.pp, layout.vp, candidate.split)
        tokens = self.tokens(layout, candidate.micro_batch_size)
        batch = self.batch(candidate.micro_batch_size)
        microbatches = max(1, batch.num_microbatches(max(1, layout.data_parallel_size(self.world))))
        memory = self.memory_model(recompute, fsdp=fsdp)
        peak = memory.peak_of(memory.resident_by_stage(layout, self.world, pipeline), pipeline, tokens, microbatches)
        return Scored(self.seconds(candidate), peak, self.verdict(peak, layout), candidate, microbatches)

    def seconds(self, candidate: Candidate) -> float:
        """Return the predicted step time of one legal candidate, without looking at its memory."""
        layout, size = candidate.layout, candidate.micro_batch_size
        pipeline = self.pipeline(layout.pp, layout.vp, candidate.split)
        model = self.time_model(candidate.recompute, fsdp=candidate.fsdp)
        return model.seconds_of(layout, self.batch(size), self.world, pipeline, self.tokens(layout, size))

    def breakdown(self, candidate: Candidate) -> Mapping[str, float]:
        """Return the exposed seconds of a candidate's step by part."""
        layout = candidate.layout
        pipeline = self.pipeline(layout.pp, layout.vp, candidate.split)
        model = self.time_model(candidate.recompute, fsdp=candidate.fsdp)
        return model.breakdown(layout, self.batch(candidate.micro_batch_size), self.world, pipeline).exposed
