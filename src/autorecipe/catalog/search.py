"""Finds recipes by words: model names, sizes, goals, GPUs, precisions, Hugging Face ids, in any order and loosely spelled."""

from __future__ import annotations

import difflib
import functools
import itertools
import re
from collections.abc import Sequence

from autorecipe.catalog.naming import PRECISIONS, precision_id
from autorecipe.record import dataclass
from autorecipe.schema.recipe import Mode, RecipeKind, RecipeSummary

GOALS = {
    "pretrain": Mode.PRETRAIN,
    "pretraining": Mode.PRETRAIN,
    "pre-train": Mode.PRETRAIN,
    "pre-training": Mode.PRETRAIN,
    "sft": Mode.SFT,
    "finetune": Mode.SFT,
    "fine-tune": Mode.SFT,
    "finetuning": Mode.SFT,
    "fine-tuning": Mode.SFT,
    "full-finetuning": Mode.SFT,
    "peft": Mode.PEFT,
    "lora": Mode.PEFT,
    "dora": Mode.PEFT,
    "qlora": Mode.PEFT,
}
KINDS = {"benchmark": RecipeKind.BENCHMARK, "perf": RecipeKind.BENCHMARK, "library": RecipeKind.LIBRARY}
FILLERS = {
    "a",
    "the",
    "for",
    "with",
    "on",
    "of",
    "and",
    "recipe",
    "recipes",
    "config",
    "model",
    "gpu",
    "gpus",
    "train",
    "training",
}


@dataclass(frozen=True, kw_only=True)
class Match:
    """A recipe that fits a text.

    Attributes:
        summary: the recipe.
        score: 0 to 1, higher is better.
        unmatched: words of the text that the recipe has nothing for.
    """

    summary: RecipeSummary
    score: float
    unmatched: tuple[str, ...]


def search(text: str, summaries: Sequence[RecipeSummary], *, limit: int = 20) -> tuple[Match, ...]:
    """Return the recipes that fit a text best.

    Every word weighs the same; a word that fits only loosely counts in part. Recipes below half of the best score are left
    out, short aliases come before what they stand for, library recipes before benchmarks.
    """
    words = split_words(text)
    if not words:
        return ()
    whole = _fold(text)
    vocabulary = sorted({token for summary in summaries for token in _tokens(summary)})
    close = {word: _close_tokens(word, vocabulary) for word in words}
    matches = []
    for summary in summaries:
        scores = [_word_score(word, summary, close[word]) for word in words]
        score = sum(scores) / len(words)
        if score > 0:
            exact = 0.2 if whole and whole in _fold(summary.name) else 0.0
            missing = tuple(word for word, value in zip(words, scores, strict=True) if value == 0)
            matches.append((score + exact, Match(summary=summary, score=round(min(1.0, score), 3), unmatched=missing)))
    if not matches:
        return ()
    best = max(score for score, _ in matches)
    kept = [item for item in matches if item[0] >= max(0.45, 0.75 * best)]
    kept.sort(key=lambda item: (-round(item[0], 3), *_preference(item[1].summary)))
    return tuple(match for _, match in kept[:limit])


def split_words(text: str) -> tuple[str, ...]:
    """Split a text into words that search knows: `Llama 3.1 70B LoRA` -> llama31, 70b, lora."""
    text = text.strip().lower()
    if "/" in text and " " not in text:
        return (text,)
    text = re.sub(r"\b(\d+)\s*x\s*(?=(?:a100|h100|h200|b200|b300|gb200|gb300|vr200))", r"\1gpu ", text)
    text = re.sub(r"\b(\d+)\s*gpus?\b", r"\1gpu", text)
    text = re.sub(r"\bfp8[-_](cs|ds|mx|sc)\b", r"fp8\1", text)
    raw = [word for word in re.split(r"[\s,;]+", text) if word]
    words: list[str] = []
    for word in raw:
        if word in FILLERS:
            continue
        if re.fullmatch(r"\d+(\.\d+)?", word) and words and words[-1].isalpha() and words[-1] not in GOALS:
            words[-1] += word.replace(".", "")
        elif word in GOALS or word in KINDS:
            words.append(word)
        else:
            words += _pieces(word)
    return tuple(dict.fromkeys(words))


def _pieces(word: str) -> list[str]:
    """Split hyphenated model names; `30b-a3b` stays one word, as it is one thing in a recipe's name."""
    sized = re.fullmatch(r"(.*?)[-_]?(\d+(?:\.\d+)?b)[-_](a\d+(?:\.\d+)?b)(.*)", word)
    if sized:
        name, total, active, rest = sized.groups()
        return [*(_pieces(name) if name else []), f"{_size(total)}_{_size(active)}", *(_pieces(rest.strip("-_")) if rest else [])]
    pieces: list[str] = []
    for part in re.split(r"[-_]+", word):
        if not part:
            continue
        if re.fullmatch(r"\d+(\.\d+)?b", part):
            pieces.append(_size(part))
        elif re.fullmatch(r"\d+(\.\d+)?", part) and pieces and pieces[-1].isalpha():
            pieces[-1] += part.replace(".", "")
        else:
            pieces.append(part.replace(".", ""))
    return pieces


def _size(text: str) -> str:
    """Sizes in recipe names: `1.2b` is `1p2b`, sometimes written `12b` without the point."""
    return text.replace(".", "p")


def _close_tokens(word: str, vocabulary: Sequence[str]) -> frozenset[str]:
    """Return tokens that a mistyped word may stand for; a size never stands for another size."""
    if len(word) < 4 or (re.search(r"\d", word) and not re.match(r"[a-z]{3}", word)):
        return frozenset()
    digits = re.sub(r"\D", "", word)
    near = difflib.get_close_matches(word, vocabulary, n=8, cutoff=0.75)
    return frozenset(token for token in near if re.sub(r"\D", "", token) == digits)


def _word_score(word: str, summary: RecipeSummary, close: frozenset[str]) -> float:
    if word in GOALS:
        return 1.0 if summary.mode is GOALS[word] else 0.0
    if word in KINDS:
        return 1.0 if summary.kind is KINDS[word] else 0.0
    if "/" in word:
        return _hub_score(word, summary)
    gpus = re.fullmatch(r"(\d+)gpu", word)
    if gpus:
        return 1.0 if summary.gpus == int(gpus[1]) else 0.0
    precision = precision_id(word)
    if summary.gpu_type == word or (precision in PRECISIONS and (summary.precision or "").startswith(precision)):
        return 1.0
    if word == summary.modality:
        return 1.0
    tokens = _tokens(summary)
    if word in tokens:
        return 1.0
    joined = _fold(summary.name)
    folded = _fold(word)
    if len(folded) >= 3 and folded in joined:
        return 0.9
    if len(folded) >= 3 and any(folded in _fold(hf_id) for hf_id in summary.hf_model_ids):
        return 0.8
    return 0.6 if not close.isdisjoint(tokens) else 0.0


def _hub_score(word: str, summary: RecipeSummary) -> float:
    ids = [hf_id.lower() for hf_id in summary.hf_model_ids]
    if word in ids:
        return 1.0
    if any(word in hf_id for hf_id in ids):
        return 0.9
    tail = word.rpartition("/")[2]
    pieces = _pieces(tail)
    scores = [_word_score(piece, summary, frozenset()) for piece in pieces if "/" not in piece]
    return 0.8 * sum(scores) / len(scores) if scores else 0.0


@functools.lru_cache(maxsize=8192)
def _tokens_of(name: str, family: str) -> tuple[str, ...]:
    parts = [part for part in name.split("_") if part]
    pairs = [f"{left}_{right}" for left, right in itertools.pairwise(parts)]
    joined = [f"{left}{right}" for left, right in itertools.pairwise(parts)]
    return tuple(dict.fromkeys((*parts, *pairs, *joined, family)))


def _tokens(summary: RecipeSummary) -> tuple[str, ...]:
    return _tokens_of(summary.name.partition("@")[0].removesuffix("_config"), summary.family)


def _fold(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _preference(summary: RecipeSummary) -> tuple[bool, bool, bool, bool, int, str]:
    return (
        summary.status != "ok",
        summary.kind is RecipeKind.BENCHMARK,
        summary.variant is not None,
        summary.alias_of is None or len(summary.alias_of) < len(summary.name),
        len(summary.name),
        summary.name,
    )
