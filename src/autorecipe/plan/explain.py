"""Why a choice is what it is: each axis against its neighbours, as chains of reasons.

A neighbour moves one axis one step. It is illegal (and the rule is named), does not fit (and by how much), or is slower (and
by how much); whatever it is, is the reason for the chosen value.
"""

from __future__ import annotations

from collections.abc import Iterable

from autorecipe.plan.coster import Coster, Scored
from autorecipe.plan.space import Space, find_refusal, recompute_options
from autorecipe.record import replace
from autorecipe.rules import layout as legal
from autorecipe.schema.estimate import Verdict
from autorecipe.schema.layout import Layout
from autorecipe.schema.plan import Candidate, PlanRequest
from autorecipe.units import render_gib

AXES = ("tp", "pp", "vp", "cp", "ep", "etp")


def explain_candidate(request: PlanRequest, chosen: Scored, coster: Coster) -> tuple[str, ...]:
    """Return one chain per axis, such as `EP=8 not 16: predicted 4.1% slower: ep communication 0.91 s instead of 0.52 s`.

    Args:
        request: what was planned.
        chosen: the candidate to explain.
        coster: prepared models of the request.
    """
    return tuple(_Explainer(request, chosen, coster).lines())


class _Explainer:
    """Moves one axis at a time away from a chosen candidate and says what happens."""

    def __init__(self, request: PlanRequest, chosen: Scored, coster: Coster) -> None:
        self.request, self.chosen, self.coster = request, chosen, coster
        self.space = Space(request)
        self.options = recompute_options(request.shape, request.policy)

    def lines(self) -> Iterable[str]:
        """Yield the model's own line, then those of each axis."""
        chosen, gpu = self.chosen, self.request.cluster.gpu
        yield (
            f"{chosen.candidate.render()}: {render_gib(chosen.peak)} of {render_gib(gpu.usable_memory[1])} on the worst rank, "
            f"{chosen.num_microbatches} micro batches a step"
        )
        for axis in AXES:
            if axis in ("ep", "etp") and not self.request.shape.is_moe:
                continue
            yield from self._axis(axis)
        yield from self._micro_batches()

    def _axis(self, axis: str) -> Iterable[str]:
        candidate = self.chosen.candidate
        value = getattr(candidate.layout, axis)
        for other in self._neighbours(candidate.layout, axis):
            moved = _move(candidate.layout, axis, other)
            said = f"{axis.upper()}={value} not {other}"
            splits = self.space.splits(moved.pp, moved.vp)
            if not splits and axis == "pp":
                # Fewer virtual stages, where the layers do not reach for as many.
                smaller = [vp for vp in range(moved.vp - 1, 0, -1) if self.space.splits(moved.pp, vp)]
                if smaller:
                    moved, splits = replace(moved, vp=smaller[0]), self.space.splits(moved.pp, smaller[0])
                    said = f"{said} (with VP={smaller[0]})"
            if not splits:
                yield f"{said}: {self.request.shape.num_layers} layers do not split over PP {moved.pp} x VP {moved.vp}"
                continue
            yield f"{said}: {self._judge(replace(candidate, layout=moved, split=splits[0]))}"

    def _neighbours(self, layout: Layout, axis: str) -> Iterable[int]:
        """Return the next smaller and the next larger size of an axis; of VP, those over which the layers split."""
        shape, value = self.request.shape, getattr(layout, axis)
        if axis == "ep":
            options = legal.divisors(shape.num_moe_experts or 1)
        elif axis == "etp":
            options = sorted({1, layout.tp})
        elif axis == "vp":
            options = [size for size in self.space.vp_values if layout.pp > 1 and self.space.splits(layout.pp, size)]
        else:
            options = [2**power for power in range(12)]
        lower = [option for option in options if option < value]
        upper = [option for option in options if option > value]
        return [*lower[-1:], *upper[:1]]

    def _micro_batches(self) -> Iterable[str]:
        candidate = self.chosen.candidate
        size = candidate.micro_batch_size
        if self.request.policy.packed_tokens:
            yield f"MBS={size}: packed samples come one at a time"
            return
        for other in (size // 2, size * 2):
            if 1 <= other <= max(self.request.max_micro_batch_size, self.request.batch.micro_batch_size):
                yield f"MBS={size} not {other}: {self._judge(replace(candidate, micro_batch_size=other))}"

    def _judge(self, candidate: Candidate) -> str:
        """Say why a neighbour was not taken, under the recomputation that suits it."""
        refusal = find_refusal(self.request, candidate, self.space)
        if refusal:
            return refusal
        other = self._suited(candidate)
        if other.verdict is Verdict.OOM or (other.verdict is Verdict.AT_RISK and self.chosen.verdict is Verdict.FITS):
            word = "does not fit" if other.verdict is Verdict.OOM else "may not fit"
            even = "" if other.candidate.recompute == candidate.recompute else f" even with recompute={_recompute(other)}"
            return f"{word}{even} ({render_gib(other.peak)} on the worst rank)"
        fits = "" if other.candidate.recompute == candidate.recompute else f"needs recompute={_recompute(other)}, "
        change = 100 * (other.seconds / self.chosen.seconds - 1)
        if change < 0:
            return f"{fits}predicted {-change:.1f}% faster, in {render_gib(other.peak)}"
        if change < 0.05:
            return f"{fits}as fast; needs {render_gib(other.peak)} instead of {render_gib(self.chosen.peak)}"
        return f"{fits}predicted {change:.1f}% slower{self._because(other)}"

    def _suited(self, candidate: Candidate) -> Scored:
        """Score a candidate under its own recomputation where that fits, else under the lightest that does, else the last."""
        scored = self.coster.score(candidate)
        if scored.verdict is Verdict.FITS:
            return scored
        tried = [self.coster.score(replace(candidate, recompute=option)) for option in self.options]
        for verdict in (Verdict.FITS, Verdict.AT_RISK):
            for item in (item for item in tried if item.verdict is verdict):
                return item
        return tried[-1]

    def _because(self, other: Scored) -> str:
        """Name the part of the step that grows most."""
        mine, theirs = self.coster.breakdown(self.chosen.candidate), self.coster.breakdown(other.candidate)
        part = max(theirs, key=lambda name: theirs[name] - mine.get(name, 0.0))
        return f": {part} {theirs[part]:.2g} s instead of {mine.get(part, 0.0):.2g} s"


def _recompute(scored: Scored) -> str:
    return scored.candidate.recompute.render()


def _move(layout: Layout, axis: str, value: int) -> Layout:
    if axis == "tp":
        etp = value if layout.etp == layout.tp and layout.etp > 1 else layout.etp
        return replace(layout, tp=value, etp=etp, sequence_parallel=value > 1)
    if axis == "pp":
        return replace(layout, pp=value, vp=layout.vp if value > 1 else 1)
    return replace(layout, **{axis: value})  # type: ignore[arg-type]
