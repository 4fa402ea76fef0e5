"""The best layout for given GPUs: the use cases behind `autorecipe plan`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from autorecipe.api.model import resolve_model
from autorecipe.api.resolve import resolve_run
from autorecipe.errors import Problem, UsageError, unknown_name
from autorecipe.estimate.defaults import TUNED_NOTE
from autorecipe.estimate.inputs import read_inputs
from autorecipe.plan.coster import Coster
from autorecipe.plan.explain import explain_candidate
from autorecipe.plan.planner import make_choice, plan_layouts
from autorecipe.plan.scaling import plan_scaling
from autorecipe.plan.settings import render_override
from autorecipe.plan.space import Space, find_refusal
from autorecipe.record import dataclass, replace
from autorecipe.schema.hardware import Cluster, Gpu
from autorecipe.schema.layout import Layout
from autorecipe.schema.plan import Candidate, Choice, Plan, PlanRequest, Scaling, ScalingPoint
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import FieldValue
from autorecipe.units import MOST_GPUS

AXIS = re.compile(r"^(tp|pp|vp|cp|ep|etp|mbs)=?(\d+)$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class PlanQuestion:
    """What a person asks the planner.

    Attributes:
        recipe: recipe name; empty when a model is named instead.
        model: Hugging Face id or path of a `config.json`; empty when a recipe is named.
        overrides: texts in the override grammar, applied before planning.
        num_gpus: GPUs to use.
        gpu: GPU type, such as `h100`.
        gpus_per_node: GPUs of a host, or None for the type's usual number.
        seq_length: another sequence length (a convergence change), or None.
        max_micro_batch_size: largest micro batch size tried.
        with_fsdp: whether fully sharded data parallelism is tried too.
        release: Bridge release, or None for the newest shipped.
    """

    num_gpus: int
    gpu: str
    recipe: str = ""
    model: str = ""
    overrides: tuple[str, ...] = ()
    gpus_per_node: int | None = None
    seq_length: int | None = None
    max_micro_batch_size: int = 8
    with_fsdp: bool = False
    release: str | None = None


def make_cluster(gpu: str, num_gpus: int, gpus_per_node: int | None = None) -> Cluster:
    """Return a cluster of a known GPU type.

    Raises:
        UsageError: an unknown GPU type or a count below one.
    """
    from autorecipe.catalog.hardware import load_gpus

    gpus = load_gpus()
    problems = []
    if gpu.lower() not in gpus:
        problems.append(unknown_name("gpu", gpu, sorted(gpus), hint=f"use one of {', '.join(sorted(gpus))}"))
    if num_gpus < 1:
        problems.append(Problem(path="--gpus", message=f"{num_gpus} GPUs; at least 1 is needed", hint="use --gpus 8"))
    if num_gpus > MOST_GPUS:
        problems.append(Problem(path="--gpus", message=f"{num_gpus} GPUs; {MOST_GPUS} at most", hint="use --gpus 8"))
    if problems:
        raise UsageError(problems)
    found = gpus[gpu.lower()]
    return Cluster(gpu=found, num_gpus=num_gpus, gpus_per_node=min(gpus_per_node or found.gpus_per_node, num_gpus))


def prepare_request(question: PlanQuestion) -> tuple[PlanRequest, RunConfig]:
    """Resolve a question to a planner request and the configuration it starts from.

    Raises:
        UsageError: unknown recipe, GPU or override; all problems of one kind at once.
    """
    _check_sizes(question)
    cluster = make_cluster(question.gpu, question.num_gpus, question.gpus_per_node)
    base = _resolve(question, _overrides(question), cluster.gpu)
    inputs = read_inputs(base)
    request = PlanRequest(
        shape=inputs.shape,
        batch=inputs.batch,
        policy=inputs.policy,
        cluster=cluster,
        layout=inputs.layout,
        max_micro_batch_size=question.max_micro_batch_size,
        with_fsdp=question.with_fsdp,
    )
    return request, base


def _check_sizes(question: PlanQuestion) -> None:
    given = {
        "--gpus-per-node": question.gpus_per_node,
        "--seq-length": question.seq_length,
        "--max-micro-batch-size": question.max_micro_batch_size,
    }
    problems = [
        Problem(path=option, message=f"{size}; at least 1 is needed", hint=f"leave out {option}, or give a number from 1 on")
        for option, size in given.items()
        if size is not None and size < 1
    ]
    if problems:
        raise UsageError(problems)


def plan_run(question: PlanQuestion, *, top: int = 5, progress: Callable[[int], None] | None = None) -> Plan:
    """Plan a recipe for given GPUs.

    Args:
        question: what is asked.
        top: choices wanted, at least one.
        progress: called now and then with the number of layouts seen.

    Raises:
        UsageError: the question cannot be understood.
    """
    if top < 1:
        raise UsageError(Problem(path="--top", message=f"{top} choices; at least 1 is needed", hint="use --top 1"))
    request, base = prepare_request(question)
    given = _overrides(question)

    def resolve(changes: Mapping[str, FieldValue]) -> RunConfig:
        texts = [*given, *(render_override(path, value) for path, value in changes.items())]
        return _resolve(question, texts, request.cluster.gpu)

    plan = plan_layouts(request, top=top, base=base, resolve=resolve, progress=progress)
    tuned = (TUNED_NOTE,) if question.model else ()
    return replace(plan, notes=(*plan.notes, *tuned, *read_inputs(base).assumptions))


def plan_curve(question: PlanQuestion, *, gpu_counts: Sequence[int], scaling: Scaling) -> tuple[ScalingPoint, ...]:
    """Return the best choice for each GPU count."""
    request, _ = prepare_request(question)
    return plan_scaling(request, gpu_counts=gpu_counts, scaling=scaling)


def explain_layout(question: PlanQuestion, text: str) -> tuple[Choice | None, str]:
    """Cost and explain one layout given as text, such as `TP2 PP4 EP8 MBS1`; unnamed axes are 1.

    Returns:
        the choice and an empty text, or None and the reason why it is not legal.

    Raises:
        UsageError: text that is no layout.
    """
    request, base = prepare_request(question)
    layout, micro_batch = parse_layout(text)
    splits = Space(request).splits(layout.pp, layout.vp)
    candidate = Candidate(
        layout=layout,
        micro_batch_size=micro_batch or request.batch.micro_batch_size,
        recompute=request.policy.recompute,
        split=splits[0] if splits else request.policy.split,
        fsdp=request.policy.fsdp,
    )
    refusal = find_refusal(request, candidate)
    if refusal:
        return None, refusal
    coster = Coster(request)
    scored = coster.score(candidate)
    choice = make_choice(request, scored, coster, base=base)
    return replace(choice, reasons=explain_candidate(request, scored, coster)), ""


def parse_layout(text: str) -> tuple[Layout, int | None]:
    """Parse `TP2 PP4 CP1 EP8 ETP1 MBS1` (any order, `=` optional) to a layout and a micro batch size.

    Raises:
        UsageError: naming every word that is no axis with a size.
    """
    sizes: dict[str, int] = {}
    problems = []
    for word in text.replace(",", " ").split():
        if word.lower() in ("sp", "fsdp") or word.lower().startswith("recompute="):
            continue
        match = AXIS.match(word)
        if match is None or int(match[2]) < 1:
            problems.append(
                Problem(path="layout", message=f"{word!r} is no axis with a size", hint="write it as TP2 PP4 EP8 MBS1")
            )
        else:
            sizes[match[1].lower()] = int(match[2])
    if problems:
        raise UsageError(problems)
    micro_batch = sizes.pop("mbs", None)
    return Layout(**sizes, sequence_parallel=sizes.get("tp", 1) > 1), micro_batch


def _resolve(question: PlanQuestion, overrides: Sequence[str], gpu: Gpu) -> RunConfig:
    if bool(question.recipe) == bool(question.model):
        given = "both" if question.recipe else "neither"
        raise UsageError(
            Problem(
                message=f"a recipe or a model is needed, and {given} is given",
                hint="autorecipe plan qwen3_8b_pretrain_config --gpus 8, or autorecipe plan --model Qwen/Qwen3-8B --gpus 8",
            )
        )
    if question.model:
        return resolve_model(question.model, overrides, release=question.release, world_size=question.num_gpus, gpu=gpu)
    return resolve_run(question.recipe, overrides, release=question.release, world_size=question.num_gpus)


def _overrides(question: PlanQuestion) -> list[str]:
    texts = list(question.overrides)
    if question.seq_length is not None:
        texts.append(f"dataset.seq_length={question.seq_length}")
    return texts
