"""Answer a question: joins the catalog, the configuration, the rules and the recommender."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from autorecipe.catalog.hardware import load_gpus
from autorecipe.catalog.naming import LIBRARY_SUFFIX, is_own_recipe
from autorecipe.catalog.store import Catalog, open_catalog
from autorecipe.errors import NegativeAnswer, Problem, UsageError
from autorecipe.recommend.alternatives import offer_instead, offer_nearest
from autorecipe.recommend.answer import answer_question
from autorecipe.recommend.colleague import Colleague, Launch
from autorecipe.recommend.consistency import check_question, merge_options
from autorecipe.recommend.language import localize, render_statement
from autorecipe.recommend.models import ModelIndex
from autorecipe.recommend.question import parse_question, split_questions
from autorecipe.recommend.subject import Missing, complete_question, find_subject, list_missing
from autorecipe.record import dataclass, replace
from autorecipe.schema.finding import Finding
from autorecipe.schema.hardware import Cluster
from autorecipe.schema.layer import Layer
from autorecipe.schema.preset import PRESETS
from autorecipe.schema.recipe import RecipeKind
from autorecipe.schema.recommendation import Question, Recommendation, Statement
from autorecipe.schema.run import RunConfig


@dataclass(frozen=True, kw_only=True)
class Understood:
    """A question as read, before it is answered.

    Attributes:
        question: merged from text and options.
        missing: inputs that were not given; those that are required come first.
        replaced: remarks on options that won over the text.
    """

    question: Question
    missing: tuple[Missing, ...]
    replaced: tuple[Statement, ...] = ()


def read_questions(text: str, options: Mapping[str, object], *, release: str | None = None) -> tuple[Understood, ...]:
    """Read every question of a text and say what is missing.

    Args:
        text: as typed; several questions are separated by semicolons or line ends.
        options: fields of `Question` by name, which win over the text.
        release: Bridge release of the catalog.

    Raises:
        UsageError: contradictions in a question.
    """
    catalog = open_catalog(release)
    index = _index(catalog)
    gpus = load_gpus()
    found = []
    for part in split_questions(text) or ("",):
        read = parse_question(part, gpus=list(gpus), presets=PRESETS, recipes=index.recipes.__contains__)
        merged, replaced = merge_options(read, options)
        check_question(merged, presets=list(PRESETS))
        if merged.model is not None and is_own_recipe(merged.model):
            raise UsageError(_own_recipe(merged.model))
        completed, _ = complete_question(merged)
        missing = list_missing(completed)
        if completed.model in index.recipes:
            missing = tuple(item for item in missing if item.name != "mode")
        if completed.model is None or not _is_path(completed.model):
            missing = (*find_subject(completed, index, None)[1], *missing)
        notes = tuple(
            Statement(code="note.option-wins", facts={"name": name, "said": _plain(said), "given": _plain(given)})
            for name, said, given in replaced
        )
        found.append(Understood(question=merged, missing=missing, replaced=notes))
    return tuple(found)


def recommend(
    text: str = "", options: Mapping[str, object] | None = None, *, release: str | None = None, lang: str = "en"
) -> tuple[Recommendation, ...]:
    """Answer every question of a text.

    Args:
        text: as typed.
        options: fields of `Question` by name, which win over the text.
        release: Bridge release of the catalog; None for the newest.
        lang: `en` or `ja`.

    Returns:
        one recommendation for each question.

    Raises:
        UsageError: something required is missing or contradictory, all of it at once.
        NegativeAnswer: a model has no usable recipe for the goal.
    """
    understood = read_questions(text, options or {}, release=release)
    problems = describe_missing(understood, lang=lang)
    catalog = open_catalog(release)
    if problems:
        raise UsageError([*problems, *_nearest_to_unknown(understood, catalog)])
    colleague = make_colleague(catalog)
    return tuple(localize(_answer(item, catalog, colleague), lang) for item in understood)


def describe_missing(understood: Sequence[Understood], *, lang: str) -> list[Problem]:
    """Return what must be asked, where something required is missing; optional inputs are then listed too."""
    problems = []
    for number, item in enumerate(understood, start=1):
        if not any(missing.required for missing in item.missing):
            continue
        word = "質問" if lang == "ja" else "question"
        where = f"{word} {number}: " if len(understood) > 1 else ""
        for missing in item.missing:
            hint = f"{missing.option} {'|'.join(missing.choices) or ('値' if lang == 'ja' else 'VALUE')}"
            message = render_statement(missing.reason, lang)
            problems.append(
                Problem(
                    code="missing-input" if missing.required else "missing-optional",
                    path=f"{where}{missing.option}",
                    message=message,
                    hint=hint,
                )
            )
    return problems


def make_colleague(catalog: Catalog) -> Colleague:
    """Join what an answer needs."""
    from autorecipe.config.layers import classify_path
    from autorecipe.config.resolve import resolve_config
    from autorecipe.rules.check import check_config

    def resolve(name: str, overrides: Sequence[str], world_size: int | None, launch: Launch) -> RunConfig:
        return resolve_config(
            catalog.load(name),
            catalog.schema(),
            tuple(overrides),
            world_size=world_size,
            mode=launch.mode or None,
            dataset=launch.dataset or None,
        )

    def check(config: RunConfig, cluster: Cluster, given: Mapping[str, object]) -> tuple[Finding, ...]:
        return check_config(config, cluster, given=given, verify=False)

    def classify(path: str) -> Layer | None:
        return classify_path(path, catalog.schema())[0]

    def longest(hf_id: str) -> int | None:
        card = catalog.model_cards().get(hf_id)
        tokens = card.facts.get("seq_length") if card is not None else None
        return tokens if isinstance(tokens, int) else None

    index = _index(catalog)
    collisions = {}
    for name, target in index.recipes.targets.items():
        if target.endswith(LIBRARY_SUFFIX):
            collisions[target.removesuffix(LIBRARY_SUFFIX)] = name
    for name in index.recipes:
        if name.endswith(LIBRARY_SUFFIX):
            collisions.setdefault(name.removesuffix(LIBRARY_SUFFIX), name)
    return Colleague(
        release=catalog.release,
        index=index,
        gpus=load_gpus(),
        resolve=resolve,
        check=check,
        classify=classify,
        collisions=collisions,
        packs=lambda name: catalog.load(name).fields.get("dataset.enable_offline_packing") is True,
        longest=longest,
        errors=lambda name: catalog.load(name).error.splitlines()[0] if catalog.load(name).error else "",
    )


@functools.lru_cache(maxsize=4)
def _index(catalog: Catalog) -> ModelIndex:
    return ModelIndex(catalog.recipes)


def _answer(item: Understood, catalog: Catalog, colleague: Colleague) -> Recommendation:
    question, assumptions = complete_question(item.question)
    needs_cards = question.model is not None and ("/" in question.model or _is_path(question.model))
    cards = catalog.model_cards() if needs_cards and question.model not in colleague.index.recipes else None
    subject, _ = find_subject(question, colleague.index, cards)
    assert subject is not None
    subject = replace(subject, assumptions=(*subject.assumptions, *assumptions), notes=(*item.replaced, *subject.notes))
    answer = answer_question(question, subject, colleague)
    if answer is None:
        refusal = _no_recipe(question, subject.models, colleague)
        raise NegativeAnswer(
            [refusal, *offer_instead(question, subject.models[0], colleague.index, catalog.model_cards().values())]
        )
    return answer


def _nearest_to_unknown(understood: Sequence[Understood], catalog: Catalog) -> list[Problem]:
    """Return the nearest model for each question about a model of which only the name is known."""
    unknown = [
        complete_question(item.question)[0]
        for item in understood
        if any(missing.reason.code == "ask.model-unknown" for missing in item.missing)
    ]
    return [
        problem for question in unknown for problem in offer_nearest(question, _index(catalog), catalog.model_cards().values())
    ]


def _no_recipe(question: Question, models: Sequence[str], colleague: Colleague) -> Problem:
    goal = " ".join(filter(None, (question.mode.value if question.mode else "", "benchmark" if question.benchmark else "")))
    known = [summary for model in models[:1] for summary in colleague.index.of_model(model)]
    aliased = {item.alias_of for item in known if item.alias_of}
    fitting = [item for item in known if item.status == "ok" and item.name not in aliased]
    usable = [
        item.name for item in sorted(fitting, key=lambda item: (item.kind is not RecipeKind.LIBRARY, len(item.name), item.name))
    ]
    broken = sorted({item.name for item in known if item.status != "ok" and item.mode is question.mode})
    message = f"{models[0]} has no usable {goal} recipe in release {colleague.release}"
    if broken:
        message += f"; {broken[0]} exists and cannot be built: {colleague.errors(broken[0])}"
    hint = f"its recipes: {', '.join(usable[:6])}" if usable else 'search with `autorecipe recipes search "WORDS"`'
    return Problem(code="no-recipe", message=message, hint=hint)


def _own_recipe(target: str) -> Problem:
    hint = f"`autorecipe plan {target} --gpus N --gpu TYPE` sizes it, `autorecipe check` judges it, `autorecipe launch` starts it"
    message = "is a recipe of your own, and recommend chooses among upstream's: there is nothing to choose"
    return Problem(code="own-recipe", path=target, message=message, hint=hint)


def _is_path(text: str) -> bool:
    return text.endswith(".json") or text.startswith(("/", "./", "../", "~"))


def _plain(value: object) -> object:
    return getattr(value, "value", value)
