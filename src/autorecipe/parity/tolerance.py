"""How far two runs of the same training may lie apart.

Rounding model. Unit roundoff u: 2^-24 (fp32), 2^-11 (fp16), 2^-8 (bf16), 2^-4 (fp8, three mantissa bits).

    loss(t)      = r + min(8 u32 |L(t)| g(t) + k u w / sqrt(N) + k u S(t) g(t),  cap |L(t)|)
    grad norm(t) = r + G(t) (4 u32 + k u / 8)             at the first iteration
                 = r + G(t) (64 u32 + k u / 2) g(t)       later

k: 2 where both sides use the same arithmetic, so that only the order of operations differs (another layout, another
framework); 16 where the arithmetic itself differs (bf16 against fp32). r: resolution of both prints. N: tokens in one step;
logits round independently, so their mean error shrinks with sqrt(N). w: how large those errors are, by the hidden size h: h / 256
from 128 to 512, 0.5 below, 2 sqrt(h / 512) beyond, 1 where no header states h. S(t): largest move of the reference loss between
neighbouring iterations up to t; an Adam step moves every weight by about the learning rate whatever the size of its gradient,
so weights whose gradient is below the rounding noise step in a random direction, and the loss error is a fraction of the
step's own effect. g(t) = sqrt(1 + (t - 1)/10): errors walk. cap = max(4 u, 0.002): they saturate. The learning rate and the
samples are computed in double precision or as integers and must agree to the printed digit.

Source: bf16 against fp32 of the same run (two models, ten iterations on one H200): 4.6e-5 at iteration 1, 6.5e-3 at iteration 2,
at most 2.4e-3 later; bf16 on both sides in other layouts: docs/guides/parity.md, and docs/decisions/0005 for the first iteration;
one process against every parallel layout in fp32: at most 1.5e-6 in five steps.
Evidence: form derived, factors chosen to cover those measurements at least twice; cap, growth beyond ten iterations and w
beyond 512 assumed.
Several runs of one side replace assumption by measurement: see `measure_spread`.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Mapping, Sequence

from autorecipe.record import dataclass, field
from autorecipe.schema.parity import GRAD_NORM, LEARNING_RATE, LOSS, Precision, Reading

UNIT_ROUNDOFF = {Precision.FP32: 2.0**-24, Precision.FP16: 2.0**-11, Precision.BF16: 2.0**-8, Precision.FP8: 2.0**-4}
DEFAULT_TOKENS_PER_STEP = 1024
"""Assumed where no log says how many tokens a step has: small, so that the tolerance is not too tight."""

LOSS_FORMULA = "r + min(8 u32 L g + k u w / sqrt(N) + k u S g, max(4 u, 0.002) L), g = sqrt(1 + (t - 1) / 10)"
MEASURED_WIDTH, WIDEST_MEASURED = 256, 512
"""Hidden size at which w is 1, and the largest one at which the first iteration was measured."""

SAME_ARITHMETIC, OTHER_ARITHMETIC = 2.0, 16.0
_U32 = UNIT_ROUNDOFF[Precision.FP32]


@dataclass(frozen=True)
class RoundingModel:
    """Tolerances of one comparison.

    Attributes:
        precision: arithmetic of the runs.
        tokens_per_step: tokens averaged in one loss.
        spread: metric -> iteration -> allowed difference from measured runs; empty where none were given.
        factor: k of the formula.
        hidden_size: of the model; None where no log says it.
    """

    precision: Precision
    tokens_per_step: int = DEFAULT_TOKENS_PER_STEP
    spread: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    factor: float = SAME_ARITHMETIC
    hidden_size: int | None = None

    def series(self, metric: str, reference: Mapping[int, Reading], candidate: Mapping[int, Reading]) -> dict[int, float]:
        """Return the tolerance of each iteration that both sides have.

        Args:
            metric: canonical name; metrics without a model of their own get the loss model.
            reference: readings of the first side.
            candidate: readings of the second side.
        """
        shared = sorted(set(reference) & set(candidate))
        result: dict[int, float] = {}
        largest_move = 0.0
        for position, number in enumerate(shared):
            print_resolution = (reference[number].resolution + candidate[number].resolution) / 2 * (1 + 1e-9)
            value = abs(reference[number].value)
            if position:
                move = abs(reference[number].value - reference[shared[position - 1]].value)
                largest_move = max(largest_move, move) if math.isfinite(move) else largest_move
            steps = number - shared[0]
            rounding = self._rounding(metric, value, largest_move, steps, is_first=number <= 1)
            result[number] = max(print_resolution + rounding, self.spread.get(metric, {}).get(number, 0.0))
        return result

    def _rounding(self, metric: str, value: float, largest_move: float, steps: int, *, is_first: bool) -> float:
        if not math.isfinite(value):
            return 0.0
        u, k = UNIT_ROUNDOFF[self.precision], self.factor
        growth = math.sqrt(1 + steps / 10)
        if metric == LEARNING_RATE:
            return 1e-6 * value
        if metric == GRAD_NORM:
            return value * (4 * _U32 + k * u / 8 if is_first else (64 * _U32 + k * u / 2) * growth)
        if metric == LOSS or metric.endswith("loss"):
            forward = k * u * width_factor(self.hidden_size) / math.sqrt(self.tokens_per_step)
            free = 8 * _U32 * value * growth + forward + k * u * largest_move * growth
            return min(free, max(4 * u, 0.002) * value)
        return 0.0


def width_factor(hidden_size: int | None) -> float:
    """Return w: how much a model of this hidden size rounds in one forward pass, against one of 256.

    Wider models have larger logits, and more of what the output layer sees has gone through rounded layers.
    Source: docs/decisions/0005. Evidence: measured from 64 to 512, assumed beyond.
    """
    if hidden_size is None:
        return 1.0
    if hidden_size <= WIDEST_MEASURED:
        return max(0.5, hidden_size / MEASURED_WIDTH)  # experts of small models round more than dense layers
    return WIDEST_MEASURED / MEASURED_WIDTH * math.sqrt(hidden_size / WIDEST_MEASURED)


# Two-sided 0.998 quantiles of Student's t, by degrees of freedom.
_STUDENT = (
    (1, 318.3),
    (2, 22.33),
    (3, 10.21),
    (4, 7.17),
    (5, 5.89),
    (6, 5.21),
    (7, 4.79),
    (8, 4.50),
    (10, 4.14),
    (15, 3.73),
    (20, 3.55),
    (30, 3.39),
    (60, 3.23),
)


def student_quantile(degrees: int) -> float:
    """Return the two-sided 0.998 quantile of Student's t; between table rows the larger, safe value."""
    position = bisect.bisect_right([row[0] for row in _STUDENT], degrees) - 1
    return _STUDENT[max(0, position)][1]


def measure_spread(runs: Sequence[Mapping[int, Reading]], *, window: int = 4) -> dict[int, float]:
    """Return the difference that run-to-run noise explains, by iteration.

    Formula: q(d) s(t) sqrt(1 + 1/n), with s the standard deviation over n runs pooled over iterations t-4..t+4, d its degrees
    of freedom, q the two-sided 0.998 quantile of Student's t: a further run falls outside once in 500 iterations.
    Evidence: derived from the given runs.

    Args:
        runs: one metric's readings of at least two runs of one side.
        window: iterations on either side that are pooled.
    """
    shared = sorted(set.intersection(*(set(run) for run in runs)))
    variance = {number: statistics.variance(run[number].value for run in runs) for number in shared}
    count = len(runs)
    result: dict[int, float] = {}
    for position, number in enumerate(shared):
        pooled = [variance[other] for other in shared[max(0, position - window) : position + window + 1]]
        degrees = (count - 1) * len(pooled)
        result[number] = student_quantile(degrees) * math.sqrt(statistics.fmean(pooled)) * math.sqrt(1 + 1 / count)
    return result
