"""What the planner is asked and what it answers. Start at `PlanRequest` and `Plan`."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from autorecipe.record import dataclass, field
from autorecipe.schema.batch import Batch
from autorecipe.schema.estimate import ExecutionPolicy, Recompute, StageSplit, Verdict
from autorecipe.schema.finding import Finding
from autorecipe.schema.hardware import Cluster
from autorecipe.schema.layer import Layer
from autorecipe.schema.layout import Layout
from autorecipe.schema.model import ModelShape
from autorecipe.schema.value import FieldValue


class Scaling(enum.StrEnum):
    """STRONG: the global batch stays. WEAK: it grows with the GPUs, which is a new convergence experiment."""

    STRONG = "strong"
    WEAK = "weak"


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """One question to the planner. Convergence is fixed: shape, global batch, sequence and precision never move.

    Attributes:
        shape: the model.
        batch: global batch and sequence; its micro batch size is where the search starts, not a limit.
        policy: how a step is executed where the search does not decide (overlaps, dispatcher, fusions).
        cluster: GPUs to use, all of them.
        layout: layout of the recipe, always among the candidates when it is legal; None where there is none.
        max_tp: largest tensor parallel size, or None for the NVLink domain.
        max_micro_batch_size: largest micro batch size tried.
        with_fsdp: whether fully sharded data parallelism is tried beside the distributed optimizer.
        even_stages: whether layers that divide evenly over the stages stay so, though moving some off the last were faster.
        core_release: Megatron-Core release whose rules hold.
    """

    shape: ModelShape
    batch: Batch
    policy: ExecutionPolicy
    cluster: Cluster
    layout: Layout | None = None
    max_tp: int | None = None
    max_micro_batch_size: int = 8
    with_fsdp: bool = False
    even_stages: bool = False
    core_release: str = ""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to run: what the search decides.

    Attributes:
        layout: parallel layout.
        micro_batch_size: samples per forward pass.
        recompute: activation recomputation.
        split: how layers fall on pipeline stages.
        fsdp: whether parameters are fully sharded over data parallelism.
    """

    layout: Layout
    micro_batch_size: int
    recompute: Recompute = field(default_factory=Recompute)
    split: StageSplit = field(default_factory=StageSplit)
    fsdp: bool = False

    def render(self) -> str:
        """Render as `TP2 PP4 CP1 EP8 ETP1 SP mbs1 recompute=none`."""
        text = f"{self.layout.render()} mbs{self.micro_batch_size} recompute={self.recompute.render()}"
        return f"{text} FSDP" if self.fsdp else text


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A candidate with its predicted cost.

    Attributes:
        candidate: what would run.
        step_seconds: predicted time of one step.
        tokens_per_second_per_gpu: the same as throughput.
        tflops_per_gpu: model TFLOP/s per GPU (Megatron's formula).
        peak_bytes: predicted peak of allocated bytes on the worst rank.
        verdict: whether that fits the GPU.
        data_parallel_size: dense DP.
        expert_data_parallel_size: expert DP.
        num_microbatches: accumulation steps.
        bubble_fraction: idle part of the pipeline.
        breakdown_seconds: exposed seconds by part.
        overrides: path -> value that turn the recipe into this candidate.
        layers: layer of change of each override.
        reasons: why each axis is what it is, one chain a line.
        findings: what the rules say about it, errors first; empty when they are content.
    """

    candidate: Candidate
    step_seconds: float
    tokens_per_second_per_gpu: float
    tflops_per_gpu: float
    peak_bytes: float
    verdict: Verdict
    data_parallel_size: int
    expert_data_parallel_size: int
    num_microbatches: int
    bubble_fraction: float
    breakdown_seconds: Mapping[str, float] = field(default_factory=dict)
    overrides: Mapping[str, FieldValue] = field(default_factory=dict)
    layers: Mapping[str, Layer] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SearchCount:
    """What became of the candidates.

    Attributes:
        considered: combinations of axis values looked at.
        illegal: dropped by a rule, by reason.
        oom: legal, do not fit.
        at_risk: legal, fit only with the lower end of the memory interval.
        fitting: legal and fit.
        dominated: heavier recomputation of a layout that already fits with a lighter one; never faster.
        seconds: wall-clock time of the search.
    """

    considered: int
    illegal: Mapping[str, int]
    oom: int
    at_risk: int
    fitting: int
    dominated: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class WayOut:
    """What would make it fit when nothing does.

    Attributes:
        change: what to do, with numbers.
        layer: layer of change that it touches.
        overrides: path -> value, where it is a matter of overrides; `gpus` stands for the GPU count.
    """

    change: str
    layer: Layer
    overrides: Mapping[str, FieldValue] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The planner's answer.

    Attributes:
        request: what was asked.
        choices: best first; empty when nothing fits.
        shipped: the recipe's own layout on this cluster, when it is legal there; None otherwise.
        shipped_refusal: why the recipe's own layout is not legal here; empty otherwise.
        pareto: choices that no other beats in both memory and speed, fastest first.
        count: what became of the candidates.
        ways_out: what would make it fit; only when nothing does.
        nearest: the legal candidate that comes closest to fitting; only when nothing does.
        notes: what the reader must know (assumptions, errors of the estimators).
    """

    request: PlanRequest
    choices: tuple[Choice, ...]
    shipped: Choice | None
    shipped_refusal: str
    pareto: tuple[Choice, ...]
    count: SearchCount
    ways_out: tuple[WayOut, ...] = ()
    nearest: Choice | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ScalingPoint:
    """The best choice on one GPU count.

    Attributes:
        num_gpus: GPUs.
        global_batch_size: samples per step there.
        choice: best choice, or None when nothing fits or is legal.
        efficiency: tokens/s/GPU against the first point that runs; None where nothing runs.
    """

    num_gpus: int
    global_batch_size: int
    choice: Choice | None
    efficiency: float | None
