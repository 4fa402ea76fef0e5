"""Whether further runs of one side may measure its run-to-run spread.

A run of another configuration, another seed among them, would widen the tolerance until any fault passes. Pure: logs in,
reasons out.
"""

from __future__ import annotations

from collections.abc import Sequence

from autorecipe.parity.header_facts import find_incomparable, read_hidden_size
from autorecipe.parity.tolerance import DEFAULT_TOKENS_PER_STEP, RoundingModel
from autorecipe.schema.parity import LEARNING_RATE, LOSS, SAMPLES, Precision, TrainingLog


def find_strangers(side: TrainingLog, repeats: Sequence[TrainingLog], *, precision: Precision) -> list[tuple[str, str]]:
    """Return the repeats that are no further run of a side, each with the reason.

    Before the first update only rounding tells two runs of one configuration apart, and the schedule and the samples never do.

    Args:
        side: the run that is repeated.
        repeats: further runs; averages of the second line are undone.
        precision: arithmetic of the side.
    """
    model = RoundingModel(precision, side.tokens_per_step or DEFAULT_TOKENS_PER_STEP, hidden_size=read_hidden_size(side))
    found = []
    for repeat in repeats:
        reason = _reason(side, repeat, model)
        if reason:
            found.append((repeat.name, reason))
    return found


def _reason(side: TrainingLog, repeat: TrainingLog, model: RoundingModel) -> str:
    obstacles = find_incomparable(side, repeat)
    if obstacles:
        return " and ".join(obstacles)
    shared = set(side.series(LOSS)) & set(repeat.series(LOSS))
    if not shared:
        return "shares no iteration with it"
    for metric in (SAMPLES, LEARNING_RATE, LOSS):
        one, other = side.series(metric), repeat.series(metric)
        for number, tolerance in model.series(metric, one, other).items():
            if metric == LOSS and number > 1:
                break
            if abs(one[number].value - other[number].value) > tolerance:
                values = f"{one[number].value:.6g} and {other[number].value:.6g}"
                return f"{metric} is {values} at iteration {number}: other data, another seed or another schedule"
    return ""
