"""Findings in Japanese: the same facts (ids, paths, numbers, values) in the sentences of a Japanese engineer.

Three kinds of rule, three shapes. A need: the rule's sentence, what is missing and the values that stand against it. An
adjustment: the sentence and the values that upstream uses. A computed message: the Japanese of its template. A sentence that no
template knows is quoted behind the rule's own. Only the module of the finding's topic is loaded. Start at `say_finding`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from autorecipe import phrases
from autorecipe.record import replace
from autorecipe.rules.declare import Adjustment, Requirement
from autorecipe.rules.expression import Expression
from autorecipe.rules.japanese.conditions import say_condition
from autorecipe.rules.registry import find_rules
from autorecipe.rules.syntax import Join, Node
from autorecipe.rules.wording import render_condition
from autorecipe.schema.finding import CheckReport, Finding, Fix, Stage

NOT_CHECKED = "GEN001"

STAGES: Mapping[Stage, str] = {
    Stage.CLI: "コマンドラインの解釈時に上流が気付く",
    Stage.PARSE: "引数の解釈時に上流が気付く",
    Stage.RECIPE: "レシピの評価時に上流が気付く",
    Stage.LAUNCH: "起動時に上流が気付く",
    Stage.FINALIZE: "構成の確定時に上流が気付く",
    Stage.VALIDATE: "構成の検証時に上流が気付く",
    Stage.INIT: "初期化時に上流が気付く",
    Stage.BUILD: "モデルの構築時に上流が気付く",
    Stage.DATA: "データの構築時に上流が気付く",
    Stage.RUNTIME: "実行中に上流が気付く",
    Stage.RESUME: "再開時に上流が気付く",
    Stage.NEVER: "上流は気付かない",
}
"""When upstream would notice."""


def say_title(rule: str) -> str:
    """Say what a rule demands, by its id."""
    titles: Mapping[str, str] = _topic(rule).TITLES
    return titles[rule]


def say_message(rule: str, message: str) -> str:
    """Say the message of a finding.

    Args:
        rule: id.
        message: as `rules.check` gives it.
    """
    title = say_title(rule)
    declared = None if rule == NOT_CHECKED else find_rules(rule)[0]
    said: str | None = None
    if declared is not None and message == declared.title:
        said = title
    elif isinstance(declared, Requirement):
        said = _say_need(declared, title, message)
    elif isinstance(declared, Adjustment):
        match = re.fullmatch(re.escape(declared.title) + r": upstream uses (?P<values>.*)", message, re.DOTALL)
        said = match and f"{title}。上流での実際の値: {match['values']}"
    else:
        topic = _topic(rule)
        said = phrases.say(message, getattr(topic, "MESSAGES", ()), getattr(topic, "PARTS", ()))
    return f"{title}。原文: 「{message}」" if said is None else said


def say_hint(hint: str) -> str:
    """Say what to do next; a hint that no phrase knows is quoted."""
    from autorecipe.rules.japanese.hints import HINTS

    return phrases.quote(hint, HINTS) if hint else ""


def say_note(note: str) -> str:
    """Say what else a way out means; a note that no phrase knows is quoted."""
    from autorecipe.rules.japanese.hints import NOTES

    return phrases.quote(note, NOTES) if note else ""


def say_finding(finding: Finding) -> Finding:
    """Return a finding whose sentences are Japanese; ids, paths, values and commands stay."""
    return replace(
        finding,
        message=say_message(finding.rule, finding.message),
        hint=say_hint(finding.hint),
        fixes=tuple(say_fix(fix) for fix in finding.fixes),
    )


def say_fix(fix: Fix) -> Fix:
    """Return a way out whose note is Japanese."""
    return replace(fix, note=say_note(fix.note)) if fix.note else fix


def say_report(report: CheckReport) -> CheckReport:
    """Return the answer of a check whose sentences are Japanese; severities, stages and layers stay words of the schema."""
    from autorecipe.rules.japanese.notes import say_resolution_note

    corrected = report.corrected
    if corrected is not None:
        corrected = replace(
            corrected,
            steps=tuple(replace(step, note=say_note(step.note)) for step in corrected.steps),
            remaining=tuple(say_finding(finding) for finding in corrected.remaining),
        )
    return replace(
        report,
        findings=tuple(say_finding(finding) for finding in report.findings),
        notes=tuple(say_resolution_note(note) for note in report.notes),
        corrected=corrected,
    )


def _topic(rule: str) -> Any:
    return importlib.import_module(f"autorecipe.rules.japanese.{rule[:3].lower()}")


@lru_cache(maxsize=64)
def _need_pattern(rule: Requirement) -> tuple[re.Pattern[str], Sequence[Sequence[Node]]]:
    """Return the pattern of a rule's messages: each need may fail, and of a conjunction each part may."""
    pattern, needs = [re.escape(rule.title)], []
    for number, text in enumerate(rule.predicates[1:]):
        node = Expression(text).node
        parts = node.parts if isinstance(node, Join) and node.word == "and" else (node,)
        needs.append(parts)
        words = "".join(
            f"(?P<n{number}p{index}>{re.escape(render_condition(part))}(?: and (?!$|,|;))?)?" for index, part in enumerate(parts)
        )
        pattern.append(f"(?P<n{number}>[:;] needs {words}(?:, but (?P<v{number}>.+?))?)?")
    return re.compile("".join(pattern), re.DOTALL), needs


def _say_need(rule: Requirement, title: str, message: str) -> str | None:
    pattern, needs = _need_pattern(rule)
    match = pattern.fullmatch(message)
    if match is None:
        return None
    conditions, values = [], []
    for number, parts in enumerate(needs):
        if match[f"n{number}"] is None:
            continue
        failing = [part for index, part in enumerate(parts) if match[f"n{number}p{index}"]]
        conditions.append(_join(failing))
        if match[f"v{number}"]:
            values.append(match[f"v{number}"])
    if not conditions:
        return None
    return f"{title}。必要な条件: {'; '.join(conditions)}" + (f"(現在は {', '.join(dict.fromkeys(values))})" if values else "")


def _join(parts: Iterable[Node]) -> str:
    said = [say_condition(part) for part in parts]
    return "、かつ ".join(f"({text})" if "、または " in text and len(said) > 1 else text for text in said)
