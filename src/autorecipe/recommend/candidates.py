"""Rank the recipes of a model for a goal, with the reason of each.

Order of the ranking, strongest first: goal and kind (never swapped), purpose of the variant, sequence length, GPU type, count.
Leaves out: whether the recipe fits (see `sizing`). Start at `rank_candidates`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from autorecipe.catalog.naming import LIBRARY_SUFFIX, parse_name
from autorecipe.recommend.models import ModelIndex
from autorecipe.record import dataclass, replace
from autorecipe.schema.layout import Layout
from autorecipe.schema.recipe import Mode, RecipeKind, RecipeSummary
from autorecipe.schema.recommendation import Candidate, Question, Statement

PURPOSES = {
    "deterministic": "deterministic",
    "muon": "muon",
    "energon": "energon",
    "functional": "functional",
    "smoke": "smoke",
    "fsdp": "fsdp",
    "packed": "packed",
    "dev": "dev",
    "large_scale": "large_scale",
    "yarn": "yarn",
    "hf_json": "hf_json",
    "no_mtp": "no_mtp",
}
"""Words of a variant that serve a purpose of their own; such a recipe is the pick only where nothing plainer exists."""


@dataclass(frozen=True)
class _Ranked:
    summary: RecipeSummary
    score: tuple[float, ...]
    reasons: tuple[Statement, ...]


def rank_candidates(index: ModelIndex, models: Sequence[str], question: Question) -> tuple[Candidate, ...]:
    """Rank the recipes of some models.

    Args:
        index: all recipes.
        models: stems, best first.
        question: what is wanted; `mode` must be set.

    Returns:
        candidates that can be built, best first; empty where none serves the goal.
    """
    kind = RecipeKind.BENCHMARK if question.benchmark else RecipeKind.LIBRARY
    aliases = index.recipes.aliases
    found = []
    for position, model in enumerate(models):
        for summary in _canonical(index.of_model(model)):
            if summary.kind is kind and summary.mode is question.mode and summary.status == "ok":
                if question.benchmark:
                    scored = _score_benchmark(summary, question)
                else:
                    scored = _score_library(summary, question, has_alias=summary.name in aliases)
                found.append(replace(scored, score=(float(position), *scored.score)))
    found.sort(key=lambda ranked: (ranked.score, ranked.summary.name))
    return tuple(_candidate(ranked.summary, aliases, ranked.reasons) for ranked in found)


def candidate_of(index: ModelIndex, name: str, reasons: Iterable[Statement] = ()) -> Candidate:
    """Return one named recipe as a candidate."""
    summary = index.recipes[name]
    canonical = index.recipes.get(summary.alias_of or name, summary)
    candidate = _candidate(canonical, index.recipes.aliases, tuple(reasons))
    return replace(candidate, name=name)


def _canonical(summaries: Iterable[RecipeSummary]) -> list[RecipeSummary]:
    return [summary for summary in summaries if summary.alias_of is None]


def _candidate(summary: RecipeSummary, aliases: Mapping[str, str], reasons: tuple[Statement, ...]) -> Candidate:
    name = aliases.get(summary.name, summary.name)
    return Candidate(
        name=name,
        canonical_name=summary.name.removesuffix(LIBRARY_SUFFIX),
        kind=summary.kind,
        mode=summary.mode,
        hf_model_ids=summary.hf_model_ids,
        layout=summary.layout,
        gpus=summary.gpus,
        gpu_type=summary.gpu_type,
        minimum_gpus=summary.minimum_gpus,
        seq_length=summary.seq_length,
        global_batch_size=summary.global_batch_size,
        micro_batch_size=summary.micro_batch_size,
        reasons=reasons,
    )


def _score_library(summary: RecipeSummary, question: Question, *, has_alias: bool) -> _Ranked:
    reasons: list[Statement] = []
    sequence = _score_sequence(summary, question, reasons)
    purpose = _score_purpose(summary, reasons)
    plain = summary.precision in (question.precision or "bf16", None)
    if not plain:
        facts = {"precision": summary.precision, "asked": question.precision or "bf16"}
        reasons.append(Statement(code="reason.precision", facts=facts))
    gpu = _score_gpu(summary, question, reasons)
    count = _score_count(summary, question, reasons, has_alias=has_alias)
    return _Ranked(summary, (purpose, sequence, float(not plain), gpu, count), tuple(reasons))


def _score_sequence(summary: RecipeSummary, question: Question, reasons: list[Statement]) -> float:
    """Prefer the shortest recipe that is long enough; without a wish, the plain one."""
    has = summary.seq_length
    asked = question.seq_length
    named = parse_name(summary.name).variant or ""
    long_variant = any(part[:-1].isdigit() and part.endswith("k") for part in named.split("_"))
    if asked is None:
        if long_variant:
            reasons.append(Statement(code="reason.long-variant", facts={"seq_length": has}))
        return 1.0 if long_variant else 0.0
    if has is None:
        return 3.0
    if has == asked:
        reasons.append(Statement(code="reason.seq-exact", facts={"seq_length": has}))
        return 0.0
    if has > asked:
        reasons.append(Statement(code="reason.seq-longer", facts={"seq_length": has, "asked": asked}))
    else:
        reasons.append(Statement(code="reason.seq-shorter", facts={"seq_length": has, "asked": asked}))
    ratio = abs(math.log2(has / asked))
    return ratio + (0.5 if has > asked and long_variant else 0.0)


def _score_purpose(summary: RecipeSummary, reasons: list[Statement]) -> float:
    variant = (summary.variant or "") + "_" + summary.model
    purposes = [word for word in PURPOSES if word in variant]
    if purposes:
        reasons.append(
            Statement(code=f"reason.purpose.{PURPOSES[purposes[0]]}", facts={"variant": summary.variant or purposes[0]})
        )
    return float(len(purposes))


def _score_gpu(summary: RecipeSummary, question: Question, reasons: list[Statement]) -> float:
    if question.gpu is None or summary.gpu_type is None:
        return 0.0 if summary.gpu_type in ("h100", None) else 1.0
    if summary.gpu_type == question.gpu:
        reasons.append(Statement(code="reason.gpu-exact", facts={"gpu": summary.gpu_type}))
        return 0.0
    reasons.append(Statement(code="reason.gpu-other", facts={"gpu": summary.gpu_type, "asked": question.gpu}))
    return 1.0 if summary.gpu_type == "h100" else 2.0


def _score_count(summary: RecipeSummary, question: Question, reasons: list[Statement], *, has_alias: bool) -> float:
    asked = question.num_gpus
    if asked is None or summary.gpus is None or summary.layout is None:
        return 0.0
    if summary.gpus == asked:
        reasons.append(Statement(code="reason.gpus-exact", facts={"gpus": asked}))
        return 0.0
    if summary.layout.fits_world(asked):
        code = "reason.gpus-grow" if summary.gpus < asked else "reason.gpus-shrink"
        reasons.append(Statement(code=code, facts={"gpus": summary.gpus, "asked": asked}))
        return 0.5 + 0.01 * abs(math.log2(asked / summary.gpus)) + (0.0 if has_alias else 0.1)
    reasons.append(Statement(code="reason.gpus-resize", facts={"gpus": summary.gpus, "asked": asked}))
    return 1.0 + abs(math.log2(asked / summary.gpus)) * 0.1


def _score_benchmark(summary: RecipeSummary, question: Question) -> _Ranked:
    """Exact hardware, precision and count first; then plain variants, then the largest count that the allocation can hold."""
    reasons: list[Statement] = []
    gpu = float(question.gpu is not None and summary.gpu_type != question.gpu)
    if question.gpu:
        facts = {"gpu": summary.gpu_type, "asked": question.gpu}
        reasons.append(Statement(code="reason.gpu-other" if gpu else "reason.gpu-exact", facts=facts))
    precision = float(summary.precision != (question.precision or "bf16"))
    if precision:
        facts = {"precision": summary.precision, "asked": question.precision or "bf16"}
        reasons.append(Statement(code="reason.precision", facts=facts))
    asked = question.num_gpus
    if asked is None or summary.gpus is None:
        count = 0.0
    elif summary.gpus == asked:
        count = 0.0
        reasons.append(Statement(code="reason.gpus-exact", facts={"gpus": asked}))
    else:
        smaller = summary.gpus < asked
        count = abs(math.log2(asked / summary.gpus)) + (0.1 if smaller else 20.0)
        code = "reason.benchmark-smaller" if smaller else "reason.benchmark-larger"
        reasons.append(Statement(code=code, facts={"gpus": summary.gpus, "asked": asked}))
    broken = not fits_its_name(summary.layout, summary.gpus)
    if broken and summary.layout is not None:
        needs = {"gpus": summary.gpus, "minimum": summary.layout.minimum_world_size}
        reasons.append(Statement(code="reason.benchmark-broken", facts=needs))
    variant = len((summary.variant or "").split("_")) if summary.variant else 0
    if summary.variant:
        reasons.append(Statement(code="reason.variant", facts={"variant": summary.variant}))
    exact = float(asked is not None and summary.gpus != asked)
    return _Ranked(summary, (gpu, precision, exact, float(broken and asked is None), float(variant), count), tuple(reasons))


def fits_its_name(layout: Layout | None, gpus: int | None) -> bool:
    """Return whether a layout lies on the GPUs of its recipe's name, as far as both are known."""
    return layout is None or gpus is None or layout.fits_world(gpus)


NEXT_GOALS = {
    Mode.PRETRAIN: (Mode.SFT, Mode.PEFT),
    Mode.SFT: (Mode.PEFT, Mode.PRETRAIN),
    Mode.PEFT: (Mode.SFT, Mode.PRETRAIN),
}
"""What is mentioned beside a goal, most useful first."""


def other_modes(index: ModelIndex, models: Sequence[str], question: Question) -> tuple[Candidate, ...]:
    """Return plain recipes of the same models for other goals of the same kind, most useful first."""
    found = []
    for model in models:
        for mode in NEXT_GOALS[question.mode] if question.mode else ():
            ranked = rank_candidates(index, [model], replace(question, mode=mode, seq_length=None))
            if ranked:
                facts = {"mode": mode.value, "gpus": ranked[0].minimum_gpus}
                found.append(replace(ranked[0], reasons=(Statement(code="reason.other-mode", facts=facts),)))
    return tuple(found)
