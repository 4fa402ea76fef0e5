"""Read a question, in English or Japanese, without a model or a network.

Each fact has its own reader that removes what it has read, so that `8` of "8B" is never taken for a GPU count. What stays is the
model's name. Leaves out: whether the model exists (see `models`). Start at `parse_question`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable

from autorecipe.errors import Problem, UsageError, near_misses
from autorecipe.recommend import vocabulary
from autorecipe.recommend.asides import take_asides
from autorecipe.recommend.numerals import fold_numerals
from autorecipe.recommend.vocabulary import Wording
from autorecipe.record import dataclass, field
from autorecipe.schema.recipe import Mode
from autorecipe.schema.recommendation import Question, Topic

_WORD = r"a-z0-9_.\-一二三四五六七八九十"
"""What a number may not follow; Japanese particles may come straight before one."""

_COUNTERS = "枚|台|基|個|つ"
_TIMES = r"\s*(?:[x×*]|個の|枚の|台の|基の|の|を|が|は|で)?\s*"
_NODES = r"(?:nodes?|hosts?|servers?|machines?|ノード|サーバー?)"
_NODE_WORDS = "node host server machine ノード サーバ"
_BEFORE_EACH = rf"(?:{_NODES}\s*(?:of|with|[x×*]|、|に|で)?|各|あたり|当たり|ごとに?|毎に?)\s*(?:nvidia )?$"
_EACH = r"(?:each|per node|a node|/ ?node|ずつ)"


@dataclass
class _Reading:
    """Text that is being used up, and what has been found."""

    text: str
    facts: dict[str, object] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def find(self, wording: Wording) -> re.Match[str] | None:
        """Return the first match, or None; nothing is compiled for a text without the wording's words."""
        return re.search(wording.pattern, self.text, re.ASCII) if wording.may_match(self.text) else None

    def take(self, wording: Wording) -> re.Match[str] | None:
        """Return the first match that is not negated, and blank it out; negated ones are blanked out with their negation."""
        while match := self.find(wording):
            before, after = _Reading(self.text[: match.start()]), _Reading(self.text[match.end() :])
            negated_before, negated_after = before.find(vocabulary.NEGATION), after.find(vocabulary.NEGATION_AFTER)
            if negated_before:
                before.text = before.text[: negated_before.start()]
            if negated_after:
                after.text = after.text[negated_after.end() :]
            self.text = before.text + "  " + after.text
            if not negated_before and not negated_after:
                return match
        return None

    def drop(self, wording: Wording) -> None:
        """Blank out every match."""
        if wording.may_match(self.text):
            self.text = re.sub(wording.pattern, " ", self.text, flags=re.ASCII)

    def number(self) -> str:
        """Return the pattern of a number, with the number words that the text holds."""
        words = sorted((word for word in vocabulary.NUMBER_WORDS if word in self.text), key=len, reverse=True)
        return "(?:" + "|".join([r"\d+", *map(re.escape, words)]) + ")"

    def note(self, name: str, value: object) -> None:
        """Keep a fact; a second, different value is a problem."""
        known = self.facts.get(name)
        if known is not None and known != value:
            self.problems.append(
                Problem(
                    code="ambiguous-question",
                    path=name,
                    message=f"the question says both {_show(known)} and {_show(value)}",
                    hint=f"say one of them, or give {OPTIONS[name]}",
                )
            )
            return
        self.facts[name] = value


OPTIONS = {
    "model": "--model NAME",
    "mode": "--goal pretrain|sft|lora|dora|benchmark",
    "num_gpus": "--gpus N",
    "num_nodes": "--nodes N",
    "gpus_per_node": "--gpus-per-node N",
    "gpu": "--gpu TYPE",
    "seq_length": "--seq-length N",
    "dataset": "--dataset PRESET",
}


def split_questions(text: str) -> tuple[str, ...]:
    """Split a text that asks several things, at semicolons and line ends."""
    parts = text.replace("；", ";").replace("\n", ";").split(";")
    return tuple(part.strip() for part in parts if part.strip())


def parse_question(text: str, *, gpus: Iterable[str], presets: Iterable[str], recipes: Callable[[str], bool]) -> Question:
    """Read one question.

    Args:
        text: as typed.
        gpus: known GPU ids, such as `h100`.
        presets: known dataset presets.
        recipes: tells whether a word is an exported recipe name.

    Raises:
        UsageError: naming every contradiction, and a GPU type that is not known.
    """
    if endless := re.search(r"\d{19}", text):
        message = f"{endless[0]}... has more digits than any count, size or length"
        raise UsageError(Problem(code="bad-value", path="question", message=message, hint="write the number that was meant"))
    folded = text if text.isascii() else fold_numerals(unicodedata.normalize("NFKC", text))
    reading = _Reading(" ".join(folded.split()).lower())
    _read_model_reference(reading, folded, recipes)
    reading.text, settings, unread = take_asides(reading.text)
    _read_first_run(reading)
    _read_gpus(reading, tuple(gpus))
    _read_nodes_and_counts(reading)
    _read_sequence(reading)
    _read_dataset(reading, tuple(presets))
    _read_precision(reading)
    _read_goal(reading)
    _read_topic(reading)
    _read_size(reading)
    if "model" not in reading.facts and reading.facts.get("topic") is not Topic.CORRELATION:
        _read_name(reading)
    if reading.problems:
        raise UsageError(reading.problems)
    return Question(text=text, settings=settings, unread=unread, **reading.facts)  # type: ignore[arg-type]


def _read_model_reference(reading: _Reading, original: str, recipes: Callable[[str], bool]) -> None:
    """Read what names a model beyond doubt: a recipe, a Hugging Face id, a path of a configuration."""
    for word in re.findall(r"[A-Za-z0-9_./~:@-]+", original):
        word = word.rstrip(".:,")
        is_path = word.endswith(".json") or word.startswith(("/", "./", "../", "~/"))
        if recipes(word) or is_path or _is_hugging_face_id(word):
            reading.facts["model"] = word
            reading.text = reading.text.replace(word.lower(), " ", 1)
            return


def _is_hugging_face_id(word: str) -> bool:
    if "/" not in word or not re.fullmatch(r"[A-Za-z][\w.-]*/[\w.-]*[A-Za-z][\w.-]*", word):
        return False
    owner, _, name = word.lower().partition("/")
    is_unit = owner in ("sft", "lora", "dora", "peft", "pretrain", "token", "tokens", "and", "tp", "pp", "cp", "ep")
    return not is_unit and name not in ("sft", "lora", "dora", "peft", "s", "sec", "gpu", "node")


def _read_first_run(reading: _Reading) -> None:
    while reading.take(vocabulary.FIRST_RUN):
        reading.facts["first_run"] = True


def _read_gpus(reading: _Reading, gpus: tuple[str, ...]) -> None:
    """Read GPU types with the count beside them: `8x H100`, `H100 x 8`, `16 H100s`, `H100 を 8 枚`, `one h100`."""
    named = [gpu for gpu in gpus if gpu in reading.text]
    names, number = "|".join(sorted(map(re.escape, named), key=len, reverse=True)), reading.number()
    kind = rf"(?P<gpu>{names})(?:[- ]?(?:sxm5?|pcie|nvl\d*|hgx|dgx|superpods?))?(?:[- ]?\d+ ?gi?b)?"
    head = r"(?:nvidia\s*)?(?:dgx |hgx )?"
    tail = r"(?:\s*(?:tensor core )?gpus?)?"
    patterns = (
        rf"(?<![{_WORD}])(?P<nodes>{number})\s*[x×*]\s*(?P<count>\d+)\s*(?:[x×*]\s*)?{head}{kind}s?(?![a-z0-9]){tail}",
        rf"(?<![{_WORD}])(?P<count>{number})\s*(?:[x×*]|枚の|台の|基の|個の)?\s*{head}{kind}s?(?![a-z0-9]){tail}(?:\s*{_EACH})?",
        rf"(?<![a-z0-9]){head}{kind}s?(?![a-z0-9])\s*(?:gpu)?s?{_TIMES}(?P<count>{number})(?!\d|\s*{_NODES})"
        rf"(?:\s*(?:{_COUNTERS})|(?![\w.]))(?:ずつ)?",
        rf"(?<![a-z0-9]){head}{kind}s?(?![a-z0-9]){tail}",
    )
    for pattern in patterns if named else ():
        while (match := reading.take(Wording(pattern, " ".join(named)))) is not None:
            reading.note("gpu", match["gpu"])
            found = match.groupdict()
            if found.get("nodes"):
                reading.note("num_nodes", _number(found["nodes"]))
                reading.note("gpus_per_node", _number(found["count"]))
            elif found.get("count"):
                reading.note(_counted(match), _number(found["count"]))
    if "gpu" not in reading.facts and (match := reading.take(vocabulary.OTHER_GPUS)):
        close = near_misses(match.group(0), gpus)
        reading.problems.append(
            Problem(
                code="unknown-gpu",
                path="gpu",
                message=f"no facts about GPU type {match.group(0)!r}; known are {', '.join(gpus)}",
                hint=f"use --gpu {close[0] if close else 'TYPE'} with the closest type in memory and generation",
            )
        )


def _counted(match: re.Match[str]) -> str:
    """Return what the number beside a GPU type counts: hosts, the GPUs of a host, or all GPUs."""
    before, after = match.string[: match.start()], match.string[match.end() :]
    if re.match(rf"\s*{_NODES}", after):
        return "num_nodes"
    if re.search(rf"{_EACH}$", match.group(0)) or re.search(_BEFORE_EACH, before):
        return "gpus_per_node"
    each = re.match(rf"\s*(?:gpus?)?\s*(?:{_COUNTERS})?\s*[x×*]\s*\d+\s*{_NODES}", after)
    return "gpus_per_node" if each else "num_gpus"


def _read_nodes_and_counts(reading: _Reading) -> None:
    """Read `2 nodes of 8`, `16 GPUs`, `GPU 16 台`, `4 nodes`."""
    number = reading.number()
    nodes = rf"(?<![{_WORD}])(?P<nodes>{number})\s*{_NODES}"
    per_node = rf"(?:各(?:ノード|サーバー?)?|(?:1\s*)?{_NODES}\s*(?:あたり|当たり|ごとに?|毎に?))"
    of_each = rf"{per_node}\s*(?P<count>{number})\s*(?:gpus?|{_COUNTERS})"
    if match := reading.take(Wording(of_each, "各 あたり 当たり ごと 毎")):
        reading.note("gpus_per_node", _number(match["count"]))
    each = rf"{nodes}\s*(?:of|with|[x×*])\s*(?P<count>{number})(?:\s*(?:gpus?|{_COUNTERS}))?(?:\s*{_EACH})?(?![a-z0-9_.])"
    if match := reading.take(Wording(each, _NODE_WORDS)):
        reading.note("num_nodes", _number(match["nodes"]))
        reading.note("gpus_per_node", _number(match["count"]))
    turned = rf"(?<![\w.-])(?P<count>{number})\s*(?:gpus?|{_COUNTERS})\s*[x×*]\s*(?P<nodes>{number})\s*{_NODES}"
    if match := reading.take(Wording(turned, _NODE_WORDS)):
        reading.note("num_nodes", _number(match["nodes"]))
        reading.note("gpus_per_node", _number(match["count"]))
    if match := reading.take(Wording(nodes, _NODE_WORDS)):
        reading.note("num_nodes", _number(match["nodes"]))
    patterns = (
        (
            "gpu",
            rf"(?<![{_WORD}])(?P<count>{number})\s*(?:[x×*]\s*)?(?:{_COUNTERS})?(?:の)?\s*gpus?(?![a-z])(?P<each>\s*{_EACH})?",
        ),
        (
            "gpu",
            rf"(?<![a-z])gpus?\s*[:=]?{_TIMES}(?P<count>{number})(?:\s*(?:{_COUNTERS})|(?![\w.]))(?P<each>ずつ)?",
        ),
        ("枚 台 基", rf"(?<![{_WORD}])(?P<count>\d+)\s*(?:枚|台|基)(?P<each>ずつ)?"),
    )
    for words, pattern in patterns:
        if match := reading.take(Wording(pattern, words)):
            reading.note("gpus_per_node" if match["each"] else "num_gpus", _number(match["count"]))


def _read_sequence(reading: _Reading) -> None:
    """Read `16k context`, `128K`, `sequence length 32768`, `32768 tokens`, `1M tokens`."""
    units = vocabulary.SEQUENCE_UNITS
    named = vocabulary.SEQUENCE_WORDS
    patterns = (
        (
            named,
            rf"{units}(?:[- ]?(?:length|len|size|長))?\s*(?:of|=|:|is|は|が|を)?\s*"
            rf"(?P<value>\d[\d,]*(?:\.\d+)?)\s*(?P<unit>[km])?(?![\w.])",
        ),
        (
            named,
            rf"(?<![\w.-])(?P<value>\d[\d,]*(?:\.\d+)?)\s*(?P<unit>[km])?[- ]?{units}(?:[- ]?(?:length|len|window|長))?",
        ),
        ("k", rf"(?<![\w.-])(?P<value>\d+(?:\.\d+)?)(?P<unit>k)(?![\w.])(?!{vocabulary.NOT_A_SEQUENCE})"),
    )
    for words, pattern in patterns:
        if match := reading.take(Wording(pattern, words)):
            scale = {"k": 1024, "m": 1024 * 1024, None: 1}[match["unit"]]
            value = float(match["value"].replace(",", ""))
            exact = int(value) if scale != 1 and value >= 1000 else int(value * scale)
            reading.note("seq_length", exact)
            return


def _read_dataset(reading: _Reading, presets: tuple[str, ...]) -> None:
    letters = re.sub(r"[^a-z0-9]", "", reading.text)
    for preset in sorted(presets, key=len, reverse=True):
        if preset.replace("-", "") not in letters:
            continue  # most questions name no preset
        spelled = re.escape(preset).replace(r"\-", "[-_ ]?")
        spelled = re.sub(r"([a-z])(\d)", r"\1[-_ ]?\2", spelled)
        pattern = rf"(?<![a-z0-9]){spelled}(?:[- ]?(?:data(?:set)?|データ(?:セット)?))?(?![a-z0-9])"
        if reading.take(Wording(pattern, preset[:2])):
            reading.note("dataset", preset)
            return
    if "mock" in presets and reading.take(vocabulary.MOCK_DATA):
        reading.note("dataset", "mock")


def _read_precision(reading: _Reading) -> None:
    match = reading.take(vocabulary.PRECISION)
    if match:
        name = re.sub(r"[-_ ]", "", match["name"])
        reading.facts["precision"] = {"mxfp8": "fp8mx", "fp4": "nvfp4", "fp8": "fp8cs"}.get(name, name)


def _read_goal(reading: _Reading) -> None:
    if reading.take(vocabulary.BENCHMARK):
        reading.facts["benchmark"] = True
    adapter = next((name for name, wording in vocabulary.ADAPTERS.items() if _Reading(reading.text).take(wording)), None)
    if adapter:
        reading.facts["adapter"] = adapter
    found: list[tuple[Mode, str]] = []
    for mode, wording in vocabulary.GOALS:
        while match := reading.take(wording):
            if mode not in [known for known, _ in found]:
                found.append((mode, match.group(0).strip()))
    if not found and (match := reading.take(vocabulary.FURTHER_TRAINING)):
        found.append((Mode.SFT, match.group(0)))
    modes = [mode for mode, _ in found]
    if Mode.PEFT in modes and Mode.SFT in modes:
        modes.remove(Mode.SFT)
    if len(modes) > 1:
        words = " and ".join(repr(word) for _, word in found)
        reading.problems.append(
            Problem(
                code="ambiguous-question",
                path="mode",
                message=f"the question names two goals: {words}",
                hint=f"ask for one at a time, separated by `;`, or give {OPTIONS['mode']}",
            )
        )
    elif modes:
        reading.facts["mode"] = modes[0]


def _read_topic(reading: _Reading) -> None:
    if reading.find(vocabulary.CORRELATION):
        reading.take(vocabulary.CORRELATION)
        reading.facts["topic"] = Topic.CORRELATION
        return
    for topic, wording in vocabulary.TOPICS:
        if reading.find(wording):
            reading.facts["topic"] = topic
            return


def _read_size(reading: _Reading) -> None:
    match = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)(?:\s*[-~–]\s*\d+(?:\.\d+)?)?\s*([bmt])(?![a-z0-9])", reading.text, re.ASCII)
    if match:
        reading.facts["size"] = float(match[1]) * {"b": 1.0, "m": 1e-3, "t": 1e3}[match[2]]


_JAPANESE = r"[\u3040-\u30ff\u3400-\u9fff々ー、。・「」]+"


def _read_name(reading: _Reading) -> None:
    """Keep what no other reader understood, when it looks like a model's name."""
    for wording in (vocabulary.BENCHMARK, *(wording for _, wording in vocabulary.TOPICS)):
        reading.drop(wording)
    rest = reading.text
    if not rest.isascii():
        rest = re.sub(_JAPANESE, " ", rest)
    rest = re.sub(r"[a-z]+(?![a-z0-9])", lambda match: " " if match[0] in vocabulary.FILLERS else match[0], rest)
    rest = re.sub(r"[^\w.\- ]+", " ", rest)
    rest = re.sub(r"(?<!\w)[-.]+|[-.]+(?!\w)", " ", rest)
    words = [word for word in rest.split() if not (word.isdigit() or word in ("x", "×")) or _follows_name(word, rest)]
    name = " ".join(words).strip(" -.")
    has_letters = re.search(r"[a-z]{2}", re.sub(r"(?<![a-z])a?\d+(?:\.\d+)?[bmt](?![a-z])", " ", name))
    if name and has_letters:
        reading.facts["model"] = name


def _follows_name(number: str, text: str) -> bool:
    return re.search(rf"[a-z]\w*[ -]{number}(?!\d)", text) is not None


def _number(text: str) -> int:
    return int(text) if text.isdigit() else vocabulary.NUMBER_WORDS[text]


def _show(value: object) -> str:
    return value.value if isinstance(value, Mode) else str(value)
