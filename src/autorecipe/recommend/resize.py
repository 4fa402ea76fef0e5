"""Resize a recipe: search with the planner, under a colleague's habits, and of the layouts that are as fast take the nearest one.

Legality, memory and time are the planner's (see `autorecipe.plan`); here is only what is preferred. Loaded only when a recipe has
to be resized. Start at `resize_recipe`.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Sequence

from autorecipe.estimate.overhead import outside_bytes
from autorecipe.plan.coster import Scored
from autorecipe.plan.search import SearchResult, search
from autorecipe.plan.space import Cell, Space, recompute_options
from autorecipe.recommend.habits import MAX_PP, Habits
from autorecipe.record import dataclass, replace
from autorecipe.schema.estimate import Recompute, Verdict
from autorecipe.schema.evidence import Evidence
from autorecipe.schema.plan import Candidate, PlanRequest
from autorecipe.schema.recommendation import Statement

NO_DIFFERENCE = 1.05
"""Options whose predicted step times differ by less than this count as equally fast.

Source: the time estimate's median error on public measurements is 6% (data/calibration/errors.json). Evidence: derived.
"""

AS_LEAN = 1.02
"""Peaks of memory that differ by less than this count as equal: half of the closed form's own band. Evidence: assumed."""

AXES = ("tp", "pp", "cp", "ep", "etp")

KEPT = 2000
"""Candidates that a search hands over; the fastest ones, so that those within 5% of the fastest are among them."""


CHECKED_AT_MOST = 40
"""Candidates of one list that the full rules look at."""

Objection = Callable[[Candidate], bool]


class NotResized(enum.Enum):
    """Why a recipe cannot be resized: nothing fits in memory, or no layout is legal there."""

    TOO_BIG = "too-big"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class Resized:
    """What a search ended with.

    Attributes:
        candidate: layout, micro batch size, recomputation and split.
        verdict: FITS or AT_RISK.
        reason: why this one.
    """

    candidate: Candidate
    verdict: Verdict
    reason: Statement


def resize_recipe(request: PlanRequest, habits: Habits, *, objects: Objection = lambda candidate: False) -> Resized | NotResized:
    """Return the layout to run on the request's cluster, or why there is none.

    Formula: the planner's search among layouts that keep to the habits; where that leaves nothing that is sure to fit, among all.
    Of those that are sure to fit and within 5% of the fastest by predicted step time, the one with the fewest changes to the
    recipe. Where none is sure to fit, of those within 2% of the least memory the one with the fewest changes.
    Source: plan/search.py. Evidence: derived.

    Args:
        request: model, batch, policy and cluster; `layout` is the recipe's.
        habits: what a colleague keeps to where it can be kept to.
        objects: tells whether the full rules refuse a candidate; asked of the best few only.
    """
    objects = functools.cache(objects)
    kept = _search(request, habits, strictly=True)
    found = _take_fast(kept.fitting, request, objects)
    if found is not None:
        return found
    bent = _search(request, habits, strictly=False)
    found = _take_fast(bent.fitting, request, objects)
    if found is not None:
        return found
    for result in (kept, bent):
        found = _take_lean([item for item in result.at_risk if _is_likely(item, request)], request, objects)
        if found is not None:
            return found
    is_refused = bool(kept.fitting or bent.fitting)  # what fits was refused by the full rules
    is_legal = any(result.at_risk or result.count.oom for result in (kept, bent))
    return NotResized.TOO_BIG if is_legal and not is_refused else NotResized.REFUSED


def is_any_usual(request: PlanRequest, habits: Habits) -> bool:
    """Return whether any legal layout keeps to the habits, fitting or not."""
    admit = _admit(request, habits)
    return any(admit(cell) for cell in Space(_bound(request, habits, strictly=True)).walk())


def _search(request: PlanRequest, habits: Habits, *, strictly: bool) -> SearchResult:
    shipped = request.layout
    assert shipped is not None
    own_etp = (1, shipped.etp)
    admit = _admit(request, habits) if strictly else lambda cell: cell.layout.etp in own_etp
    asked = _bound(request, habits, strictly=strictly)
    return search(asked, keep=KEPT, admit=admit, recompute=recompute_choices(request))


def _bound(request: PlanRequest, habits: Habits, *, strictly: bool) -> PlanRequest:
    """Return the request with what is never tried, or strictly not, taken out of the space."""
    return replace(
        request,
        max_tp=habits.tensor_parallel_limit(request.shape, request.cluster, strictly=strictly),
        max_micro_batch_size=request.batch.micro_batch_size,
        even_stages=True,
    )


def _admit(request: PlanRequest, habits: Habits) -> Callable[[Cell], bool]:
    """Return the test whether a layout keeps to the habits."""
    shipped, owns_uneven = habits.shipped, bool(request.policy.split.explicit)

    def admit(cell: Cell) -> bool:
        layout = cell.layout
        return (
            layout.etp in (1, shipped.etp)
            and layout.pp <= max(MAX_PP, shipped.pp)
            and habits.likes_context(layout.cp)
            and (owns_uneven or not cell.split.explicit)
        )

    return admit


def recompute_choices(request: PlanRequest) -> tuple[Recompute, ...]:
    """Return the recipe's own recomputation and what is heavier, lightest first: nothing that it saves is given up."""
    own = request.policy.recompute
    options = recompute_options(request.shape, request.policy)
    if own == options[0]:
        return options
    return (own,) if own.is_full else (own, options[-1])


def _take_fast(fitting: Sequence[Scored], request: PlanRequest, objects: Objection) -> Resized | None:
    """Return the candidate nearest to the recipe among those as fast as the fastest that no rule refuses."""
    fastest = next((item for item in fitting[:CHECKED_AT_MOST] if not objects(item.candidate)), None)
    if fastest is None:
        return None
    equal = [item for item in fitting if fastest.seconds <= item.seconds <= NO_DIFFERENCE * fastest.seconds]
    equal.sort(key=lambda item: (*_distance(item.candidate, request), item.seconds))
    chosen = next((item for item in equal[:CHECKED_AT_MOST] if not objects(item.candidate)), fastest)
    facts: dict[str, object] = {"fitting": len(fitting), "layout": _name(chosen), "seconds": round(chosen.seconds, 1)}
    if chosen is fastest:
        code = "rule.search-only" if len(fitting) == 1 else "rule.search-fastest"
    else:
        code = "rule.search-near"
        slower = round(100 * (chosen.seconds / fastest.seconds - 1), 1)
        facts |= {"equal": len(equal), "limit": round(100 * (NO_DIFFERENCE - 1)), "fastest": _name(fastest), "slower": slower}
    reason = Statement(code=code, facts=facts, evidence=Evidence.DERIVED)
    return Resized(candidate=chosen.candidate, verdict=Verdict.FITS, reason=reason)


def _take_lean(found: Sequence[Scored], request: PlanRequest, objects: Objection) -> Resized | None:
    """Where none is sure to fit, one that needs least is the likeliest to."""
    by_peak = sorted(found, key=lambda item: item.peak)[:CHECKED_AT_MOST]
    leanest = next((item for item in by_peak if not objects(item.candidate)), None)
    if leanest is None:
        return None
    equal = [item for item in by_peak if leanest.peak <= item.peak <= AS_LEAN * leanest.peak]
    equal.sort(key=lambda item: (*_distance(item.candidate, request), item.peak))
    chosen = next(item for item in equal if not objects(item.candidate))
    facts = {"layout": _name(chosen), "count": len(found)}
    reason = Statement(code="rule.search-lean", facts=facts, evidence=Evidence.DERIVED)
    return Resized(candidate=chosen.candidate, verdict=Verdict.AT_RISK, reason=reason)


def _is_likely(item: Scored, request: PlanRequest) -> bool:
    """Whether a layout of our own fits at least as expected, and not only at best."""
    cluster = request.cluster
    outside = outside_bytes(item.candidate.layout, world_size=cluster.num_gpus, policy=request.policy)
    return item.peak + outside[0] <= cluster.gpu.usable_memory[1]


def _distance(candidate: Candidate, request: PlanRequest) -> tuple[float, bool]:
    """Return (changes, whether the micro batch size changes): doublings and halvings of axes; any other change is one."""
    shipped, layout = request.layout, candidate.layout
    assert shipped is not None
    moves = sum(abs(math.log2(getattr(layout, axis) / getattr(shipped, axis))) for axis in AXES)
    moves += layout.pp == shipped.pp and layout.vp != shipped.vp
    moves += candidate.recompute != request.policy.recompute
    moves += bool(candidate.split.explicit) and candidate.split != request.policy.split
    return (moves, candidate.micro_batch_size != request.batch.micro_batch_size)


def _name(item: Scored) -> str:
    candidate = item.candidate
    text = f"{candidate.layout.render()} MBS{candidate.micro_batch_size}"
    return text if candidate.recompute == Recompute() else f"{text} recompute={candidate.recompute.render()}"
