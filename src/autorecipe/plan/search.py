"""Search: walk the legal space, drop what does not fit, rank the rest by predicted step time.

Formula: candidates = legal points x recomputation settings. For each point the cheapest recomputation that fits is found
first; heavier settings of the same point are never faster and are counted as dominated. A layout whose resident bytes alone
do not fit is dropped with all its micro batch sizes; a micro batch size that cannot fit under any recomputation drops the
larger ones. Memory is worked out for every candidate, step times in the order of their lower bounds (`TimeModel.bound_of`),
until no bound left is below the slowest time kept and none could lie on the Pareto front.
Source: exhaustive enumeration; memory and time from the estimators.
Evidence: derived.
Start reading at `search`.
"""

from __future__ import annotations

import bisect
import heapq
import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

from autorecipe.estimate.stages import Pipeline
from autorecipe.plan.coster import Coster, Scored
from autorecipe.plan.space import Cell, Space, recompute_options
from autorecipe.record import dataclass, field, replace
from autorecipe.schema.estimate import Recompute, Verdict
from autorecipe.schema.plan import Candidate, PlanRequest, SearchCount


@dataclass(frozen=True)
class SearchResult:
    """Everything that a plan is made from.

    Attributes:
        fitting: candidates that fit, fastest first.
        at_risk: candidates that fit only with the lower end of the memory interval, fastest first.
        pareto: candidates that fit and that no other beats in both time and memory, fastest first.
        nearest: the legal candidate with the smallest peak, fitting or not; None when nothing is legal or something fits.
        count: what became of the candidates.
    """

    fitting: tuple[Scored, ...]
    at_risk: tuple[Scored, ...]
    pareto: tuple[Scored, ...]
    nearest: Scored | None
    count: SearchCount


class _Found(NamedTuple):
    """A candidate before it is worth an object of its own, with its step time or what that does not get below."""

    seconds: float
    peak: float
    cell: Cell
    micro_batch_size: int
    num_microbatches: int
    recompute: Recompute
    fsdp: bool


def search(
    request: PlanRequest,
    *,
    keep: int = 300,
    admit: Callable[[Cell], bool] | None = None,
    recompute: Sequence[Recompute] | None = None,
    progress: Callable[[int], None] | None = None,
) -> SearchResult:
    """Search every legal candidate of a request.

    Args:
        request: what to plan.
        keep: candidates kept per list; the fastest ones stay.
        admit: tells which legal layouts the caller wants costed; None for all. Others are counted nowhere.
        recompute: recomputation settings to try, lightest first and the heaviest last; None for all of the model's.
        progress: called now and then with the number of layouts seen.

    Returns:
        ranked candidates and counts.
    """
    started = time.perf_counter()
    space = Space(request)
    coster = Coster(request)
    options = tuple(recompute or recompute_options(request.shape, request.policy))
    shardings = (False, True) if request.with_fsdp and not request.policy.fsdp else (request.policy.fsdp,)
    tally = _Tally()
    costings = [_Costing(coster, options, fsdp=fsdp, tally=tally) for fsdp in shardings]
    for seen, cell in enumerate(space.walk()):
        if progress is not None and seen % 1000 == 0:
            progress(seen)
        if admit is not None and not admit(cell):
            continue
        for costing in costings:
            if costing.fsdp and (cell.layout.pp > 1 or cell.layout.tp > 2):
                space.illegal["FSDP is planned only without PP and with TP up to 2"] += len(options) * len(cell.sizes)
                continue
            costing.cost(cell)
    count = SearchCount(
        considered=space.considered - space.legal + tally.seen,
        illegal=dict(space.illegal),
        oom=tally.oom,
        at_risk=len(tally.at_risk),
        fitting=len(tally.fitting),
        dominated=tally.dominated,
        seconds=0.0,
    )
    nearest = tally.nearest
    fitting = _time_best(tally.fitting, coster, keep, with_front=True)
    at_risk = _time_best(tally.at_risk, coster, keep, with_front=False)
    count = replace(count, seconds=time.perf_counter() - started)
    return SearchResult(
        fitting=_ranked(fitting, keep, Verdict.FITS),
        at_risk=_ranked(at_risk, keep, Verdict.AT_RISK),
        pareto=_pareto(fitting),
        nearest=_scored(nearest, Verdict.OOM) if nearest else None,
        count=count,
    )


@dataclass
class _Tally:
    """Running lists and counts of one search."""

    fitting: list[_Found] = field(default_factory=list)
    at_risk: list[_Found] = field(default_factory=list)
    nearest: _Found | None = None
    oom: int = 0
    dominated: int = 0

    @property
    def seen(self) -> int:
        """Candidates, each recomputation setting counted."""
        return len(self.fitting) + len(self.at_risk) + self.oom + self.dominated


class _Costing:
    """Costs one layout after another, with or without fully sharded weights."""

    def __init__(self, coster: Coster, options: tuple[Recompute, ...], *, fsdp: bool, tally: _Tally) -> None:
        self.coster, self.options, self.fsdp, self.tally = coster, options, fsdp, tally
        self.memory = [coster.memory_model(option, fsdp=fsdp) for option in options]
        # Recomputation only adds work, so the lightest setting bounds them all.
        self.lightest = coster.time_model(options[0], fsdp=fsdp)

    def cost(self, cell: Cell) -> None:
        """Cost the micro batch sizes and recomputation settings of one layout, smallest micro batch first.

        More samples at once never need less memory, so a size that does not fit drops the larger ones.
        """
        pipeline = self.coster.pipeline(cell.layout.pp, cell.layout.vp, cell.split)
        resident = self.memory[0].resident_by_stage(cell.layout, self.coster.world, pipeline)
        limits = self.coster.limits(cell.layout)
        known_to_fit = max(resident) <= limits[1]
        for index, (size, microbatches) in enumerate(cell.sizes):
            if not known_to_fit or not self._cost_size(cell, size, microbatches, pipeline, resident, limits):
                self.tally.oom += len(self.options) * (len(cell.sizes) - index)
                self._note_nearest(cell, size, microbatches, pipeline, resident)
                return

    def _cost_size(
        self,
        cell: Cell,
        size: int,
        microbatches: int,
        pipeline: Pipeline,
        resident: tuple[float, ...],
        limits: tuple[float, float],
    ) -> bool:
        """Cost one micro batch size, recomputation from the lightest on until one fits; return whether any may fit."""
        layout, coster, tally = cell.layout, self.coster, self.tally
        fits, may_fit = limits
        tokens = coster.tokens(layout, size)
        at_risk: list[_Found] = []
        bound = 0.0
        for number, memory in enumerate(self.memory):
            peak = memory.peak_of(resident, pipeline, tokens, microbatches)
            if peak <= may_fit:
                bound = bound or self.lightest.bound_of(layout, microbatches, coster.world, tokens)
                found = _Found(bound, peak, cell, size, microbatches, self.options[number], self.fsdp)
                if peak <= fits:
                    tally.fitting.append(found)
                    tally.at_risk += at_risk
                    tally.oom += number - len(at_risk)
                    tally.dominated += len(self.options) - number - 1
                    return True
                at_risk.append(found)
            elif not number and self.memory[-1].floor_of(resident, pipeline, tokens, microbatches) > may_fit:
                return False
        tally.at_risk += at_risk
        tally.oom += len(self.options) - len(at_risk) if at_risk else 0
        return bool(at_risk)

    def _note_nearest(self, cell: Cell, size: int, microbatches: int, pipeline: Pipeline, resident: tuple[float, ...]) -> None:
        """Remember what comes closest to fitting, as long as nothing fits."""
        tally, nearest = self.tally, self.tally.nearest
        if tally.fitting or tally.at_risk or (nearest is not None and nearest.peak <= max(resident)):
            return
        tokens = self.coster.tokens(cell.layout, size)
        for option, model in zip(self.options, self.memory, strict=True):
            peak = model.peak_of(resident, pipeline, tokens, microbatches)
            if tally.nearest is None or peak < tally.nearest.peak:
                tally.nearest = _Found(float("inf"), peak, cell, size, microbatches, option, self.fsdp)


def _time_best(bounded: list[_Found], coster: Coster, keep: int, *, with_front: bool) -> list[_Found]:
    """Return candidates with their step times, among them the `keep` fastest and (where asked for) the Pareto front.

    Candidates are timed in the order of their bounds. One is left out when as many as are kept are faster than its bound, and
    a timed one needs no more memory and is no slower than its bound.
    """
    timed: list[_Found] = []
    slowest_kept: list[float] = []  # A heap of the negated times of the fastest `keep`.
    front = _Front()
    for item in sorted(bounded, key=itemgetter(0, 1)):
        is_slow = len(slowest_kept) == keep and item.seconds > -slowest_kept[0]
        if is_slow and not with_front:
            break
        if is_slow and front.beats(item):
            continue
        layout = item.cell.layout
        pipeline = coster.pipeline(layout.pp, layout.vp, item.cell.split)
        batch, tokens = coster.batch(item.micro_batch_size), coster.tokens(layout, item.micro_batch_size)
        model = coster.time_model(item.recompute, fsdp=item.fsdp)
        item = item._replace(seconds=model.seconds_of(layout, batch, coster.world, pipeline, tokens))
        timed.append(item)
        front.add(item)
        if len(slowest_kept) < keep:
            heapq.heappush(slowest_kept, -item.seconds)
        else:
            heapq.heappushpop(slowest_kept, -item.seconds)
    return timed


class _Front:
    """The Pareto front of what was timed so far: times rising, peaks falling."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.peaks: list[float] = []

    def beats(self, item: _Found) -> bool:
        """Whether a member is no slower than the bound of an item and needs no more memory."""
        index = bisect.bisect_right(self.seconds, item.seconds)
        return index > 0 and self.peaks[index - 1] <= item.peak

    def add(self, item: _Found) -> None:
        """Add an item where nothing beats it; drop what it beats."""
        if self.beats(item):
            return
        index = bisect.bisect_left(self.seconds, item.seconds)
        end = index
        while end < len(self.peaks) and self.peaks[end] >= item.peak:
            end += 1
        self.seconds[index:end] = [item.seconds]
        self.peaks[index:end] = [item.peak]


def _ranked(found: list[_Found], keep: int, verdict: Verdict) -> tuple[Scored, ...]:
    """Return the fastest, by time, then memory, then the plainest layout, so that equals come out the same way each time."""
    best = [_scored(item, verdict) for item in heapq.nsmallest(keep, found, key=itemgetter(0, 1))]
    return tuple(sorted(best, key=lambda scored: (scored.seconds, scored.peak, scored.candidate.render())))


def _pareto(found: list[_Found]) -> tuple[Scored, ...]:
    front: list[_Found] = []
    for item in sorted(found, key=itemgetter(0, 1)):
        if not front or item.peak < front[-1].peak:
            front.append(item)
    return tuple(_scored(item, Verdict.FITS) for item in front)


def _scored(found: _Found, verdict: Verdict) -> Scored:
    candidate = Candidate(
        layout=found.cell.layout,
        micro_batch_size=found.micro_batch_size,
        recompute=found.recompute,
        split=found.cell.split,
        fsdp=found.fsdp,
    )
    return Scored(found.seconds, found.peak, verdict, candidate, found.num_microbatches)
