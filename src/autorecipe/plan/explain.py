"""Why a choice is what it is: each axis against its neighbours, as chains of reasons.

A neighbour moves one axis one step. It is illegal (and the rule is named), does not fit (and by how much), or is slower (and
by how much); whatever it is, is the reason for the chosen value.
"""

from __future__ import annotations

from collections.abc import Iterable

from autorecipe.plan.search import Coster, Scored
from autorecipe.plan.space import Space
from autorecipe.plan.splits import choose_split
from autorecipe.record import replace
from autorecipe.rules import layout as legal
from autorecipe.schema.estimate import Verdict
from autorecipe.schema.layout import Layout
from autorecipe.schema.plan import Candidate, PlanRequest
from autorecipe.units import render_gib

AXES = ("tp", "pp", "vp", "cp", "ep", "etp")


def explain_candidate(request: PlanRequest, chosen: Scored, coster: Coster) -> tuple[str, ...]:
    """Return one chain per axis, such as `EP=8 not 16: 16 is 4.1% slower (...)`.

    Args:
        request: what was planned.
        chosen: the candidate to explain.
        coster: prepared models of the request.
    """
    lines = [_model_reason(request, chosen)]
    for axis in AXES:
        if axis in ("ep", "etp") and not request.shape.is_moe:
            continue
        lines += _axis_reasons(request, chosen, axis, coster)
    lines += _micro_batch_reasons(request, chosen, coster)
    return tuple(line for line in lines if line)


def find_refusal(request: PlanRequest, candidate: Candidate) -> str:
    """Return why a candidate is not legal on the request's cluster, or an empty text."""
    layout, shape, batch = candidate.layout, request.shape, request.batch
    world = request.cluster.num_gpus
    if not layout.fits_world(world):
        return (
            f"{world} GPUs are not a multiple of both TP x PP x CP = {layout.dense_model_parallel_size} and "
            f"PP x EP x ETP = {layout.expert_model_parallel_size}; the smallest world is {layout.minimum_world_size}"
        )
    space = Space(request)
    reason = space._dense_refusal(layout.tp, layout.pp, layout.cp)
    if reason:
        return reason
    if layout.ep > 1 and not legal.experts_fit(shape.num_moe_experts or 0, layout.ep):
        return f"EP={layout.ep} does not divide {shape.num_moe_experts} experts"
    dp = layout.data_parallel_size(world)
    if not legal.batch_fits(batch.global_batch_size, candidate.micro_batch_size, dp):
        return f"global batch {batch.global_batch_size} is not a multiple of MBS {candidate.micro_batch_size} x DP {dp}"
    microbatches = batch.global_batch_size // (candidate.micro_batch_size * dp)
    if not legal.microbatches_fit(microbatches, layout.pp, layout.vp):
        return f"{microbatches} micro batches do not suit the interleaved schedule of PP={layout.pp}, VP={layout.vp}"
    if layout.pp > 1 and shape.num_layers < layout.pp * layout.vp:
        return f"{shape.num_layers} layers are fewer than PP x VP = {layout.pp * layout.vp}"
    return ""


def score(request: PlanRequest, candidate: Candidate, coster: Coster) -> Scored:
    """Cost one legal candidate."""
    batch = coster.batch(candidate.micro_batch_size)
    layout = candidate.layout
    peak = coster.memory_model(candidate.recompute, candidate.split, fsdp=candidate.fsdp).peak_bytes(layout, batch, coster.world)
    dp = layout.data_parallel_size(coster.world)
    microbatches = batch.num_microbatches(dp)
    verdict = coster.verdict(peak, layout)
    seconds = coster.time_model(candidate.recompute, candidate.split, fsdp=candidate.fsdp).step_seconds(
        layout, batch, coster.world
    )
    return Scored(seconds, peak, verdict, candidate, microbatches)


def _model_reason(request: PlanRequest, chosen: Scored) -> str:
    gpu = request.cluster.gpu
    return (
        f"{chosen.candidate.render()}: {render_gib(chosen.peak)} of {render_gib(gpu.memory_bytes)} on the worst rank, "
        f"{chosen.num_microbatches} micro batches a step"
    )


def _neighbours(request: PlanRequest, layout: Layout, axis: str) -> Iterable[int]:
    value = getattr(layout, axis)
    if axis == "ep":
        options = legal.divisors(request.shape.num_moe_experts or 1)
    elif axis == "etp":
        options = sorted({1, layout.tp})
    elif axis == "vp":
        options = [size for size in range(1, 17) if size <= max(1, request.shape.num_layers // layout.pp)]
        options = options if layout.pp > 1 else [1]
    else:
        options = [2**power for power in range(12)]
    lower = [option for option in options if option < value]
    upper = [option for option in options if option > value]
    return [*lower[-1:], *upper[:1]]


def _axis_reasons(request: PlanRequest, chosen: Scored, axis: str, coster: Coster) -> list[str]:
    layout = chosen.candidate.layout
    value = getattr(layout, axis)
    lines = []
    for other in _neighbours(request, layout, axis):
        moved = _move(layout, axis, other)
        split = choose_split(request.shape.num_layers, moved.pp, moved.vp, request.shape.mtp_num_layers)
        name = axis.upper()
        if split is None:
            lines.append(f"{name}={value} not {other}: there are fewer layers than stages")
            continue
        candidate = replace(chosen.candidate, layout=moved, split=split)
        lines.append(f"{name}={value} not {other}: {_verdict(request, chosen, candidate, coster)}")
    return lines


def _move(layout: Layout, axis: str, value: int) -> Layout:
    if axis == "tp":
        etp = value if layout.etp == layout.tp and layout.etp > 1 else layout.etp
        return replace(layout, tp=value, etp=etp, sequence_parallel=value > 1)
    if axis == "pp":
        return replace(layout, pp=value, vp=layout.vp if value > 1 else 1)
    return replace(layout, **{axis: value})  # type: ignore[arg-type]


def _micro_batch_reasons(request: PlanRequest, chosen: Scored, coster: Coster) -> list[str]:
    size = chosen.candidate.micro_batch_size
    lines = []
    for other in (size // 2, size * 2):
        if other < 1 or other > max(request.max_micro_batch_size, request.batch.micro_batch_size):
            continue
        candidate = replace(chosen.candidate, micro_batch_size=other)
        lines.append(f"MBS={size} not {other}: {_verdict(request, chosen, candidate, coster)}")
    return lines


def _verdict(request: PlanRequest, chosen: Scored, candidate: Candidate, coster: Coster) -> str:
    refusal = find_refusal(request, candidate)
    if refusal:
        return refusal
    other = score(request, candidate, coster)
    if other.verdict is Verdict.OOM or (other.verdict is Verdict.AT_RISK and chosen.verdict is Verdict.FITS):
        word = "does not fit" if other.verdict is Verdict.OOM else "may not fit"
        return f"{word} ({render_gib(other.peak)} on the worst rank)"
    change = 100 * (other.seconds / chosen.seconds - 1)
    if change < 0:
        return f"predicted {-change:.1f}% faster, in {render_gib(other.peak)}"
    if change < 0.05:
        return f"as fast; needs {render_gib(other.peak)} instead of {render_gib(chosen.peak)}"
    return f"predicted {change:.1f}% slower"
