"""Put an answer together: from a complete question to a recommendation. Start at `answer_question`.

Everything outside (catalog, resolution, rules) comes in through `Colleague`, so that an answer can be tested without it.
"""

from __future__ import annotations

from collections.abc import Sequence

from autorecipe.recommend import advice, benchmark, drift
from autorecipe.recommend.candidates import candidate_of, other_modes, rank_candidates
from autorecipe.recommend.changes import CHECKPOINT
from autorecipe.recommend.colleague import Colleague, Launch
from autorecipe.recommend.commands import list_next_steps, render_entry_point
from autorecipe.recommend.fit import Task, fit_recipe
from autorecipe.recommend.habits import CP_ABOVE_TOKENS
from autorecipe.recommend.presets import choose_dataset
from autorecipe.recommend.rules import state_rules
from autorecipe.recommend.sizing import lay_out_hosts
from autorecipe.recommend.subject import FIRST_RUN_MODEL, Subject
from autorecipe.recommend.summary import state_shorter, summarize
from autorecipe.record import dataclass, field, replace
from autorecipe.schema.hardware import Cluster, Gpu
from autorecipe.schema.recipe import Mode, RecipeKind
from autorecipe.schema.recommendation import (
    Candidate,
    CheckResult,
    Question,
    Recommendation,
    Sizing,
    Statement,
    Topic,
)

MAX_RUNNERS_UP = 4

PLAIN_REASONS = frozenset({"reason.gpu-exact", "reason.gpus-exact", "reason.gpus-grow", "reason.gpus-shrink"})
"""Reasons that speak for a recipe and do not tell it from another."""


@dataclass
class _Draft:
    """An answer in the making."""

    question: Question
    assumptions: list[Statement] = field(default_factory=list)
    notes: list[Statement] = field(default_factory=list)


def answer_question(question: Question, subject: Subject, colleague: Colleague) -> Recommendation | None:
    """Answer one question.

    Args:
        question: with `mode` set, unless the subject names a recipe.
        subject: the model or recipe that it is about.
        colleague: what the answer needs from outside.

    Returns:
        the recommendation, or None where the model has no usable recipe for the goal.
    """
    draft = _Draft(question=question, assumptions=list(subject.assumptions), notes=list(subject.notes))
    if question.settings:
        draft.assumptions.append(Statement(code="assume.settings", facts={"overrides": list(question.settings)}))
    if question.unread:
        draft.assumptions.append(Statement(code="assume.unread", facts={"said": list(question.unread)}))
    ranked = _rank(draft, subject, colleague)
    if not ranked:
        return None
    pick, others = ranked[0], ranked[1:]
    draft.question = replace(
        draft.question,
        mode=pick.mode,
        benchmark=pick.kind is RecipeKind.BENCHMARK,
        adapter=draft.question.adapter or ("lora" if pick.mode is Mode.PEFT else None),
    )
    summary_of = colleague.index.recipes[pick.name]
    gpu, cluster = _place(draft, pick, colleague)
    dataset, dataset_notes = choose_dataset(
        asked=draft.question.dataset, mode=pick.mode, kind=pick.kind, modality=summary_of.modality
    )
    draft.notes += dataset_notes
    launch = Launch(mode="dora" if draft.question.adapter == "dora" else "", dataset=dataset.preset)
    fit = fit_recipe(
        Task(pick=pick, cluster=cluster, launch=launch, seq_length=draft.question.seq_length, adapter=draft.question.adapter),
        colleague,
    )
    sizer, sizing, overrides, runs = fit.sizer, fit.sizing, fit.overrides, fit.runs
    entry = render_entry_point(
        pick=pick, sizing=sizing, dataset=dataset.preset, adapter=draft.question.adapter, overrides=overrides
    )
    used = fit.used
    steps = list_next_steps(pick=pick, sizing=sizing, dataset=dataset.preset, mode=launch.mode, overrides=overrides)
    checked = CheckResult(passes=fit.passes, findings=fit.findings, command=steps[0]) if runs else None
    pick = replace(pick, reasons=(*_chain(pick, subject, draft.question), *pick.reasons))
    oom = advice.state_oom_steps(sizer, sizing, used) if runs else ()
    if pick.kind is RecipeKind.BENCHMARK and oom:
        oom = (*oom, Statement(code="oom.benchmark"))
    if subject.rejected:
        draft.notes.append(Statement(code="bench.rejected", facts={"name": subject.rejected, "library": pick.name}))
    draft.notes += _first_steps(draft.question, pick)
    draft.notes += drift.state_drift(pick.name, release=colleague.release)
    draft.notes += _ambiguity(pick, colleague)
    if sizing.idle_gpus:
        draft.notes = [note for note in draft.notes if note.code != "note.hosts"]
    if pick.kind is RecipeKind.BENCHMARK:
        extra = benchmark.state_benchmark(pick, sizing, draft.question, colleague.index, sizer.config)
        draft.notes += extra
    placed = replace(draft.question, gpu=gpu.name, num_gpus=cluster.num_gpus)
    runners_up = _runners_up(others, placed, subject, colleague)
    return Recommendation(
        question=draft.question,
        release=colleague.release,
        assumptions=tuple(draft.assumptions),
        summary=summarize(
            pick,
            sizing,
            gpu,
            question=draft.question,
            modality=summary_of.modality,
            runners_up=runners_up,
            shorter=state_shorter(sizer, sizing, cluster),
        ),
        pick=pick,
        runners_up=runners_up,
        kind_reason=Statement(code="kind.throughput" if pick.kind is RecipeKind.BENCHMARK else "kind.training"),
        dataset=dataset,
        sizing=sizing,
        command=entry.command if runs else "",
        entry_point=entry.script,
        overrides=overrides if runs else (),
        rules=state_rules(sizer, sizing, used),
        check=checked,
        pitfalls=advice.state_pitfalls(
            sizer,
            sizing,
            used,
            question=draft.question,
            pick=pick,
            modality=summary_of.modality,
            needs_checkpoint=any(change.path == CHECKPOINT for change in overrides),
            unpacks=dataset.preset if dataset.preset and colleague.packs(pick.name) else "",
            longest=_longest(pick, sizing, colleague),
        ),
        on_oom=oom,
        evidence=advice.state_evidence(pick, dataset),
        checklist=advice.state_checklist(),
        notes=tuple(draft.notes),
        next_steps=steps if runs else (),
    )


def _rank(draft: _Draft, subject: Subject, colleague: Colleague) -> tuple[Candidate, ...]:
    """Rank the recipes of the subject; a recipe that the question names comes first."""
    question = draft.question
    if subject.recipe:
        named = candidate_of(colleague.index, subject.recipe)
        asked = replace(question, mode=named.mode, benchmark=named.kind is RecipeKind.BENCHMARK)
        draft.question = asked
        alike = replace(asked, seq_length=question.seq_length or named.seq_length)
        rest = [
            item
            for item in rank_candidates(colleague.index, subject.models, alike)
            if item.canonical_name != named.canonical_name
        ]
        return (named, *rest)
    ranked = rank_candidates(colleague.index, subject.models, question)
    for summary in colleague.index.of_model(subject.models[0]) if subject.models else ():
        broken = summary.status != "ok" and summary.alias_of is None and summary.mode is question.mode
        if broken and (summary.kind is RecipeKind.BENCHMARK) == question.benchmark:
            facts = {"name": summary.name, "error": colleague.errors(summary.name)}
            draft.notes.append(Statement(code="note.failed", facts=facts))
    return ranked


def _place(draft: _Draft, pick: Candidate, colleague: Colleague) -> tuple[Gpu, Cluster]:
    """Decide the hardware, saying what was assumed."""
    question = draft.question
    name = question.gpu
    if name is None:
        name = pick.gpu_type if pick.gpu_type in colleague.gpus else "h100"
        draft.assumptions.append(Statement(code="assume.gpu", facts={"gpu": name}))
    gpu = colleague.gpus[name or "h100"]
    count = question.num_gpus
    if count is None and question.num_nodes:
        count = question.num_nodes * (question.gpus_per_node or gpu.gpus_per_node)
    if count is None and question.gpus_per_node:
        count = question.gpus_per_node
    if count is None:
        first = question.first_run and pick.kind is RecipeKind.LIBRARY
        count = gpu.gpus_per_node if first else pick.gpus or pick.minimum_gpus or 1
        draft.assumptions.append(Statement(code="assume.gpus-first-run" if first else "assume.gpus", facts={"gpus": count}))
    if question.seq_length is None and pick.seq_length is not None:
        draft.assumptions.append(Statement(code="assume.seq-length", facts={"seq_length": pick.seq_length}))
    if question.mode is Mode.PEFT and draft.question.adapter is None and not question.benchmark:
        draft.assumptions.append(Statement(code="assume.adapter"))
    if pick.kind is RecipeKind.BENCHMARK and pick.gpus and pick.gpus < count:
        count = pick.gpus
    cluster = lay_out_hosts(gpu, count, gpus_per_node=question.gpus_per_node, num_nodes=question.num_nodes)
    if question.gpus_per_node is None and cluster.gpus_per_node != min(gpu.gpus_per_node, count):
        facts = {"gpus": count, "usual": gpu.gpus_per_node, "nodes": cluster.num_nodes, "per_node": cluster.gpus_per_node}
        draft.notes.append(Statement(code="note.hosts", facts=facts))
    return gpu, cluster


def _first_steps(question: Question, pick: Candidate) -> list[Statement]:
    """Return remarks for somebody who starts: a short run, a run without GPUs, the comparison with Megatron-LM."""
    if question.topic is Topic.CORRELATION:
        return [Statement(code="note.correlation")]
    if not question.first_run or pick.kind is RecipeKind.BENCHMARK:
        return []
    if pick.canonical_name.startswith(f"{FIRST_RUN_MODEL}_pretrain_"):
        return [Statement(code="note.short-smoke"), Statement(code="note.laptop")]
    return [Statement(code="note.first-smoke"), Statement(code="note.laptop")]


def _longest(pick: Candidate, sizing: Sizing, colleague: Colleague) -> int | None:
    """Return the model's own context length; looked up only for long sequences, as it costs reading the model cards."""
    if (sizing.seq_length or 0) <= CP_ABOVE_TOKENS or not pick.hf_model_ids:
        return None
    return colleague.longest(pick.hf_model_ids[0])


def _chain(pick: Candidate, subject: Subject, question: Question) -> tuple[Statement, ...]:
    chain = list(subject.reasons)
    if pick.mode is not None and not subject.recipe:
        chain.append(Statement(code="pick.mode", facts={"mode": pick.mode.value}))
    if pick.name != pick.canonical_name:
        chain.append(Statement(code="pick.alias", facts={"name": pick.name, "canonical": pick.canonical_name}))
    return tuple(chain)


def _runners_up(others: Sequence[Candidate], question: Question, subject: Subject, colleague: Colleague) -> tuple[Candidate, ...]:
    """Return up to two others that differ in different ways, the same model for another goal, and the other kind."""
    found: list[Candidate] = []
    kinds: set[str] = set()
    for other in others:
        stem = colleague.index.recipes[other.name].model
        reasons = [reason for reason in other.reasons if reason.code not in PLAIN_REASONS] or list(other.reasons)
        difference = reasons[0].code if reasons else ""
        if stem not in subject.models[:1] and not subject.recipe:
            difference = stem
            reasons.insert(0, Statement(code="reason.nearest-next" if subject.nearest else "reason.other-model"))
        if difference in kinds:
            continue
        kinds.add(difference)
        found.append(replace(other, reasons=tuple(reasons)))
        if len(found) == 2:
            break
    found += other_modes(colleague.index, subject.models[:1], question)[:1]
    opposite = replace(question, benchmark=not question.benchmark, adapter=None, seq_length=None)
    swapped = rank_candidates(colleague.index, subject.models[:1], opposite)
    if swapped:
        code = "reason.for-training" if question.benchmark else "reason.not-for-training"
        found.append(replace(swapped[0], reasons=(Statement(code=code),)))
    return tuple(found[:MAX_RUNNERS_UP])


def _ambiguity(pick: Candidate, colleague: Colleague) -> list[Statement]:
    alias = colleague.collisions.get(pick.canonical_name)
    if alias is None:
        return []
    facts = {"name": pick.canonical_name, "count": len(colleague.collisions), "alias": alias}
    return [Statement(code="note.ambiguous-name", facts=facts)]
