"""What the pattern of differences points at.

Order of events in one iteration: forward (loss), backward and reduction (gradient norm), then the update with that
iteration's learning rate. A fault therefore shows first where it acts: data and weights in the first loss, reduction in the
first gradient norm, the schedule in the learning rate, Adam's betas in the third loss (bias correction hides them in the
first update).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autorecipe.schema.parity import GRAD_NORM, LEARNING_RATE, LOSS, SAMPLES, Divergence, Onset, Point, SeriesComparison

_JUMP_FACTOR = 4.0


def diagnose(series: Sequence[SeriesComparison], *, first_of_run: bool) -> Divergence | None:
    """Name the first divergence and its likely cause, or None where all series agree.

    Args:
        series: compared metrics of one pair.
        first_of_run: whether the first compared iteration is the first of both runs.
    """
    by_metric = {entry.metric: entry for entry in series}
    starts = {name: entry.first_divergence for name, entry in by_metric.items() if entry.first_divergence is not None}
    if not starts:
        return None
    earliest = min(starts.values())
    loss_start = starts.get(LOSS)
    effect = by_metric[LOSS] if loss_start is not None else by_metric[min(starts, key=lambda name: starts[name])]
    begins = effect.first_divergence
    assert begins is not None
    onset = _onset(effect, starts, first_of_run=first_of_run)
    if SAMPLES in starts and starts[SAMPLES] <= begins:
        return Divergence(
            metric=SAMPLES,
            iteration=starts[SAMPLES],
            onset=onset,
            cause=(
                "the number of consumed samples differs: the global batch size, its ramp-up, or the starting point is "
                "not the same"
            ),
            next_step="compare train.global_batch_size with --global-batch-size, and the iteration the runs resumed from",
        )
    if LEARNING_RATE in starts and (loss_start is None or starts[LEARNING_RATE] <= loss_start):
        return _blame_learning_rate(by_metric[LEARNING_RATE], loss_start, onset)
    if loss_start is None:
        return _blame_gradient(by_metric, earliest, onset, starts)
    point = next(point for point in by_metric[LOSS].points if point.iteration == loss_start)
    if not math.isfinite(point.difference):
        return _blame_overflow(point, onset)
    return _blame_training(by_metric, loss_start, onset, starts, first_of_run=first_of_run)


def _blame_overflow(point: Point, onset: Onset) -> Divergence:
    side = "reference" if not math.isfinite(point.reference) else "candidate"
    value = point.reference if side == "reference" else point.candidate
    return Divergence(
        metric=LOSS,
        iteration=point.iteration,
        onset=onset,
        cause=f"the {side}'s loss is {value} at iteration {point.iteration}: an overflow, a broken kernel or bad data on "
        "that side, not rounding",
        next_step="look at that side's gradient norms and skipped iterations before it; rerun it in fp32",
    )


def _onset(series: SeriesComparison, starts: Mapping[str, int], *, first_of_run: bool) -> Onset:
    begins = series.first_divergence
    points = series.points
    if begins == points[0].iteration:
        return Onset.FIRST_ITERATION
    if starts.get(LEARNING_RATE, math.inf) <= begins if begins is not None else False:
        return Onset.SCHEDULE
    position = next(index for index, point in enumerate(points) if point.iteration == begins)
    printed = series.first_printed_difference
    if printed is not None and position >= 2 and printed <= points[position - 2].iteration:
        return Onset.GROWTH
    here = abs(points[position].difference)
    before = [abs(point.difference) for point in points[:position]]
    floor = max(max(before), points[position].tolerance / 8)
    if not math.isfinite(here):
        return Onset.JUMP
    # A jump is as large at once as it stays; what grows further from there only became visible.
    later = max((abs(point.difference) for point in points[position:] if math.isfinite(point.difference)), default=here)
    return Onset.JUMP if here >= _JUMP_FACTOR * floor and here >= later / _JUMP_FACTOR else Onset.GROWTH


def _blame_learning_rate(rates: SeriesComparison, loss_start: int | None, onset: Onset) -> Divergence:
    begins = rates.first_divergence
    assert begins is not None
    point = next(point for point in rates.points if point.iteration == begins)
    first = rates.points[0]
    if _is_shifted(rates):
        shape = "the same values at other iterations: a shifted schedule (warmup length, or the scheduler's starting point)"
    elif begins == first.iteration:
        shape = "already at the first iteration: peak rate, warmup or decay style"
    else:
        shape = "at the start of another phase: warmup end, decay length or decay style"
    effect = f"; the loss follows at iteration {loss_start}" if loss_start is not None else "; the loss has not followed yet"
    return Divergence(
        metric=LEARNING_RATE,
        iteration=begins,
        onset=onset if loss_start is not None else (Onset.FIRST_ITERATION if begins == first.iteration else Onset.SCHEDULE),
        cause=(
            f"the learning rate differs first ({point.reference:.6g} / {point.candidate:.6g} at iteration {begins}): "
            f"{shape}{effect}"
        ),
        next_step="compare scheduler.lr_decay_style, lr_warmup_iters, lr_decay_iters, optimizer.lr and min_lr on both sides:"
        " `autorecipe parity design A B`",
    )


def _is_shifted(rates: SeriesComparison) -> bool:
    """Return whether the candidate's rates are the reference's, one to three iterations early or late."""
    reference = [point.reference for point in rates.points]
    candidate = [point.candidate for point in rates.points]
    tolerances = [point.tolerance for point in rates.points]
    for shift in (1, 2, 3):
        if len(reference) <= shift + 2:
            continue
        for one, other in ((reference, candidate), (candidate, reference)):
            pairs = zip(one[shift:], other[:-shift], tolerances, strict=False)
            if all(abs(a - b) <= tolerance for a, b, tolerance in pairs):
                return True
    return False


def _blame_gradient(
    by_metric: Mapping[str, SeriesComparison], begins: int, onset: Onset, starts: Mapping[str, int]
) -> Divergence:
    metric = min(starts, key=lambda name: starts[name])
    if metric != GRAD_NORM:
        return Divergence(metric=metric, iteration=begins, onset=onset, cause=f"{metric} differs while the loss agrees")
    return Divergence(
        metric=GRAD_NORM,
        iteration=begins,
        onset=onset,
        cause="the gradient norm differs while the loss agrees: gradient reduction or accumulation (precision, averaging "
        "over data-parallel ranks, sequence-parallel or shared-expert gradients), or a norm that counts other parameters",
        next_step="compare ddp.grad_reduce_in_fp32, ddp.average_in_collective, calculate_per_token_loss and the layouts",
    )


def _blame_training(
    by_metric: Mapping[str, SeriesComparison], begins: int, onset: Onset, starts: Mapping[str, int], *, first_of_run: bool
) -> Divergence:
    first = by_metric[LOSS].points[0].iteration
    norm_start = starts.get(GRAD_NORM, math.inf)
    if begins == first and not first_of_run:
        cause = (
            "the loss differs from the first compared iteration on; the logs do not start at iteration 1, so what came "
            "before is not seen"
        )
        step = "compare from iteration 1, or the checkpoints that the runs resumed from"
    elif begins == first:
        cause = (
            "the loss differs before the first update: initial weights or seed, data or its order, dropout, tokenizer or "
            "padded vocabulary,"
            " loss mask, or the architecture"
        )
        step = "compare rng.seed and dataset.random_seed, dropout, the data and the architecture: `autorecipe parity design A B`"
    elif norm_start < begins:
        cause = (
            f"the gradient norm differs from iteration {int(norm_start)}, before the loss: gradient reduction or "
            f"accumulation (precision,"
            " averaging), clipping, or a backward pass that is wrong under the layout"
        )
        step = "compare ddp.grad_reduce_in_fp32, ddp.average_in_collective, optimizer.clip_grad and the layouts"
    elif begins == first + 1:
        cause = (
            "loss and gradient norm agree at the first iteration and the loss differs after the first update: the update "
            "itself (weight decay,"
            " epsilon, optimizer, gradient clipping, a schedule that is not printed, gradient accumulation precision)"
        )
        step = "compare optimizer.adam_eps, scheduler.start_weight_decay, optimizer.clip_grad, ddp.grad_reduce_in_fp32"
    elif first_of_run and by_metric[LOSS].first_printed_difference == first + 2:
        cause = (
            "two iterations agree and the third does not: what the first update hides and the second shows, Adam's betas "
            "first (bias correction"
            " removes them from the first update), or what is small, such as epsilon"
        )
        step = "compare optimizer.adam_beta1, optimizer.adam_beta2 and optimizer.adam_eps"
    elif onset is Onset.JUMP:
        cause = (
            "the difference jumps: an event at this iteration (a data file or epoch boundary, a skipped or nan iteration, "
            "a resume, a loss-scale"
            " change, a curriculum or batch-size step, gradients that pass the clipping threshold)"
        )
        step = (
            "look at the data position, at skipped or nan iterations around it, and at the gradient norm against "
            "optimizer.clip_grad"
        )
    else:
        cause = (
            "the difference builds up: a small error in every update (Adam's betas, weight decay, gradient or "
            "optimizer-state precision), or"
            " rounding that the tolerance does not cover"
        )
        step = "compare the optimizer settings; measure the run-to-run spread with --repeat"
    return Divergence(metric=LOSS, iteration=begins, onset=onset, cause=cause, next_step=step)
