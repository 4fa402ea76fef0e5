"""Search: walk the legal space, drop what does not fit, rank the rest by predicted step time.

Formula: candidates = legal points x recomputation settings. For each point the cheapest recomputation that fits is found
first; heavier settings of the same point are slower and need less memory, so they are costed only for the Pareto front.
Source: exhaustive enumeration; memory and time from the estimators.
Evidence: derived.
Start reading at `search`.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from autorecipe.estimate.memory import MemoryModel
from autorecipe.estimate.overhead import outside_bytes, reserved_bytes
from autorecipe.estimate.time import TimeModel
from autorecipe.plan.space import Point, Space, recompute_options
from autorecipe.schema.batch import Batch
from autorecipe.schema.estimate import ExecutionPolicy, Recompute, Sharding, StageSplit, Verdict
from autorecipe.schema.layout import Layout
from autorecipe.schema.plan import Candidate, PlanRequest, SearchCount

ALLOCATED_BAND = (0.96, 1.04)
"""Interval of allocated bytes around the closed form; the same as `estimate_memory` reports."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate with the two numbers that rank it."""

    seconds: float
    peak: float
    verdict: Verdict
    candidate: Candidate
    num_microbatches: int


@dataclass(frozen=True)
class SearchResult:
    """Everything that a plan is made from.

    Attributes:
        fitting: candidates that fit, fastest first.
        at_risk: candidates that fit only with the lower end of the memory interval, fastest first.
        nearest: the legal candidate with the smallest peak, fitting or not; None when nothing is legal.
        count: what became of the candidates.
    """

    fitting: tuple[Scored, ...]
    at_risk: tuple[Scored, ...]
    nearest: Scored | None
    count: SearchCount


class Coster:
    """Memory and time of candidates of one request; models are prepared once per policy and remembered."""

    def __init__(self, request: PlanRequest) -> None:
        self.request = request
        self.world = request.cluster.num_gpus
        self._memory: dict[tuple[Recompute, StageSplit, bool], MemoryModel] = {}
        self._time: dict[tuple[Recompute, StageSplit, bool], TimeModel] = {}
        self._limits: dict[tuple[bool, ...], tuple[float, float]] = {}

    def policy(self, recompute: Recompute, split: StageSplit, *, fsdp: bool) -> ExecutionPolicy:
        """Return the request's policy with what a candidate decides."""
        policy = replace(self.request.policy, recompute=recompute, split=split)
        return replace(policy, sharding=Sharding.FULL, fsdp=True) if fsdp else policy

    def memory_model(self, recompute: Recompute, split: StageSplit, *, fsdp: bool) -> MemoryModel:
        """Return the prepared memory model."""
        key = (recompute, split, fsdp)
        model = self._memory.get(key)
        if model is None:
            model = MemoryModel(self.request.shape, policy=self.policy(recompute, split, fsdp=fsdp))
            self._memory[key] = model
        return model

    def time_model(self, recompute: Recompute, split: StageSplit, *, fsdp: bool) -> TimeModel:
        """Return the prepared time model."""
        key = (recompute, split, fsdp)
        model = self._time.get(key)
        if model is None:
            memory = self.memory_model(recompute, split, fsdp=fsdp)
            model = TimeModel(self.request.shape, policy=memory.policy, gpu=self.request.cluster.gpu, memory=memory)
            self._time[key] = model
        return model

    def batch(self, micro_batch_size: int) -> Batch:
        """Return the request's batch with another micro batch size."""
        return replace(self.request.batch, micro_batch_size=micro_batch_size)

    def limits(self, layout: Layout) -> tuple[float, float]:
        """Return (largest peak that fits, largest peak that may fit) in allocated bytes for a layout.

        Formula: `judge` is linear in the peak, so its two thresholds are solved once per set of communicators.
        """
        edp = self.world // layout.expert_model_parallel_size
        dp = self.world // layout.dense_model_parallel_size
        key = (layout.tp > 1, layout.pp > 1, layout.cp > 1, layout.ep > 1, layout.etp > 1, dp > 1, edp > 1)
        found = self._limits.get(key)
        if found is None:
            policy, capacity = self.request.policy, self.request.cluster.gpu.memory_bytes
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


def search(request: PlanRequest, *, keep: int = 2000, progress: Callable[[int], None] | None = None) -> SearchResult:
    """Search every legal candidate of a request.

    Recomputation settings of a point are tried from the lightest on. The first that fits ends the point: heavier ones are
    never faster, and are counted as `dominated`.

    Args:
        request: what to plan.
        keep: candidates kept per list; the fastest ones stay.
        progress: called now and then with the number of points seen.

    Returns:
        ranked candidates and counts.
    """
    started = time.perf_counter()
    space = Space(request)
    coster = Coster(request)
    options = recompute_options(request.shape, request.policy)
    shardings = (False, True) if request.with_fsdp and not request.policy.fsdp else (request.policy.fsdp,)
    batches = {size: coster.batch(size) for size in space.mbs_values}
    tally = _Tally()
    for seen, point in enumerate(space.walk()):
        if progress is not None and seen % 1000 == 0:
            progress(seen)
        for fsdp in shardings:
            if fsdp and (point.layout.pp > 1 or point.layout.tp > 2):
                space.illegal["FSDP is planned only without PP and with TP up to 2"] += len(options)
                continue
            _cost_point(point, fsdp, options, batches[point.micro_batch_size], coster, tally)
    count = SearchCount(
        considered=space.considered - space.legal + tally.seen,
        illegal=dict(space.illegal),
        oom=tally.oom,
        at_risk=len(tally.at_risk),
        fitting=len(tally.fitting),
        dominated=tally.dominated,
        seconds=time.perf_counter() - started,
    )
    return SearchResult(
        fitting=tuple(heapq.nsmallest(keep, tally.fitting, key=_rank)),
        at_risk=tuple(heapq.nsmallest(keep, tally.at_risk, key=_rank)),
        nearest=tally.nearest,
        count=count,
    )


@dataclass
class _Tally:
    """Running lists and counts of one search."""

    fitting: list[Scored] = field(default_factory=list)
    at_risk: list[Scored] = field(default_factory=list)
    nearest: Scored | None = None
    oom: int = 0
    dominated: int = 0

    @property
    def seen(self) -> int:
        """Candidates, each recomputation setting counted."""
        return len(self.fitting) + len(self.at_risk) + self.oom + self.dominated


def _cost_point(point: Point, fsdp: bool, options: tuple[Recompute, ...], batch: Batch, coster: Coster, tally: _Tally) -> None:
    """Cost the recomputation settings of one point until one fits.

    Two cheap tests come first: what stays allocated between steps is the same for every setting, and the last setting needs
    the least memory of all; when either does not fit, none does.
    """
    fits, may_fit = coster.limits(point.layout)
    last = options[-1]
    model = coster.memory_model(last, point.split, fsdp=fsdp)
    least = model.resident_bytes(point.layout, coster.world)
    if least <= may_fit:
        least = model.peak_bytes(point.layout, batch, coster.world)
    if least > may_fit:
        tally.oom += len(options)
        if tally.nearest is None or least < tally.nearest.peak:
            peak = model.peak_bytes(point.layout, batch, coster.world)
            if tally.nearest is None or peak < tally.nearest.peak:
                candidate = _candidate(point, last, fsdp)
                tally.nearest = Scored(float("inf"), peak, Verdict.OOM, candidate, point.num_microbatches)
        return
    for index, recompute in enumerate(options):
        peak = coster.memory_model(recompute, point.split, fsdp=fsdp).peak_bytes(point.layout, batch, coster.world)
        if peak > may_fit:
            tally.oom += 1
            continue
        seconds = coster.time_model(recompute, point.split, fsdp=fsdp).step_seconds(point.layout, batch, coster.world)
        verdict = Verdict.FITS if peak <= fits else Verdict.AT_RISK
        scored = Scored(seconds, peak, verdict, _candidate(point, recompute, fsdp), point.num_microbatches)
        if verdict is Verdict.FITS:
            tally.fitting.append(scored)
            tally.dominated += len(options) - index - 1
            return
        tally.at_risk.append(scored)


def _candidate(point: Point, recompute: Recompute, fsdp: bool) -> Candidate:
    return Candidate(
        layout=point.layout,
        micro_batch_size=point.micro_batch_size,
        recompute=recompute,
        split=point.split,
        fsdp=fsdp,
    )


def _rank(scored: Scored) -> tuple[float, float, str]:
    """Order by time, then memory, then the plainest layout, so that equal candidates come out the same way each time."""
    return (scored.seconds, scored.peak, scored.candidate.render())


def pareto_front(scored: tuple[Scored, ...]) -> tuple[Scored, ...]:
    """Return the candidates that no other beats in both time and memory, fastest first."""
    front: list[Scored] = []
    for item in sorted(scored, key=_rank):
        if not front or item.peak < front[-1].peak:
            front.append(item)
    return tuple(front)
