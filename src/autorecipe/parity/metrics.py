"""Metric names and printed numbers: one spelling for each, with the resolution of the print."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

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

_NUMBER = re.compile(r"[-+]?(?:nan|inf|infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)", re.IGNORECASE)


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
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        return Reading(value=value)
    try:
        exponent = Decimal(text).as_tuple().exponent
    except InvalidOperation:
        return None
    assert isinstance(exponent, int)
    is_integer = re.fullmatch(r"[-+]?\d+", text) is not None
    return Reading(value=value, resolution=0.0 if is_integer else 10.0**exponent)
