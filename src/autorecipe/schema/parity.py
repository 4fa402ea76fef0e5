"""What a comparison of training logs speaks in: logs, series, tolerances, divergences and the verdict.

Losses are mean cross entropy in nats per token, as the frameworks print them. Start reading at `ParityReport`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from autorecipe.record import dataclass, field
from autorecipe.schema.change import Change

LOSS = "lm loss"
GRAD_NORM = "grad norm"
LEARNING_RATE = "learning rate"
SAMPLES = "consumed samples"
COMPARED_METRICS = (SAMPLES, LEARNING_RATE, LOSS, GRAD_NORM)
"""Metrics that decide the verdict, causes before effects."""


class Framework(enum.StrEnum):
    """Which program wrote a log."""

    MEGATRON_LM = "megatron-lm"
    BRIDGE = "bridge"
    AUTORECIPE = "autorecipe"
    UNKNOWN = "unknown"


class LogForm(enum.StrEnum):
    """How a log is stored."""

    TEXT = "text"
    JSON_LINES = "json-lines"
    TENSORBOARD = "tensorboard"


class Precision(enum.StrEnum):
    """Arithmetic of the forward and backward pass."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One printed number.

    Attributes:
        value: as printed, or as recovered from a running average.
        resolution: value of the last printed digit; 0 for exact integers and stored floats.
    """

    value: float
    resolution: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TrainingLog:
    """One run as its log tells it.

    Attributes:
        name: file it came from.
        form: how it is stored.
        framework: program that wrote it.
        framework_reason: what shows that.
        steps: iteration -> metric -> reading; metric names are canonical (`lm loss`).
        announced_iterations: iterations the run was to make, or None where the log does not say.
        precision: arithmetic, or None where the log does not say.
        num_parameters: parameters on the reporting rank, or None.
        tokens_per_step: global batch times sequence length, or None where the log does not say both.
        facts: settings that the log's own header states, by the name it uses.
        notes: what was unusual about the log and what was done about it.
        fine_timestamps: whether lines carry microseconds, as newer Megatron-LM releases print them.
    """

    name: str
    form: LogForm
    framework: Framework
    framework_reason: str
    steps: Mapping[int, Mapping[str, Reading]]
    announced_iterations: int | None = None
    precision: Precision | None = None
    num_parameters: int | None = None
    tokens_per_step: int | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    fine_timestamps: bool = False

    def series(self, metric: str) -> dict[int, Reading]:
        """Return the readings of one metric by iteration, in order."""
        return {number: row[metric] for number in sorted(self.steps) if metric in (row := self.steps[number])}


class Verdict(enum.StrEnum):
    """The answer of a comparison; only the first three are a yes."""

    IDENTICAL = "identical"
    WITHIN_ROUNDING = "within-rounding"
    WITHIN_SPREAD = "within-run-to-run-spread"
    BROKEN = "broken"
    INCOMPLETE = "incomplete"
    NOT_COMPARABLE = "not-comparable"

    @property
    def holds(self) -> bool:
        """Whether parity holds."""
        return self in (Verdict.IDENTICAL, Verdict.WITHIN_ROUNDING, Verdict.WITHIN_SPREAD)


class Onset(enum.StrEnum):
    """How a difference begins."""

    FIRST_ITERATION = "from-the-first-iteration"
    SCHEDULE = "at-a-schedule-change"
    JUMP = "jumps"
    GROWTH = "grows"


@dataclass(frozen=True, kw_only=True)
class Point:
    """One iteration of one metric on both sides.

    Attributes:
        iteration: counted from 1.
        reference: reading of the first side.
        candidate: reading of the second side.
        tolerance: largest difference that rounding (or the measured spread) explains.
    """

    iteration: int
    reference: float
    candidate: float
    tolerance: float

    @property
    def difference(self) -> float:
        """Candidate minus reference."""
        return self.candidate - self.reference

    @property
    def agrees(self) -> bool:
        """Whether the difference is explained. NaN agrees with nothing but NaN on both sides."""
        if self.reference != self.reference or self.candidate != self.candidate:
            return self.reference != self.reference and self.candidate != self.candidate
        return abs(self.difference) <= self.tolerance


@dataclass(frozen=True, kw_only=True)
class SeriesComparison:
    """One metric over all compared iterations.

    Attributes:
        metric: canonical name.
        points: in order of iteration.
        identical: whether every reading has the same printed digits.
        first_divergence: first iteration that does not agree, or None.
        first_printed_difference: first iteration whose printed digits differ, or None.
        max_difference: largest absolute difference.
        max_difference_iteration: where it is.
        digits: significant digits that agree at the worst iteration.
    """

    metric: str
    points: tuple[Point, ...]
    identical: bool
    first_divergence: int | None
    first_printed_difference: int | None
    max_difference: float
    max_difference_iteration: int
    digits: float


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """Where and how two runs part.

    Attributes:
        metric: metric that parts first.
        iteration: iteration at which it parts.
        onset: how it begins.
        cause: what the pattern points at, most likely first, in words.
        next_step: one thing to do next.
    """

    metric: str
    iteration: int
    onset: Onset
    cause: str
    next_step: str = ""


@dataclass(frozen=True, kw_only=True)
class ToleranceModel:
    """The tolerance that was used, in words and numbers.

    Attributes:
        precision: arithmetic it assumes.
        precision_reason: why.
        unit_roundoff: of that arithmetic.
        factor: k of the formula: 2 for the same arithmetic on both sides, 16 for different ones.
        tokens_per_step: tokens averaged in one loss, as used.
        formula: how the loss tolerance is computed.
        hidden_size: of the model, as used; None where no header states it.
        spread_runs: number of runs behind the measured spread; 0 where none was given.
        spread: largest measured run-to-run standard deviation of the loss, or None.
    """

    precision: Precision
    precision_reason: str
    unit_roundoff: float
    factor: float
    tokens_per_step: int
    formula: str
    hidden_size: int | None = None
    spread_runs: int = 0
    spread: float | None = None


@dataclass(frozen=True, kw_only=True)
class FactDifference:
    """A setting that the two logs' own headers state differently."""

    name: str
    reference: str
    candidate: str
    layer: str = ""


@dataclass(frozen=True, kw_only=True)
class ParityReport:
    """The comparison of a candidate with a reference.

    Attributes:
        reference: name of the first log.
        candidate: name of the second log.
        frameworks: of both, in that order.
        verdict: the answer.
        summary: the answer in one sentence.
        iterations: compared iterations, first and last; None where there are none.
        num_iterations: how many were compared.
        series: compared metrics.
        divergence: first divergence, or None where parity holds.
        tolerance: the model that was used, or None where nothing was compared.
        fact_differences: settings that the headers state differently.
        notes: what was undone, assumed, left out.
    """

    reference: str
    candidate: str
    frameworks: tuple[Framework, Framework]
    verdict: Verdict
    summary: str
    iterations: tuple[int, int] | None
    num_iterations: int
    series: tuple[SeriesComparison, ...]
    divergence: Divergence | None
    tolerance: ToleranceModel | None
    fact_differences: tuple[FactDifference, ...] = ()
    notes: tuple[str, ...] = ()


class SideKind(enum.StrEnum):
    """What one side of an experiment runs."""

    MEGATRON_LM = "megatron-lm"
    BRIDGE = "bridge"


@dataclass(frozen=True, kw_only=True)
class DesignSide:
    """One side of a parity experiment, as given and as it should be run.

    Attributes:
        label: `A` or `B`.
        kind: which program runs it.
        given: what was given, shortened.
        words: options (Megatron-LM) or overrides (Bridge) as given.
        recipe: Bridge recipe; empty for Megatron-LM.
        corrected: words after correction.
        command: command to run, after correction.
        processes: processes that the command starts.
    """

    label: str
    kind: SideKind
    given: str
    words: tuple[str, ...]
    recipe: str
    corrected: tuple[str, ...]
    command: str
    processes: int


@dataclass(frozen=True, kw_only=True)
class ParityDesign:
    """What has to hold before two losses may be compared.

    Attributes:
        sides: A and B.
        unmatched: acting fields whose values differ and that the user can set, convergence layer.
        execution: the same for layers that may drift by rounding.
        fixes: overrides (or options) added to B so that it matches A.
        lost: what one side has and the other cannot express.
        comparable: whether the corrected pair is comparable.
        checklist: what to state and do before a first comparison.
        notes: what else to know.
    """

    sides: tuple[DesignSide, DesignSide]
    unmatched: tuple[Change, ...]
    execution: tuple[Change, ...]
    fixes: tuple[str, ...]
    lost: tuple[str, ...]
    comparable: bool
    checklist: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """One finished run.

    Attributes:
        name: side or layout.
        log: file with everything it printed.
        command: words that were started.
        seconds: wall-clock seconds, start-up included.
        processes: processes that it had.
    """

    name: str
    log: str
    command: tuple[str, ...]
    seconds: float
    processes: int


@dataclass(frozen=True, kw_only=True)
class LayoutSentinel:
    """One layout of a recipe, run to see whether it trains alike.

    Attributes:
        name: such as `tp2`.
        overrides: overrides that make the layout.
        report: comparison with the first layout, or None for the first one.
        skipped: why it was not run; empty where it was.
        failed: how its run ended, where it was not well; empty otherwise.
        notes: what else the layout may change.
    """

    name: str
    overrides: tuple[str, ...]
    report: ParityReport | None = None
    skipped: str = ""
    failed: str = ""
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the layout; one that was not run says nothing."""
        return not self.failed and (self.report is None or self.report.verdict.holds)
