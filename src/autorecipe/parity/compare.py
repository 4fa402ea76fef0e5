"""Comparing one run with another, iteration by iteration. Pure: logs in, report out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autorecipe.parity.averaging import can_be_averaged, is_averaged, undo_average
from autorecipe.parity.diagnosis import diagnose
from autorecipe.parity.header_facts import compare_facts, find_incomparable, read_hidden_size
from autorecipe.parity.tolerance import (
    DEFAULT_TOKENS_PER_STEP,
    LOSS_FORMULA,
    OTHER_ARITHMETIC,
    SAME_ARITHMETIC,
    UNIT_ROUNDOFF,
    RoundingModel,
    measure_spread,
)
from autorecipe.record import dataclass, replace
from autorecipe.schema.parity import (
    COMPARED_METRICS,
    LEARNING_RATE,
    LOSS,
    SAMPLES,
    Divergence,
    FactDifference,
    Framework,
    Onset,
    ParityReport,
    Point,
    Precision,
    Reading,
    SeriesComparison,
    ToleranceModel,
    TrainingLog,
    Verdict,
)


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """How to compare.

    Attributes:
        precision: arithmetic; None reads it from the logs.
        first: first iteration to compare; None starts at the first shared one.
        last: last iteration to compare; None goes to the last shared one.
        expect_identical: whether a difference in any printed digit breaks parity (same program, same layout, deterministic
        kernels).
        allow_incomplete: whether a log that ends before its announced last iteration still counts.
    """

    precision: Precision | None = None
    first: int | None = None
    last: int | None = None
    expect_identical: bool = False
    allow_incomplete: bool = False


def compare_logs(
    reference: TrainingLog,
    candidate: TrainingLog,
    *,
    reference_repeats: Sequence[TrainingLog] = (),
    candidate_repeats: Sequence[TrainingLog] = (),
    options: CompareOptions | None = None,
) -> ParityReport:
    """Compare a candidate run with a reference run.

    Args:
        reference: the run that counts as right.
        candidate: the run to judge.
        reference_repeats: further runs of the reference's exact configuration, for the measured run-to-run spread.
        candidate_repeats: the same for the candidate.
        options: how to compare.
    """
    options = options or CompareOptions()
    reference, candidate = _limit(reference, options), _limit(candidate, options)
    reference_repeats = [_undo(_limit(log, options)) for log in reference_repeats]
    candidate_repeats = [_undo(_limit(log, options)) for log in candidate_repeats]
    precision, reason = choose_precision(reference, candidate, options.precision)
    tokens = reference.tokens_per_step or candidate.tokens_per_step or DEFAULT_TOKENS_PER_STEP
    factor = OTHER_ARITHMETIC if _arithmetic_differs(reference, candidate, options) else SAME_ARITHMETIC
    hidden = read_hidden_size(reference) or read_hidden_size(candidate)
    plain = RoundingModel(precision, tokens, factor=factor, hidden_size=hidden)
    reference, candidate = _undo_pair(reference, candidate, plain)
    spread_groups = [
        [run, *repeats] for run, repeats in ((reference, reference_repeats), (candidate, candidate_repeats)) if repeats
    ]
    spread = {metric: _pooled_spread(spread_groups, metric) for metric in COMPARED_METRICS} if spread_groups else {}
    model = RoundingModel(precision, tokens, spread, factor, hidden)
    series = tuple(
        entry for metric in COMPARED_METRICS if (entry := _compare_series(metric, reference, candidate, model)) is not None
    )
    notes = [*reference.notes, *candidate.notes, *_unshared(reference, candidate)]
    for log in (reference, candidate):
        notes.append(f"{log.name}: {log.framework.value} ({log.framework_reason})")
    tolerance = ToleranceModel(
        precision=precision,
        precision_reason=reason,
        unit_roundoff=UNIT_ROUNDOFF[precision],
        factor=factor,
        tokens_per_step=tokens,
        hidden_size=hidden,
        formula=LOSS_FORMULA,
        spread_runs=sum(len(group) for group in spread_groups),
        spread=max(spread[LOSS].values(), default=0.0) if spread_groups else None,
    )
    facts = compare_facts(reference, candidate)
    obstacles = find_incomparable(reference, candidate)
    verdict, summary, extra = _judge(reference, candidate, series, plain, options, obstacles, bool(spread_groups))
    numbers = sorted(set(reference.steps) & set(candidate.steps))
    first_of_run = bool(numbers) and numbers[0] == 1
    divergence = diagnose(series, first_of_run=first_of_run) if verdict in (Verdict.BROKEN, Verdict.INCOMPLETE) else None
    return ParityReport(
        reference=reference.name,
        candidate=candidate.name,
        frameworks=(reference.framework, candidate.framework),
        verdict=verdict,
        summary=summary,
        iterations=(numbers[0], numbers[-1]) if numbers else None,
        num_iterations=len(numbers),
        series=series,
        divergence=divergence,
        tolerance=tolerance if numbers else None,
        fact_differences=facts,
        notes=tuple(dict.fromkeys((*notes, *extra))),
    )


def apply_settings(report: ParityReport, differences: Sequence[FactDifference]) -> ParityReport:
    """Return a report that takes into account what the logs' own headers say about their settings.

    Losses that agree over a few iterations do not excuse another experiment: a fault such as gradients reduced in bf16 hides
    in the rounding at first.

    Args:
        report: a comparison of losses.
        differences: settings that decide the training and differ in effect, whatever the names the headers use.
    """
    if not differences:
        return replace(report, fact_differences=())
    names = ", ".join(item.name for item in differences)
    if not report.verdict.holds:
        divergence = report.divergence
        if divergence is not None and divergence.metric not in (LEARNING_RATE, SAMPLES):
            stated = ", ".join(f"{item.name} {item.reference} / {item.candidate}" for item in differences)
            divergence = replace(divergence, cause=f"the headers state other settings: {stated}. {divergence.cause}")
        return replace(report, fact_differences=tuple(differences), divergence=divergence)
    first = report.iterations[0] if report.iterations is not None else 1
    return replace(
        report,
        verdict=Verdict.BROKEN,
        summary=f"the headers state other settings ({names}), though {report.summary}",
        fact_differences=tuple(differences),
        divergence=Divergence(
            metric="settings",
            iteration=first,
            onset=Onset.FIRST_ITERATION,
            cause=f"another experiment by its own settings: {names}; its effect is still below what rounding explains",
            next_step="`autorecipe parity design A B` prints the corrected commands; --ignore-settings compares losses only",
        ),
    )


def _limit(log: TrainingLog, options: CompareOptions) -> TrainingLog:
    low, high = options.first or -math.inf, options.last or math.inf
    if low == -math.inf and high == math.inf:
        return log
    averaged = _undo(log) if is_averaged(log) else log
    return replace(averaged, steps={n: row for n, row in averaged.steps.items() if low <= n <= high})


def _undo(log: TrainingLog) -> TrainingLog:
    if not is_averaged(log) or any("undone for" in note for note in log.notes):
        return log
    return undo_average(log, reason="Megatron-LM does not reset its accumulators at the first line")


def _undo_pair(one: TrainingLog, other: TrainingLog, model: RoundingModel) -> tuple[TrainingLog, TrainingLog]:
    """Undo Megatron-LM's average on either side, by program, and by arithmetic where the program is not known."""
    first, second = _undo(one), _undo(other)
    return _check_by_arithmetic(one, first, second, model), _check_by_arithmetic(other, second, first, model)


def _check_by_arithmetic(raw: TrainingLog, undone: TrainingLog, partner: TrainingLog, model: RoundingModel) -> TrainingLog:
    if not can_be_averaged(raw) or any("undone for" in note for note in raw.notes):
        return undone
    if raw.framework not in (Framework.MEGATRON_LM, Framework.UNKNOWN):
        return undone
    guess = undo_average(raw, reason="by arithmetic: only so does it agree with the other side")
    number = sorted(raw.steps)[1]
    if LOSS not in raw.steps[number] or LOSS not in partner.steps.get(number, {}):
        return undone
    raw_agrees = _agrees_at(number, raw, partner, model)
    guess_agrees = _agrees_at(number, guess, partner, model)
    if raw.framework is Framework.UNKNOWN and guess_agrees and not raw_agrees:
        return guess
    if raw.framework is Framework.MEGATRON_LM and raw_agrees and not guess_agrees:
        note = (
            f"{raw.name}: line {number} was left as printed: by arithmetic it is not an average (an older release resets "
            f"after each line)"
        )
        return replace(raw, notes=(*raw.notes, note))
    return undone


def _agrees_at(number: int, one: TrainingLog, other: TrainingLog, model: RoundingModel) -> bool:
    left, right = one.series(LOSS), other.series(LOSS)
    tolerance = model.series(LOSS, right, left).get(number)
    return tolerance is not None and abs(left[number].value - right[number].value) <= tolerance


def choose_precision(one: TrainingLog, other: TrainingLog, given: Precision | None) -> tuple[Precision, str]:
    """Return the arithmetic that a comparison assumes, and why: the given one, or the coarser of what the headers state."""
    if given is not None:
        return given, "given"
    known = [log.precision for log in (one, other) if log.precision is not None]
    if not known:
        return Precision.BF16, "assumed: no log states it (--precision sets it)"
    worst = max(known, key=lambda precision: UNIT_ROUNDOFF[precision])
    return worst, "the coarser of the two logs' headers" if len(set(known)) > 1 else "stated in a log's header"


def _arithmetic_differs(one: TrainingLog, other: TrainingLog, options: CompareOptions) -> bool:
    known = {log.precision for log in (one, other)} - {None}
    return options.precision is None and len(known) > 1


def _pooled_spread(groups: Sequence[Sequence[TrainingLog]], metric: str) -> dict[int, float]:
    result: dict[int, float] = {}
    for group in groups:
        for number, value in measure_spread([log.series(metric) for log in group]).items():
            result[number] = max(result.get(number, 0.0), value)
    return result


def _compare_series(metric: str, reference: TrainingLog, candidate: TrainingLog, model: RoundingModel) -> SeriesComparison | None:
    left, right = reference.series(metric), candidate.series(metric)
    tolerances = model.series(metric, left, right)
    if not tolerances:
        return None
    points = tuple(
        Point(iteration=n, reference=left[n].value, candidate=right[n].value, tolerance=tolerance)
        for n, tolerance in tolerances.items()
    )
    printed = next(
        (n for n in tolerances if not _same_digits(left[n], right[n])),
        None,
    )
    finite = [point for point in points if math.isfinite(point.difference)]
    worst = max(finite or points, key=lambda point: abs(point.difference) if math.isfinite(point.difference) else -1.0)
    scale = abs(worst.reference) or 1.0
    gap = abs(worst.difference)
    return SeriesComparison(
        metric=metric,
        points=points,
        identical=printed is None,
        first_printed_difference=printed,
        first_divergence=next((point.iteration for point in points if not point.agrees), None),
        max_difference=gap,
        max_difference_iteration=worst.iteration,
        digits=round(-math.log10(gap / scale), 1) if math.isfinite(gap) and gap > 0 else 17.0,
    )


def _same_digits(one: Reading, other: Reading) -> bool:
    """Return whether two readings may be the same number: the finer one, rounded, is the coarser one."""
    if one.value != one.value or other.value != other.value:
        return one.value != one.value and other.value != other.value
    if one.value == other.value:
        return True
    coarse, fine = max(one.resolution, other.resolution), min(one.resolution, other.resolution)
    return abs(one.value - other.value) <= 0.51 * coarse + (fine if fine < coarse / 2 else 0.0)


def _judge(
    reference: TrainingLog,
    candidate: TrainingLog,
    series: tuple[SeriesComparison, ...],
    plain: RoundingModel,
    options: CompareOptions,
    obstacles: Sequence[str],
    has_spread: bool,
) -> tuple[Verdict, str, list[str]]:
    notes: list[str] = []
    if obstacles:
        return (
            Verdict.NOT_COMPARABLE,
            f"absolute losses are not ranked across {' and '.join(obstacles)}; compare trends at equal tokens instead",
            notes,
        )
    losses = next((entry for entry in series if entry.metric == LOSS), None)
    if losses is None:
        spans = "; ".join(f"{log.name} has {_span(log)}" for log in (reference, candidate))
        return Verdict.INCOMPLETE, f"the logs share no iteration with an lm loss: {spans}", notes
    count = len(losses.points)
    diverged = [entry for entry in series if entry.first_divergence is not None]
    if diverged:
        first = min(diverged, key=lambda entry: (entry.first_divergence or 0, COMPARED_METRICS.index(entry.metric)))
        loss_part = (
            f"lm loss differs from iteration {losses.first_divergence}" if losses.first_divergence else "lm loss agrees so far"
        )
        lead = "" if first is losses else f"{first.metric} differs from iteration {first.first_divergence}, "
        largest = f"largest difference {losses.max_difference:.3g}"
        if not all(math.isfinite(point.difference) for point in losses.points):
            largest += " where both are numbers"
        return Verdict.BROKEN, f"parity is broken: {lead}{loss_part} ({largest})", notes
    missing = [note for log in (reference, candidate) if (note := _unfinished(log, options)) is not None]
    if missing and not options.allow_incomplete:
        return Verdict.INCOMPLETE, f"{count} iterations agree, but {'; '.join(missing)}", notes
    notes += missing
    if all(entry.identical for entry in series):
        names = ", ".join(entry.metric for entry in series)
        return Verdict.IDENTICAL, f"identical in every printed digit at all {count} iterations ({names})", notes
    if options.expect_identical:
        first_number = next(p.iteration for entry in series for p in entry.points if p.difference)
        return (
            Verdict.BROKEN,
            f"not identical from iteration {first_number} on (largest lm loss difference {losses.max_difference:.3g}), and "
            f"identical was expected",
            notes,
        )
    rounding = plain.series(LOSS, reference.series(LOSS), candidate.series(LOSS))
    within = all(abs(point.difference) <= rounding[point.iteration] for point in losses.points)
    if within:
        if has_spread and max((point.tolerance for point in losses.points), default=0.0) == 0.0:
            notes.append(
                "the repeated runs agree exactly, so the remaining difference is systematic, though small enough for rounding"
            )
        return Verdict.WITHIN_ROUNDING, _within(losses, "rounding"), notes
    return Verdict.WITHIN_SPREAD, _within(losses, "the measured run-to-run spread"), notes


def _span(log: TrainingLog) -> str:
    numbers = list(log.series(LOSS))
    return f"iterations {numbers[0]} to {numbers[-1]}" if numbers else f"no {LOSS}"


def _unshared(one: TrainingLog, other: TrainingLog) -> list[str]:
    """Say which iterations only one log has, those after the other's end apart: that one is incomplete, and says so."""
    found = []
    for log, without in ((one, other), (other, one)):
        known = without.series(LOSS)
        lone = [number for number in log.series(LOSS) if number not in known and known and number <= max(known)]
        if lone:
            found.append(f"{len(lone)} iterations from {lone[0]} to {lone[-1]} are in {log.name} alone: they were not compared")
    return found


def _within(losses: SeriesComparison, what: str) -> str:
    return (
        f"all {len(losses.points)} iterations agree within {what}: largest lm loss difference {losses.max_difference:.3g} "
        f"at iteration"
        f" {losses.max_difference_iteration}"
    )


def _unfinished(log: TrainingLog, options: CompareOptions) -> str | None:
    if log.announced_iterations is None or not log.steps:
        return None
    last = max(number for number, row in log.steps.items() if LOSS in row) if log.series(LOSS) else 0
    target = min(log.announced_iterations, options.last or log.announced_iterations)
    return f"{log.name} ends at iteration {last} of {target}" if last < target else None
