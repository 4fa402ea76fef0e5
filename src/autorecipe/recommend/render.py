"""An answer as text: summary first, details under headings. Pure: knows no terminal, no colour, no width."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autorecipe.launch.training import render_override
from autorecipe.recommend.language import WORDS
from autorecipe.schema.finding import Finding, Severity
from autorecipe.schema.layer import Layer
from autorecipe.schema.recommendation import Candidate, LabelledOverride, Recommendation, Statement

HEADINGS: Mapping[str, Mapping[str, str]] = {
    "en": {
        "assumptions": "Not said, and taken to be so",
        "recipe": "Recipe",
        "runners-up": "Runners-up",
        "kind": "Kind",
        "dataset": "Dataset",
        "command": "Command",
        "overrides": "Overrides, by layer of change",
        "no-overrides": "none: the recipe runs unchanged",
        "rules": "Resizing rules here",
        "check": "Check",
        "passes": "passes: no rule finds an error",
        "fails": "does NOT pass",
        "pitfalls": "Pitfalls here",
        "oom": "Out of memory? In this order",
        "evidence": "What a run of this proves",
        "checklist": "Checklist of the first answer",
        "notes": "Remarks",
        "next": "Next",
        "alternatives": "also valid",
        "release": "Catalog: Megatron Bridge {release}.",
        "details": "More with the same command without --brief.",
    },
    "ja": {
        "assumptions": "書かれていないため仮定したこと",
        "recipe": "レシピ",
        "runners-up": "次点",
        "kind": "種類",
        "dataset": "データセット",
        "command": "コマンド",
        "overrides": "オーバーライド(変更の層別)",
        "no-overrides": "なし: レシピのまま動く",
        "rules": "今回のサイズ変更ルール",
        "check": "検査",
        "passes": "合格: エラーになる規則はない",
        "fails": "不合格",
        "pitfalls": "今回の注意点",
        "oom": "OOM のときに試す順番",
        "evidence": "この実行で分かること",
        "checklist": "最初の回答のチェックリスト",
        "notes": "補足",
        "next": "次の一手",
        "alternatives": "ほかに使えるもの",
        "release": "カタログ: Megatron Bridge {release}。",
        "details": "--brief を外すと詳細を表示します。",
    },
}

LAYERS: Mapping[str, Mapping[Layer | None, str]] = {
    "en": {
        Layer.CONVERGENCE: "convergence: a new experiment",
        Layer.EXECUTION: "execution: same updates, verify",
        Layer.FINGERPRINT: "fingerprint: fresh loss check",
        Layer.BENCHMARK_ONLY: "benchmark only: proves no convergence",
        Layer.IO: "io: where and how often things are written",
        None: "not classified: treat like convergence",
    },
    "ja": {
        Layer.CONVERGENCE: "収束(convergence): 新しい実験",
        Layer.EXECUTION: "実行(execution): 更新は同じ、要検証",
        Layer.FINGERPRINT: "フィンガープリント(fingerprint): 損失を再確認",
        Layer.BENCHMARK_ONLY: "ベンチマーク専用(benchmark only): 収束の根拠にならない",
        Layer.IO: "入出力(io): 書き込み先と頻度",
        None: "未分類: 収束と同様に扱う",
    },
}

SEVERITIES: Mapping[str, Mapping[Severity, str]] = {
    "en": {severity: severity.value for severity in Severity},
    "ja": {
        Severity.ERROR: "エラー",
        Severity.WARN: "警告",
        Severity.AUTO_FIX: "自動修正",
        Severity.INFO: "情報",
        Severity.UNKNOWN: "未検査",
    },
}

KINDS: Mapping[str, Mapping[str, str]] = {"en": {}, "ja": {"library": "ライブラリ", "benchmark": "ベンチマーク"}}
"""Words for the kinds of recipe; those of the schema elsewhere."""

MAX_FINDINGS = 8

SHOWN = (Severity.ERROR, Severity.WARN, Severity.AUTO_FIX)
"""Findings that an answer shows; `autorecipe check` shows the rest."""


def render_answer(answer: Recommendation, *, lang: str, brief: bool = False) -> str:
    """Write an answer.

    Args:
        answer: with the text of its statements filled in for the same language.
        lang: `en` or `ja`.
        brief: only summary, command, overrides, check and checklist.
    """
    words = HEADINGS[lang]
    lines = [_title(answer, lang), ""]
    lines += [statement.text for statement in answer.summary]
    details: list[tuple[str, Sequence[str]]] = [("assumptions", _bullets(answer.assumptions))]
    if not brief:
        details += [
            ("recipe", _candidate(answer.pick, lang)),
            ("runners-up", [line for item in answer.runners_up for line in _runner_up(item, lang)]),
            ("kind", [answer.kind_reason.text]),
            ("dataset", _dataset(answer, words)),
        ]
    details += [
        ("command", answer.command.splitlines()),
        ("overrides", _overrides(answer.overrides, lang) if answer.command else []),
    ]
    if not brief:
        details.append(("rules", _bullets(answer.rules)))
    details.append(("check", _check(answer, lang)))
    if not brief:
        details += [
            ("pitfalls", _bullets(answer.pitfalls)),
            ("oom", _numbered(answer.on_oom)),
            ("evidence", _bullets(answer.evidence)),
        ]
    details.append(("checklist", _numbered(answer.checklist)))
    if not brief:
        details += [("notes", _bullets(answer.notes)), ("next", answer.next_steps)]
    for heading, content in details:
        if content:
            lines += ["", words[heading], *(f"  {line}" for line in content)]
    lines += ["", words["release"].format(release=answer.release) + (f" {words['details']}" if brief else "")]
    return "\n".join(lines) + "\n"


def render_answers(answers: Sequence[Recommendation], *, lang: str, brief: bool = False) -> str:
    """Write several answers, one after the other."""
    return "\n\n".join(render_answer(answer, lang=lang, brief=brief) for answer in answers)


def _title(answer: Recommendation, lang: str) -> str:
    question, sizing = answer.question, answer.sizing
    goal = "benchmark" if question.benchmark else question.adapter or (question.mode.value if question.mode else "")
    model = question.model or answer.pick.name
    count = question.num_gpus or (sizing.num_gpus or 0) + sizing.idle_gpus
    parts = [model, WORDS[lang].get(goal, goal), f"{count} x {sizing.gpu.upper()}"]
    if sizing.seq_length:
        parts.append(f"{sizing.seq_length} " + ("トークン" if lang == "ja" else "tokens"))
    text = ("、" if lang == "ja" else ", ").join(parts)
    return f"== {text} =="


def _bullets(statements: Iterable[Statement]) -> list[str]:
    return [f"- {statement.text}" for statement in statements]


def _numbered(statements: Iterable[Statement]) -> list[str]:
    return [f"{number}. {statement.text}" for number, statement in enumerate(statements, start=1)]


def _candidate(pick: Candidate, lang: str) -> list[str]:
    kind = {"en": "{kind}, {mode}", "ja": "{kind}、{mode}"}[lang]
    mode = WORDS[lang].get(pick.mode.value if pick.mode else "", "")
    head = f"{pick.name} ({kind.format(kind=KINDS[lang].get(pick.kind.value, pick.kind.value), mode=mode)})"
    return [head, *(f"- {reason.text}" for reason in pick.reasons)]


def _runner_up(item: Candidate, lang: str) -> list[str]:
    reasons = {"en": "; ", "ja": "。"}[lang].join(reason.text for reason in item.reasons)
    return [f"- {item.name}" + (f": {reasons}" if reasons else "")]


def _dataset(answer: Recommendation, words: Mapping[str, str]) -> list[str]:
    lines = [answer.dataset.reason.text]
    if answer.dataset.alternatives:
        lines.append(f"{words['alternatives']}: {', '.join(answer.dataset.alternatives)}")
    return lines


def _overrides(overrides: Sequence[LabelledOverride], lang: str) -> list[str]:
    if not overrides:
        return [HEADINGS[lang]["no-overrides"]]
    width = max(len(render_override(change.path, change.value)) for change in overrides)
    return [
        f"{render_override(change.path, change.value):<{width}}  [{LAYERS[lang][change.layer]}] {change.reason.text}"
        for change in overrides
    ]


def _check(answer: Recommendation, lang: str) -> list[str]:
    checked = answer.check
    if checked is None:
        return []
    words = HEADINGS[lang]
    shown = [finding for finding in checked.findings if finding.severity in SHOWN]
    rest = len(shown) - MAX_FINDINGS
    lines = [words["passes" if checked.passes else "fails"], *(_finding(finding, lang) for finding in shown[:MAX_FINDINGS])]
    if rest > 0:
        lines.append(f"+ {rest}: {checked.command}")
    return lines


def _finding(finding: Finding, lang: str) -> str:
    return f"- {SEVERITIES[lang][finding.severity]}[{finding.rule}] {finding.message}"
