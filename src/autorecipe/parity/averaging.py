"""Undoing the running average in Megatron-LM's second console line.

Megatron-LM prints the first iteration of a process without resetting its loss accumulators, so that at a log interval of 1
the second line averages both iterations. The trap is in the log, not in the training: learning rate and gradient norm are not
averaged, and what is written to TensorBoard is not either.

Formula: loss(2) = 2 x printed(2) - printed(1); resolutions add up as 2 r(2) + r(1).
Source: `should_reset = not is_first_iteration` in megatron/training/training.py:2594 @ core 0.19.2.
Evidence: measured (a pair that agrees in every other printed digit on both sides agrees here as well once it is undone).
"""

from __future__ import annotations

from collections.abc import Mapping

from autorecipe.record import replace
from autorecipe.schema.parity import GRAD_NORM, LEARNING_RATE, SAMPLES, Framework, LogForm, Reading, TrainingLog

_NOT_AVERAGED = {
    GRAD_NORM,
    LEARNING_RATE,
    SAMPLES,
    "loss scale",
    "global batch size",
    "params norm",
    "num zeros",
    "load_balancing_loss",
    "z_loss",
}


def can_be_averaged(log: TrainingLog) -> bool:
    """Return whether the second line of a log can be a running average: console output at a log interval of 1."""
    numbers = sorted(log.steps)
    return log.form is LogForm.TEXT and len(numbers) >= 2 and numbers[1] == numbers[0] + 1


def is_averaged(log: TrainingLog) -> bool:
    """Return whether the second line is a running average, judged by the program that wrote the log."""
    return log.framework is Framework.MEGATRON_LM and can_be_averaged(log)


def undo_average(log: TrainingLog, *, reason: str) -> TrainingLog:
    """Return the log with the second iteration's own losses.

    Args:
        log: a log for which `can_be_averaged` holds.
        reason: why it is undone, for the note.
    """
    first, second = sorted(log.steps)[:2]
    row = split_average(log.steps[first], log.steps[second])
    changed = [metric for metric, reading in log.steps[second].items() if row[metric] is not reading]
    if not changed:
        return log
    note = (
        f"{log.name}: line {second} averages iterations {first} and {second} ({reason}); undone for {', '.join(changed)}:"
        f" {changed[0]} {log.steps[second][changed[0]].value:.6g} -> {row[changed[0]].value:.6g}"
    )
    return replace(log, steps={**log.steps, second: row}, notes=(*log.notes, note))


def split_average(first: Mapping[str, Reading], second: Mapping[str, Reading]) -> dict[str, Reading]:
    """Return the second iteration's own readings.

    Args:
        first: readings of the first line.
        second: readings of the second line, whose losses are means of both iterations.
    """
    row = dict(second)
    for metric, reading in second.items():
        before = first.get(metric)
        if before is not None and _is_loss(metric):
            row[metric] = Reading(value=2 * reading.value - before.value, resolution=2 * reading.resolution + before.resolution)
    return row


def _is_loss(metric: str) -> bool:
    return metric not in _NOT_AVERAGED and metric.endswith("loss")
