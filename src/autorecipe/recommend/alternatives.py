"""What a refusal offers instead: the nearest model that has a recipe for the goal, and what else the model itself has.

Start at `offer_instead` (a model without a recipe for the goal) and `offer_nearest` (a model of which only the name is known).
Leaves out answering for the nearest model: the hint is the question that does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autorecipe.errors import Problem
from autorecipe.recommend.architecture import compare, rank_architectures
from autorecipe.recommend.candidates import NEXT_GOALS, rank_candidates
from autorecipe.recommend.models import ModelIndex
from autorecipe.record import replace
from autorecipe.schema.card import ModelCard
from autorecipe.schema.recipe import Mode
from autorecipe.schema.recommendation import Question

TOLD = (
    "num_layers",
    "hidden_size",
    "num_moe_experts",
    "moe_router_topk",
    "moe_ffn_hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "kv_lora_rank",
)
"""Facts of an architecture that a refusal compares, beside the number of parameters and the kind of attention."""

KINDS_OF_ATTENTION = ("multi_latent_attention", "experimental_attention_variant", "is_hybrid_model")
"""Facts that say what attends; unset and false are one."""

EXPERTS = re.compile(r"(?<![a-z0-9.])(?P<experts>\d+)x(?P<size>\d+(?:\.\d+)?)b(?![a-z0-9])")
"""Names such as 8x7B. Their product bounds the size from above, as experts share the attention. Evidence: derived."""

OWN_RECIPES = "docs/guides/own-recipes.md"


def offer_instead(question: Question, model: str, index: ModelIndex, cards: Iterable[ModelCard]) -> tuple[Problem, ...]:
    """Return what to do where a model has no recipe for the goal.

    Args:
        question: with `mode` set.
        model: stem of the model.
        index: all recipes.
        cards: architecture facts of all models.

    Returns:
        the nearest model that has one, where the architecture is known; the model's other goals, where it has any.
    """
    own = index.of_model(model)
    ids = {hf_id for summary in own for hf_id in summary.hf_model_ids}
    cards = tuple(cards)
    card = next((card for card in cards if card.hf_model_id in ids and card.facts), None)
    found = []
    if card is not None and own:
        recipes = _recipes_for(question, cards, index, modality=own[0].modality)
        for near in rank_architectures(card.facts, [item for item in cards if item.hf_model_id in recipes]):
            if near.hf_model_id not in ids:
                found.append(_describe(question, model, near, recipes[near.hf_model_id], _differences(card, near), index))
                break
    goals = _other_goals(question, model, index)
    if goals:
        listed = ", ".join(f"{goal} ({name})" for goal, name in goals)
        message = f"{model} has recipes for other goals: {listed}; for {_goal(question)} it takes a recipe of your own"
        command = f"autorecipe recommend --model {model} --goal {goals[0][0]}"
        hint = f"`{command}` answers for that; {OWN_RECIPES} shows how to build on one"
        found.append(Problem(code="other-goals", message=message, hint=hint))
    return tuple(found)


def offer_nearest(question: Question, index: ModelIndex, cards: Iterable[ModelCard]) -> tuple[Problem, ...]:
    """Return the nearest model to one of which only the name is known, such as `mixtral 8x7b`; empty where it says no size.

    Args:
        question: with `model` set; without a goal nothing is offered.
        index: all recipes.
        cards: architecture facts of all models.
    """
    match = EXPERTS.search((question.model or "").lower())
    if match is None or question.mode is None:
        return ()
    experts, bound = int(match["experts"]), int(match["experts"]) * float(match["size"])
    cards = tuple(cards)
    recipes = _recipes_for(question, cards, index, modality="text")
    fitting = [
        (abs(math.log(bound * 1e9 / card.num_parameters)), card.hf_model_id, card)
        for card in cards
        if card.hf_model_id in recipes and card.num_parameters and card.facts.get("num_moe_experts")
    ]
    if not fitting:
        return ()
    near = min(fitting)[2]
    differences: list[tuple[str, Any, Any]] = [("num_parameters", _billions(near.num_parameters), f"<={bound:g}B")]
    if near.facts.get("num_moe_experts") != experts:
        differences.append(("num_moe_experts", near.facts["num_moe_experts"], experts))
    problem = _describe(question, str(question.model), near, recipes[near.hf_model_id], differences, index)
    hint = f"{problem.hint}; `--model PATH` with the config.json of {question.model} compares the rest, such as its attention"
    return (replace(problem, hint=hint),)


def _recipes_for(question: Question, cards: Iterable[ModelCard], index: ModelIndex, *, modality: str) -> Mapping[str, str]:
    """Return the best recipe for the goal by Hugging Face id, of models of one modality that have one."""
    asked = replace(question, seq_length=None, precision=None)
    found: dict[str, str] = {}
    for card in cards:
        stems = {index.recipes[name].model for name in card.recipes if name in index.recipes}
        stems = {stem for stem in stems if stem and index.of_model(stem)[0].modality == modality}
        ranked = rank_candidates(index, sorted(stems, key=lambda stem: (len(stem), stem)), asked)
        if ranked and card.facts:
            found[card.hf_model_id] = ranked[0].name
    return found


def _differences(asked: ModelCard, near: ModelCard) -> list[tuple[str, Any, Any]]:
    """Return (fact, of the nearest model, of the one asked for) for size, experts, attention and shape."""
    found: list[tuple[str, Any, Any]] = []
    if asked.num_parameters and near.num_parameters and asked.num_parameters != near.num_parameters:
        found.append(("num_parameters", _billions(near.num_parameters), _billions(asked.num_parameters)))
    found += [
        (name, near.facts.get(name) or None, asked.facts.get(name) or None)
        for name in KINDS_OF_ATTENTION
        if (near.facts.get(name) or None) != (asked.facts.get(name) or None)
    ]
    found += [(name, theirs, ours) for name, ours, theirs in compare(asked.facts, near.facts)[0] if name in TOLD]
    return found


def _describe(
    question: Question, asked: str, near: ModelCard, recipe: str, differences: Sequence[tuple[str, Any, Any]], index: ModelIndex
) -> Problem:
    model = index.recipes[recipe].model
    told = ", ".join(f"{name} {_plain(theirs)} ({_plain(ours)})" for name, theirs, ours in differences)
    message = f"the nearest model with a usable {_goal(question)} recipe is {model} ({recipe})"
    message += f"; it differs, with {asked} in brackets: {told}" if told else "; no fact that is known here differs"
    return Problem(code="nearest-model", message=message, hint=f"`{_ask_for(question, model)}` answers for it")


def _ask_for(question: Question, model: str) -> str:
    words = ["autorecipe recommend", f"--model {model}", f"--goal {_goal_option(question)}"]
    if question.num_gpus:
        words.append(f"--gpus {question.num_gpus}")
    if question.gpu:
        words.append(f"--gpu {question.gpu}")
    if question.benchmark and question.mode is not Mode.PRETRAIN:
        words.insert(1, f'"{_goal(question)}"')
        words = [word for word in words if not word.startswith("--goal")]
    return " ".join(words)


def _goal(question: Question) -> str:
    return " ".join(filter(None, (question.mode.value if question.mode else "", "benchmark" if question.benchmark else "")))


def _goal_option(question: Question) -> str:
    if question.benchmark:
        return "benchmark"
    return question.adapter or ("lora" if question.mode is Mode.PEFT else question.mode.value if question.mode else "")


def _other_goals(question: Question, model: str, index: ModelIndex) -> list[tuple[str, str]]:
    """Return the other goals for which the model has a training recipe, most useful first: the option's word and the recipe."""
    if question.mode is None:
        return []
    found = []
    for mode in ((question.mode,) if question.benchmark else ()) + NEXT_GOALS[question.mode]:
        asked = Question(mode=mode, gpu=question.gpu)
        ranked = rank_candidates(index, [model], asked)
        if ranked:
            found.append((_goal_option(asked), ranked[0].name))
    return found


def _billions(count: int | None) -> str:
    return f"{(count or 0) / 1e9:.1f}B"


def _plain(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
