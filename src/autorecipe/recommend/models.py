"""Find the model that a question means among those that have recipes.

A name is split into its words and its size: "Qwen3 30B-A3B", `Qwen/Qwen3-30B-A3B` and `qwen3_30b_a3b` all read as
(qwen3, 30B, 3B active). Start at `ModelIndex.find`. Leaves out: which recipe of the model to take (see `candidates`).
"""

from __future__ import annotations

import enum
import functools
import math
import re
from collections.abc import Mapping

from autorecipe.catalog.summaries import SummaryTable
from autorecipe.record import dataclass, replace
from autorecipe.schema.recipe import RecipeSummary

_SIZE = re.compile(
    r"(?<![a-z0-9.])(?P<kind>e)?(?P<size>\d+(?:\.\d+)?)\s*(?P<unit>[bmt])(?:[- _]?a(?P<active>\d+(?:\.\d+)?)b)?(?![a-z0-9])"
)
_STEM_SIZE = re.compile(r"(?:^|_)(?P<kind>e)?(?P<size>\d+(?:p\d+)?)(?P<unit>[bm])(?:_a(?P<active>\d+)b?)?(?=_|$)")
_RELEASE_WORDS = frozenset(
    "instruct base it hf chat pt sft dev flash thinking coder math text preview bf16 fp8 reasoning meta nvidia official".split()  # noqa: SIM905
)
"""Words of a checkpoint's name that do not change the architecture's name."""


class MatchKind(enum.StrEnum):
    """EXACT: this very model. NEAREST: another one, closest in name or size. MANY: the name fits several sizes."""

    EXACT = "exact"
    NEAREST = "nearest"
    MANY = "many"


@dataclass(frozen=True, kw_only=True)
class ModelName:
    """A model's name, taken apart.

    Attributes:
        words: name without size, letters and digits only, such as `qwen3`.
        tokens: the same as words and numbers apart, such as {"qwen", "3"}.
        size: total parameters in billions, or None.
        active: active parameters in billions, or None.
    """

    words: str
    tokens: frozenset[str]
    size: float | None
    active: float | None


@dataclass(frozen=True, kw_only=True)
class ModelMatch:
    """What a name was taken to mean.

    Attributes:
        kind: how sure.
        models: model stems of recipe names, such as `qwen3_30b_a3b`, best first; empty where nothing is near.
        asked: the name as read.
        read_as: the name without a misspelling, where it was read so.
        recipe: recipe name, where the question named one.
    """

    kind: MatchKind
    models: tuple[str, ...]
    asked: ModelName
    recipe: str = ""
    read_as: str = ""


def read_model_name(text: str, *, without_release_words: bool = False) -> ModelName:
    """Take a model's name, or the last part of a Hugging Face id, apart.

    Args:
        text: as typed.
        without_release_words: whether words such as `Instruct`, and dates, are left out.
    """
    text = text.rsplit("/", 1)[-1].lower().replace("_", "-")
    match = _SIZE.search(text)
    size = active = None
    if match:
        size = float(match["size"]) * {"b": 1.0, "m": 1e-3, "t": 1e3}[match["unit"]]
        active = float(match["active"]) if match["active"] else None
        text = text[: match.start()] + " " + text[match.end() :]
    text = re.sub(r"(\d)\.0(?!\d)", r"\1", text)
    parts = [part for part in re.split(r"[\s\-]+", text) if part]
    if without_release_words:
        parts = [part for part in parts if part not in _RELEASE_WORDS and not re.fullmatch(r"\d{4}", part)]
    words = re.sub(r"[^a-z0-9]", "", "".join(parts))
    return ModelName(words=words, tokens=_tokens(" ".join(parts)), size=size, active=active)


def read_model_stem(stem: str) -> ModelName:
    """Take the model part of a recipe's name apart, such as `wan_1_3b` or `exaone4_1p2b`."""
    folded = re.sub(r"_(\d)_(\d)b(?=_|$)", r"_\1p\2b", stem)
    match = _STEM_SIZE.search(folded)
    size = active = None
    if match:
        size = float(match["size"].replace("p", ".")) * (1.0 if match["unit"] == "b" else 1e-3)
        active = float(match["active"]) if match["active"] else None
        folded = folded[: match.start()] + folded[match.end() :]
    return ModelName(words=re.sub(r"[^a-z0-9]", "", folded), tokens=_tokens(folded), size=size, active=active)


def _tokens(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+|\d+", text.replace(".", "")))


MISSPELT = 0.8
"""Likeness from which a family's name counts as misspelt, as `qwn` does for Qwen. Evidence: assumed."""

OTHER_FAMILIES = frozenset(("mistral", "mixtral", "codestral", "magistral", "pixtral", "minimax", "falcon", "jamba"))
"""Names of families without recipes that look like a misspelling of another or might."""


class ModelIndex:
    """Models that have recipes, by stem."""

    def __init__(self, recipes: SummaryTable) -> None:
        self.recipes = recipes
        self.models = tuple(stem for stem in recipes.models if stem)

    @functools.cached_property
    def _names(self) -> Mapping[str, ModelName]:
        return {stem: read_model_stem(stem) for stem in self.models}

    @functools.cached_property
    def _by_hf_id(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for summary in self.recipes.values():
            for hf_id in summary.hf_model_ids if summary.model else ():
                stems = found.setdefault(hf_id.lower(), [])
                if summary.model not in stems:
                    stems.append(summary.model)
        return found

    def of_model(self, stem: str) -> tuple[RecipeSummary, ...]:
        """Return the recipes of a model, aliases included."""
        return self.recipes.of_model(stem)

    def find(self, text: str) -> ModelMatch:
        """Find what a model's name, a Hugging Face id or a recipe's name means."""
        asked = read_model_name(text)
        if text in self.recipes:
            return ModelMatch(kind=MatchKind.EXACT, models=(self.recipes[text].model,), asked=asked, recipe=text)
        if "/" in text and (stems := self._by_hf_id.get(text.lower())):
            return ModelMatch(kind=MatchKind.EXACT, models=tuple(sorted(stems, key=len)), asked=asked)
        if text.lower() in self.recipes.models:
            return ModelMatch(kind=MatchKind.EXACT, models=(text.lower(),), asked=asked)
        found = self._find_by_name(asked)
        if found.kind is MatchKind.NEAREST:
            found = self._find_by_name(read_model_name(text, without_release_words=True))
        if found.kind is MatchKind.NEAREST and not found.models:
            corrected = self._correct(text)
            if corrected:
                return replace(self.find(corrected), read_as=corrected)
        return found

    def _correct(self, text: str) -> str:
        """Return a name with its misspelt family put right, or an empty text where no family is spelt like it."""
        import difflib  # only a mistake needs it

        families = {family for name in self._names.values() if (family := _family(name.words))}
        for word in re.findall(r"[a-z]{3,}", text.lower()):
            if word in OTHER_FAMILIES:
                return ""
            close = difflib.get_close_matches(word, families, n=1, cutoff=MISSPELT)
            if close:
                return text.lower().replace(word, close[0], 1)
        return ""

    def _find_by_name(self, asked: ModelName) -> ModelMatch:
        for same in (_same_words, _begins_alike, _has_tokens):
            stems = [stem for stem, name in self._names.items() if same(asked, name)]
            if asked.size is None:
                exact = [stem for stem in stems if self._names[stem].size is None]
                stems = exact if exact and same is _same_words else stems
            else:
                stems = [stem for stem in stems if self._same_size(asked, stem)]
            if stems:
                stems.sort(key=lambda stem: (len(self._names[stem].words), self._names[stem].size or 0.0, stem))
                several = len({(self._names[stem].words, self._names[stem].size) for stem in stems}) > 1
                unsure = several and (asked.size is None or same is _has_tokens)
                return ModelMatch(kind=MatchKind.MANY if unsure else MatchKind.EXACT, models=tuple(stems), asked=asked)
        return ModelMatch(kind=MatchKind.NEAREST, models=self._nearest(asked), asked=asked)

    def _same_size(self, asked: ModelName, stem: str) -> bool:
        name = self._names[stem]
        if name.size is None:
            return self._family_sizes_unknown(stem)
        if asked.size is None or not math.isclose(asked.size, name.size, rel_tol=0.21 if asked.size < 1 else 0.02):
            return False
        return asked.active is None or name.active is None or math.isclose(asked.active, name.active)

    def _family_sizes_unknown(self, stem: str) -> bool:
        words = self._names[stem].words
        return all(name.size is None for name in self._names.values() if name.words == words)

    def _nearest(self, asked: ModelName) -> tuple[str, ...]:
        """Return stems of the same family, closest in size and version first; empty where no family fits."""
        family = _family(asked.words)
        near = [stem for stem, name in self._names.items() if family and _family(name.words) == family]
        return tuple(sorted(near, key=lambda stem: (*self._distance(asked, stem), stem)))

    def _distance(self, asked: ModelName, stem: str) -> tuple[float, ...]:
        """Return (log size ratio + 0.3 x version difference, other words, length); an ordering, not a measure of anything."""
        name = self._names[stem]
        size = abs(math.log(asked.size / name.size)) if asked.size and name.size else 0.7
        versions = _version(asked.words), _version(name.words)
        version = abs(versions[0] - versions[1]) if None not in versions else 0.5  # type: ignore[operator]
        other = {token for token in name.tokens ^ asked.tokens if token.isalpha()}
        return (round(size + 0.3 * version + 0.2 * len(other), 3), float(len(other)), float(len(stem)))

    def nearest_by_size(self, size: float, *, moe: bool = False, modality: str = "text") -> tuple[str, ...]:
        """Return stems of one modality by closeness of total parameters (billions), dense or mixture of experts.

        Sizes within a fifth of each other count as equal; among them the families of upstream's quick reference come first.
        """

        def distance(stem: str) -> tuple[float, ...]:
            ratio = abs(math.log(size / (self._names[stem].size or size)))
            return (float(int(ratio / 0.2)), float(_preference(stem)), ratio)

        fitting = [
            stem
            for stem, name in self._names.items()
            if name.size and self.is_moe(stem) == moe and self.of_model(stem)[0].modality == modality
        ]
        return tuple(sorted(fitting, key=lambda stem: (*distance(stem), stem)))

    def is_moe(self, stem: str) -> bool:
        """Return whether a model has experts, by its name or because a recipe of it splits them."""
        split = any(item.layout is not None and item.layout.ep > 1 for item in self.of_model(stem))
        return self._names[stem].active is not None or split

    def size_of(self, stem: str) -> float | None:
        """Return the parameters in a stem's name (billions), or None where it has none."""
        return self._names[stem].size


def _same_words(asked: ModelName, name: ModelName) -> bool:
    return asked.words == name.words


def _begins_alike(asked: ModelName, name: ModelName) -> bool:
    return bool(asked.words) and name.words.startswith(asked.words) and not name.words[len(asked.words) :][:1].isdigit()


def _has_tokens(asked: ModelName, name: ModelName) -> bool:
    return bool(asked.tokens) and any(token.isalpha() for token in asked.tokens) and asked.tokens <= name.tokens


def _family(words: str) -> str:
    match = re.match(r"[a-z]+", words)
    return match[0] if match else ""


def _version(words: str) -> float | None:
    """Return the first number of a name as a version: `llama31` is 3.1."""
    match = re.search(r"\d+", words)
    return float(f"{match[0][0]}.{match[0][1:] or 0}") if match else None


def _preference(stem: str) -> int:
    """Families that upstream's quick reference offers first."""
    order = ("llama3", "qwen3", "llama31", "qwen25")
    return next((index for index, prefix in enumerate(order) if stem.startswith(prefix + "_")), len(order))
