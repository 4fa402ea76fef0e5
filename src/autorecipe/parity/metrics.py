"""Metric names and printed numbers: one spelling for each, with the resolution of the print."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from autorecipe.schema.parity import GRAD_NORM, LEARNING_RATE, LOSS, SAMPLES, Reading

ITERATION_KEYS = ("iteration", "iter", "step", "global_step", "train/iteration", "train/step", "_step")

_ALIASES = {
    LOSS: (
        "lm loss",
        "lm_loss",
        "lm-loss",
        "loss",
        "train loss",
        "train_loss",
        "train/loss",
        "train/lm loss",
        "reduced_train_loss",
    ),
    GRAD_NORM: ("grad norm", "grad_norm", "grad-norm", "gradient norm", "train/grad_norm", "train/grad-norm"),
    LEARNING_RATE: ("learning rate", "learning_rate", "learning-rate", "lr", "train/lr", "train/learning_rate"),
    SAMPLES: ("consumed samples", "consumed_samples", "consumed_train_samples", "consumed-samples", "samples vs steps"),
    "global batch size": ("global batch size", "global_batch_size", "batch-size", "batch size", "gbs"),
}
_CANONICAL = {alias: name for name, aliases in _ALIASES.items() for alias in aliases}

_NUMBER = re.compile(
    r"[-+]?(?:nan|inf|infinity|(?P<digits>\d+(?:\.(?P<fraction>\d*))?|\.(?P<only>\d+))(?:e(?P<exponent>[-+]?\d+))?)",
    re.IGNORECASE,
)


@lru_cache(maxsize=1024)
def canonical_metric(name: str) -> str:
    """Return the one spelling of a metric; names that are not known keep theirs, in lower case."""
    folded = " ".join(name.strip().lower().split())
    return _CANONICAL.get(folded, folded)


def parse_reading(text: str) -> Reading | None:
    """Parse a printed number and what its last digit is worth.

    Args:
        text: such as `1.042335E+01`, `0.693`, `32`, `nan`.

    Returns:
        value and resolution (1e-5, 1e-3, 0, 0 for these), or None where the text is not one number.
    """
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        return None
    value = float(found[0])
    if found["digits"] is None or not math.isfinite(value):
        return Reading(value=value)
    fraction, exponent = found["fraction"] if found["only"] is None else found["only"], found["exponent"]
    if fraction is None and exponent is None:
        return Reading(value=value)  # an integer is exact
    return Reading(value=value, resolution=10.0 ** (int(exponent or 0) - len(fraction or "")))
