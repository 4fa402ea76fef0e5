"""What a person asks, and the answer: a recipe, the command that starts it, and the reasons.

Sentences travel as `Statement`s (a code and its facts), so that every language says the same things and a program can read them.
Start at `Question` and `Recommendation`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from autorecipe.record import dataclass, field
from autorecipe.schema.estimate import Verdict as MemoryVerdict
from autorecipe.schema.evidence import Evidence
from autorecipe.schema.finding import Finding
from autorecipe.schema.layer import Layer
from autorecipe.schema.layout import Layout
from autorecipe.schema.plan import Candidate as PlannedCandidate
from autorecipe.schema.recipe import Mode, RecipeKind
from autorecipe.schema.value import FieldValue


class Topic(enum.StrEnum):
    """A kind of model named instead of a model, as in "a small MoE"."""

    DENSE = "dense"
    SMALL_MOE = "small-moe"
    LARGE_MOE = "large-moe"
    VLM = "vlm"
    DIFFUSION = "diffusion"
    LONG_CONTEXT = "long-context"
    CORRELATION = "correlation"


class Verdict(enum.StrEnum):
    """AS_SHIPPED: the recipe's own layout runs there. RESIZED: with the overrides shown. DOES_NOT_FIT: no.

    UNSIZED: no GPU count was given, and none is assumed.
    """

    AS_SHIPPED = "as-shipped"
    RESIZED = "resized"
    DOES_NOT_FIT = "does-not-fit"
    UNSIZED = "unsized"


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is wanted; None where it was not said.

    Attributes:
        text: the question as typed.
        model: model name, Hugging Face id, recipe name or path of a `config.json`.
        size: parameters in billions, where a size was given without a model name.
        topic: kind of model, where no model was named.
        mode: training goal.
        adapter: `lora` or `dora`, for PEFT.
        benchmark: whether throughput is what is wanted.
        num_gpus: GPUs in total.
        num_nodes: hosts.
        gpus_per_node: GPUs of each host.
        gpu: GPU type, such as `h100`.
        seq_length: tokens per sample.
        dataset: dataset preset.
        precision: precision id of a benchmark recipe, such as `bf16` or `fp8mx`.
        first_run: whether this is a first try of the framework.
        settings: overrides that the text names beside all that, such as `train.global_batch_size=64`; an answer hands them back.
        unread: words that name a quantity for which there is no field, such as `3 epochs`.
    """

    text: str = ""
    model: str | None = None
    size: float | None = None
    topic: Topic | None = None
    mode: Mode | None = None
    adapter: str | None = None
    benchmark: bool = False
    num_gpus: int | None = None
    num_nodes: int | None = None
    gpus_per_node: int | None = None
    gpu: str | None = None
    seq_length: int | None = None
    dataset: str | None = None
    precision: str | None = None
    first_run: bool = False
    settings: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One thing that is said.

    Attributes:
        code: which sentence, such as `sizing.tp`.
        facts: the values in it, by name.
        evidence: how strong it is, where it is a claim about the world.
        text: the sentence in the language asked for.
    """

    code: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    evidence: Evidence | None = None
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A recipe that was considered.

    Attributes:
        name: upstream's name to type.
        canonical_name: name that carries the hardware, where `name` is an alias.
        kind: library or benchmark.
        mode: training goal.
        hf_model_ids: models that it names.
        layout: as shipped.
        gpus: GPU count in its canonical name.
        gpu_type: GPU in its canonical name.
        minimum_gpus: smallest world of the shipped layout.
        seq_length: as shipped (tokens).
        global_batch_size: as shipped (samples).
        micro_batch_size: as shipped (samples).
        reasons: why it is (or is not) the pick.
    """

    name: str
    canonical_name: str
    kind: RecipeKind
    mode: Mode | None
    hf_model_ids: tuple[str, ...]
    layout: Layout | None
    gpus: int | None
    gpu_type: str | None
    minimum_gpus: int | None
    seq_length: int | None
    global_batch_size: int | None
    micro_batch_size: int | None
    reasons: tuple[Statement, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LabelledOverride:
    """One override of the recipe, with what it means for the training.

    Attributes:
        path: configuration path.
        value: new value.
        before: value in the recipe; None where unset.
        layer: layer of change; None where the path has not been classified (treat it like convergence).
        reason: why it is proposed.
    """

    path: str
    value: FieldValue
    before: FieldValue
    layer: Layer | None
    reason: Statement


@dataclass(frozen=True, kw_only=True)
class MemoryFit:
    """Whether one GPU holds what the fullest rank needs.

    Attributes:
        verdict: FITS, AT RISK (only with the lower end) or OOM.
        peak_bytes: expected peak of allocated bytes.
        device_bytes: lower and upper end of what the device must hold, with the allocator's reserve, context and communicators.
        capacity_bytes: memory of the GPU.
        capacity_fact: which fact about the GPU that is: `visible_memory_bytes`, or `memory_bytes` of the data sheet.
        evidence: how the estimate was obtained.
        leaves_out: what is not in it.
    """

    verdict: MemoryVerdict
    peak_bytes: float
    device_bytes: tuple[float, float]
    capacity_bytes: int
    capacity_fact: str
    evidence: Evidence
    leaves_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Sizing:
    """How the recipe lies on the GPUs asked for.

    Attributes:
        verdict: as shipped, resized, or not at all.
        num_gpus: world size; None when no count was given.
        num_nodes: hosts.
        gpus_per_node: GPUs of each host.
        gpu: GPU type.
        shipped: layout of the recipe.
        layout: layout to run.
        candidate: the same with micro batch size, recomputation and split; None where the answer is no.
        data_parallel_size: dense DP.
        expert_data_parallel_size: expert DP; None for dense models.
        num_microbatches: gradient accumulation steps.
        memory: estimate for the layout to run; None where it could not be made.
        shipped_memory: estimate for the shipped layout at the GPU count of the recipe's name.
        micro_batch_size: samples per forward pass of the layout to run.
        seq_length: sequence length to run (tokens).
        idle_gpus: GPUs asked for that stay unused.
        needed_gpus: smallest GPU count found to work, where the answer is no.
        needed: layout, micro batch size and recomputation that work there.
        reason: why the search chose this layout; None for the shipped one.
    """

    verdict: Verdict
    num_gpus: int | None
    num_nodes: int
    gpus_per_node: int
    gpu: str
    shipped: Layout
    layout: Layout
    candidate: PlannedCandidate | None = None
    data_parallel_size: int | None = None
    expert_data_parallel_size: int | None = None
    num_microbatches: int | None = None
    memory: MemoryFit | None = None
    shipped_memory: MemoryFit | None = None
    micro_batch_size: int | None = None
    seq_length: int | None = None
    idle_gpus: int = 0
    needed_gpus: int | None = None
    needed: PlannedCandidate | None = None
    reason: Statement | None = None


@dataclass(frozen=True, kw_only=True)
class DatasetChoice:
    """The dataset preset, or the recipe's own data.

    Attributes:
        preset: value of `--dataset`; empty where the recipe keeps its own data.
        alternatives: other presets that are valid here.
        reason: why.
    """

    preset: str
    alternatives: tuple[str, ...]
    reason: Statement


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What the rules say of the configuration that the command runs.

    Attributes:
        passes: whether no finding is an error.
        findings: errors first.
        command: the command that shows the same.
    """

    passes: bool
    findings: tuple[Finding, ...]
    command: str


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The answer to one question, in the order in which it is told.

    Attributes:
        question: as understood.
        release: Bridge release that the catalog describes.
        assumptions: what was not said and is taken to be so; each names the option that says it.
        summary: the answer in a few sentences.
        pick: the recipe.
        runners_up: others considered, best first.
        kind_reason: why this kind of recipe.
        dataset: what to train on.
        sizing: layout and memory.
        command: shell command that starts it; empty where it cannot run.
        entry_point: script that the command starts.
        overrides: what the command changes in the recipe, labelled.
        rules: the resizing rules with their numbers for this case.
        check: what the rules say.
        pitfalls: known traps that apply here.
        on_oom: what to try when memory runs out, in order.
        evidence: what a run of this proves, and what it does not.
        checklist: what every first answer must say.
        notes: further remarks: ambiguous names, wrong figures elsewhere, corrections of the question.
        next_steps: commands to go on with.
    """

    question: Question
    release: str
    assumptions: tuple[Statement, ...]
    summary: tuple[Statement, ...]
    pick: Candidate
    runners_up: tuple[Candidate, ...]
    kind_reason: Statement
    dataset: DatasetChoice
    sizing: Sizing
    command: str
    entry_point: str
    overrides: tuple[LabelledOverride, ...]
    rules: tuple[Statement, ...]
    check: CheckResult | None
    pitfalls: tuple[Statement, ...]
    on_oom: tuple[Statement, ...]
    evidence: tuple[Statement, ...]
    checklist: tuple[Statement, ...]
    notes: tuple[Statement, ...] = ()
    next_steps: tuple[str, ...] = ()
