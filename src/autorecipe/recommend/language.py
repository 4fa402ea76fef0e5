"""Turns statements into sentences of a language. Both languages have the same codes and the same facts in each (a test says so).

Besides Python's format specifications: `:gib` a byte count in GiB, `:list` a comma-separated list, `:mode` and `:topic` the
word for a goal or kind of model, `:word` that of a fact about a GPU, `:count` a large count such as 4.19M, `:gpu` a GPU id in
capitals, `:gpus` a number of GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from autorecipe.errors import InternalError
from autorecipe.record import field_names, replace
from autorecipe.schema.finding import Finding
from autorecipe.schema.recommendation import Recommendation, Statement
from autorecipe.units import render_count, render_gib

LANGUAGES = ("en", "ja")

WORDS: Mapping[str, Mapping[str, str]] = {
    "en": {
        "pretrain": "pretraining",
        "sft": "SFT",
        "peft": "PEFT",
        "lora": "LoRA",
        "dora": "DoRA",
        "benchmark": "throughput benchmark",
        "dense": "a dense model of this size",
        "small-moe": "a small MoE",
        "large-moe": "a large MoE",
        "vlm": "fine-tuning a VLM",
        "diffusion": "diffusion models",
        "long-context": "long context",
        "correlation": "correlation with Megatron-LM",
        "visible_memory_bytes": "that a process sees",
        "memory_bytes": "by the data sheet",
        "": "this",
    },
    "ja": {
        "pretrain": "事前学習",
        "sft": "SFT",
        "peft": "PEFT",
        "lora": "LoRA",
        "dora": "DoRA",
        "benchmark": "スループットベンチマーク",
        "dense": "このサイズの密結合モデル",
        "small-moe": "小規模 MoE",
        "large-moe": "大規模 MoE",
        "vlm": "VLM のファインチューニング",
        "diffusion": "拡散モデル",
        "long-context": "長いコンテキスト",
        "correlation": "Megatron-LM との相関テスト",
        "visible_memory_bytes": "プロセスから見える容量",
        "memory_bytes": "データシートの容量",
        "": "この目的",
    },
}


class _Fact:
    """One fact in a sentence; knows how the language writes it."""

    __slots__ = ("lang", "value")

    def __init__(self, value: Any, lang: str) -> None:
        self.value = value
        self.lang = lang

    def __format__(self, form: str) -> str:
        value, lang = self.value, self.lang
        if form == "gib":
            return render_gib(value)
        if form == "count":
            return render_count(value)
        if form == "gpus":
            return f"{value} 台" if lang == "ja" else f"{value} GPU" + ("" if value == 1 else "s")
        if form == "gpu":
            return str(value).upper()
        if form == "list":
            return ", ".join(str(item) for item in value)
        if form in ("mode", "topic", "word"):
            word = WORDS[lang].get(str(value), str(value))
            if lang == "ja":  # Japanese sets Latin words off by spaces
                word = (" " if word[0].isascii() else "") + word + (" " if word[-1].isascii() else "")
            return word
        return format(value, form)


def load_messages(lang: str) -> Mapping[str, str]:
    """Return the sentences of a language."""
    if lang == "ja":
        from autorecipe.recommend.messages_ja import MESSAGES as japanese

        return japanese
    from autorecipe.recommend.messages_en import MESSAGES as english

    return english


def render_statement(statement: Statement, lang: str) -> str:
    """Write one statement.

    Raises:
        InternalError: no such sentence, or a fact is missing.
    """
    messages = load_messages(lang)
    try:
        text = messages[statement.code].format(**{name: _Fact(value, lang) for name, value in statement.facts.items()})
    except KeyError as error:
        raise InternalError(f"sentence {statement.code!r} lacks {error} in {lang}") from error
    return re.sub(r"(?<=[、。(]) +", "", re.sub(r" {2,}", " ", text)).strip() if lang == "ja" else text


def localize(recommendation: Recommendation, lang: str) -> Recommendation:
    """Fill in the text of every statement, and say findings in the language."""
    localized = _localize(recommendation, lang)
    assert isinstance(localized, Recommendation)
    return localized


def _localize(value: Any, lang: str) -> Any:
    if isinstance(value, Statement):
        return replace(value, text=render_statement(value, lang))
    if isinstance(value, Finding):
        return _say_finding(value) if lang == "ja" else value
    if isinstance(value, tuple):
        items = tuple(_localize(item, lang) for item in value)
        return items if any(after is not before for after, before in zip(items, value, strict=True)) else value
    changed = {}
    for name in field_names(value) or ():
        before = getattr(value, name)
        after = _localize(before, lang)
        if after is not before:
            changed[name] = after
    return replace(value, **changed) if changed else value


def _say_finding(finding: Finding) -> Finding:
    from autorecipe.rules.japanese.findings import say_finding

    return say_finding(finding)


def statements_of(value: Any) -> Iterable[Statement]:
    """Yield every statement inside a value."""
    if isinstance(value, Statement):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from statements_of(item)
    else:
        for name in field_names(value) or ():
            yield from statements_of(getattr(value, name))
