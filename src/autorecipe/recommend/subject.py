"""Decide what a question is about: the models to look at, with the reason, or what must be asked first.

Start at `find_subject`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autorecipe.launch.training import render_override
from autorecipe.recommend.architecture import compare, rank_architectures, read_config
from autorecipe.recommend.models import MatchKind, ModelIndex, ModelMatch
from autorecipe.record import dataclass, replace
from autorecipe.schema.card import ModelCard
from autorecipe.schema.recipe import Mode, RecipeKind
from autorecipe.schema.recommendation import Question, Statement, Topic

QUICK_REFERENCE: Mapping[Topic, tuple[Mode, tuple[str, ...]]] = {
    Topic.SMALL_MOE: (Mode.PRETRAIN, ("qwen3_30b_a3b",)),
    Topic.LARGE_MOE: (Mode.PRETRAIN, ("qwen3_235b_a22b",)),
    Topic.VLM: (Mode.SFT, ("qwen3_vl_8b", "gemma3_vl_4b", "gemma3_vl_12b")),
    Topic.DIFFUSION: (Mode.PRETRAIN, ("wan_1_3b", "flux_12b")),
    Topic.LONG_CONTEXT: (Mode.PRETRAIN, ("llama3_8b",)),
    Topic.CORRELATION: (Mode.PRETRAIN, ("vanilla_gpt",)),
    Topic.DENSE: (Mode.PRETRAIN, ()),
}
"""What to try first by kind of model. Source: quick reference of Megatron Bridge's recipe recommender. Evidence: published."""

FIRST_RUN_MODEL = "llama3_8b"
SMALL_MODELS = ("llama3_8b", "qwen3_8b")
"""First tries for fine-tuning 7-8B models and for LoRA on one GPU (same source)."""

LONG_CONTEXT_TOKENS = 131072


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What to look at.

    Attributes:
        models: stems, best first.
        recipe: recipe that the question names; empty otherwise.
        nearest: whether the model asked for has no recipe of its own.
        rejected: benchmark recipe that the question names for training; empty otherwise.
        reasons: why these models.
        assumptions: what was taken to be so.
        notes: remarks.
    """

    models: tuple[str, ...]
    recipe: str = ""
    nearest: bool = False
    rejected: str = ""
    reasons: tuple[Statement, ...] = ()
    assumptions: tuple[Statement, ...] = ()
    notes: tuple[Statement, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Missing:
    """An input that must be asked for.

    Attributes:
        name: field of `Question`.
        option: how to give it.
        reason: sentence that asks for it.
        choices: what can be answered; empty for anything.
        required: whether there is no answer without it.
    """

    name: str
    option: str
    reason: Statement
    choices: tuple[str, ...] = ()
    required: bool = True


def complete_question(question: Question) -> tuple[Question, tuple[Statement, ...]]:
    """Fill in what follows from the rest: the goal of a first run, of a kind of model, of a benchmark."""
    assumptions: list[Statement] = []
    mode, sequence, dataset = question.mode, question.seq_length, question.dataset
    if question.first_run and mode is None and question.model is None:
        mode = Mode.PRETRAIN
    if mode is None and question.topic is not None and question.model is None:
        mode = QUICK_REFERENCE[question.topic][0]
        assumptions.append(Statement(code="assume.mode", facts={"mode": mode.value}))
    if mode is None and question.benchmark:
        mode = Mode.PRETRAIN
        assumptions.append(Statement(code="assume.task"))
    if question.topic is Topic.LONG_CONTEXT and question.model is None and sequence is None:
        sequence = LONG_CONTEXT_TOKENS
    return replace(question, mode=mode, seq_length=sequence, dataset=dataset), tuple(assumptions)


def find_subject(
    question: Question, index: ModelIndex, cards: Mapping[str, ModelCard] | None
) -> tuple[Subject | None, tuple[Missing, ...]]:
    """Find the models that a question is about.

    Args:
        question: as read.
        index: all recipes.
        cards: architecture facts by Hugging Face id; None where they were not loaded (only unknown models need them).

    Returns:
        the subject, or None and what is missing.
    """
    if question.model is not None:
        return _find_model(question.model, question, index, cards)
    if question.first_run:
        facts = {"model": FIRST_RUN_MODEL}
        return Subject(models=(FIRST_RUN_MODEL,), reasons=(Statement(code="pick.model-first-run", facts=facts),)), ()
    models: tuple[str, ...] = ()
    topic = question.topic
    if topic is not None:
        models = QUICK_REFERENCE[topic][1]
    if question.size is not None and topic in (None, Topic.DENSE, Topic.SMALL_MOE, Topic.LARGE_MOE):
        is_moe = topic in (Topic.SMALL_MOE, Topic.LARGE_MOE)
        models = (
            SMALL_MODELS if not is_moe and 6.5 <= question.size <= 8.5 else index.nearest_by_size(question.size, moe=is_moe)[:3]
        )
        topic = topic or Topic.DENSE
    elif topic in (None, Topic.DENSE) and question.mode is Mode.PEFT and question.num_gpus == 1:
        models, topic = SMALL_MODELS, None
    models = tuple(model for model in models if model in index.recipes.models)
    if not models:
        return None, (_ask_model(),)
    facts = {"model": models[0], "topic": topic.value if topic else ""}
    return (
        Subject(
            models=models,
            reasons=(Statement(code="pick.model-topic", facts=facts),),
            assumptions=(Statement(code="assume.model", facts={"models": models[0]}),),
        ),
        (),
    )


def list_missing(question: Question) -> tuple[Missing, ...]:
    """Return the inputs besides the model that the question does not give; only the goal is required."""
    found = []
    if question.mode is None:
        goals = ("pretrain", "sft", "lora", "dora", "benchmark")
        found.append(Missing(name="mode", option="--goal", reason=Statement(code="ask.mode"), choices=goals))
    if question.num_gpus is None and question.num_nodes is None and question.gpus_per_node is None:
        found.append(Missing(name="num_gpus", option="--gpus", reason=Statement(code="ask.gpus"), required=False))
    if question.gpu is None:
        found.append(Missing(name="gpu", option="--gpu", reason=Statement(code="ask.gpu"), required=False))
    if question.seq_length is None:
        found.append(Missing(name="seq_length", option="--seq-length", reason=Statement(code="ask.seq-length"), required=False))
    return tuple(found)


def _ask_model(code: str = "ask.model", choices: tuple[str, ...] = (), **facts: object) -> Missing:
    return Missing(name="model", option="--model", reason=Statement(code=code, facts=facts), choices=choices)


def _find_model(
    text: str, question: Question, index: ModelIndex, cards: Mapping[str, ModelCard] | None
) -> tuple[Subject | None, tuple[Missing, ...]]:
    if text.endswith(".json") or text.startswith(("/", "./", "../", "~")):
        return _find_by_config(text, index, cards or {}), ()
    match = index.find(text)
    if match.recipe and index.recipes[match.recipe].kind is RecipeKind.BENCHMARK and question.mode and not question.benchmark:
        facts = {"model": match.models[0], "asked": text}
        return Subject(models=match.models, rejected=match.recipe, reasons=(Statement(code="pick.model", facts=facts),)), ()
    if match.recipe:
        reasons = (Statement(code="pick.named"),)
        return Subject(models=match.models, recipe=match.recipe, reasons=reasons), ()
    if match.kind is MatchKind.EXACT:
        code = "pick.model-typo" if match.read_as else "pick.model-hf" if "/" in text else "pick.model"
        facts = {"model": match.models[0], "asked": text, "read_as": match.read_as}
        reasons = (Statement(code=code, facts=facts),)
        return Subject(models=_for_mode(match.models, question, index), reasons=reasons), ()
    if match.kind is MatchKind.MANY:
        wants_experts = question.topic in (Topic.SMALL_MOE, Topic.LARGE_MOE)
        choices = tuple(stem for stem in match.models if index.is_moe(stem)) if wants_experts else match.models
        if len(choices) == 1:
            reasons = (Statement(code="pick.model", facts={"model": choices[0], "asked": text}),)
            return Subject(models=choices, reasons=reasons), ()
        choices = choices or match.models
        return None, (_ask_model("ask.model-size", choices, asked=text, models=list(choices)),)
    return _find_nearest(text, match, question, index, cards)


def _for_mode(models: tuple[str, ...], question: Question, index: ModelIndex) -> tuple[str, ...]:
    """Put models that have a recipe for the goal first."""
    if question.mode is None:
        return models
    return tuple(sorted(models, key=lambda model: not any(item.mode is question.mode for item in index.of_model(model))))


def _find_nearest(
    text: str, match: ModelMatch, question: Question, index: ModelIndex, cards: Mapping[str, ModelCard] | None
) -> tuple[Subject | None, tuple[Missing, ...]]:
    card = (cards or {}).get(text)
    if card is not None and card.facts:
        return _compare_with(text, card.facts, index, cards or {}), ()
    models = _for_mode(match.models, question, index)[:4]
    if models:
        reasons = (
            Statement(code="nearest.name", facts={"asked": text, "model": models[0]}),
            Statement(code="nearest.unknown-facts", facts={"asked": text, "model": models[0]}),
        )
        return Subject(models=models, nearest=True, reasons=reasons, notes=(_template(text, models[0]),)), ()
    if match.asked.size is None:
        return None, (_ask_model("ask.model-unknown", asked=text),)
    models = index.nearest_by_size(match.asked.size, moe=match.asked.active is not None)[:4]
    facts = {"asked": text, "model": models[0], "size": index.size_of(models[0])}
    by_size = (Statement(code="nearest.size", facts=facts),)
    return Subject(models=models, nearest=True, reasons=by_size, notes=(_template(text, models[0]),)), ()


def _template(asked: str, model: str, differences: Sequence[tuple[str, object, object]] = ()) -> Statement:
    """Say that the command trains another model than the one asked for, and what to change where that is known."""
    if not differences:
        return Statement(code="nearest.template-unknown", facts={"asked": asked, "model": model})
    overrides = " ".join(render_override(f"model.{name}", value) for name, value, _ in differences)
    return Statement(code="nearest.template", facts={"asked": asked, "model": model, "overrides": overrides})


def _find_by_config(text: str, index: ModelIndex, cards: Mapping[str, ModelCard]) -> Subject:
    from pathlib import Path

    path = Path(text)
    if path.is_dir():
        path = path / "config.json"
    return _compare_with(text, read_config(path), index, cards)


def _compare_with(text: str, facts: Mapping[str, object], index: ModelIndex, cards: Mapping[str, ModelCard]) -> Subject:
    ranked = rank_architectures(facts, cards.values())
    models: list[str] = []
    for card in ranked[:6]:
        for name in card.recipes:
            stem = index.recipes[name].model if name in index.recipes else ""
            if stem and stem not in models:
                models.append(stem)
    differences, count = compare(facts, ranked[0].facts)
    reasons = [Statement(code="nearest.config", facts={"asked": text, "model": models[0]})]
    if not differences:
        reasons = [Statement(code="nearest.same", facts={"model": models[0], "count": count})]
    reasons += [
        Statement(
            code="nearest.difference",
            facts={"fact": name, "asked_value": ours, "model_value": theirs, "model": models[0]},
        )
        for name, ours, theirs in differences
    ]
    notes = (_template(text, models[0], differences),) if differences else ()
    return Subject(models=tuple(models[:4]), nearest=bool(differences), reasons=tuple(reasons), notes=notes)
