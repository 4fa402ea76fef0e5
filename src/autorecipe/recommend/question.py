"""Read a question, in English or Japanese, without a model or a network.

Each fact has its own reader that removes what it has read, so that `8` of "8B" is never taken for a GPU count. What stays is the
model's name. Leaves out: whether the model exists (see `models`). Start at `parse_question`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence

from autorecipe.errors import Problem, UsageError, near_misses, unknown_name
from autorecipe.recommend import vocabulary
from autorecipe.record import dataclass, field, field_names, replace
from autorecipe.schema.recipe import Mode
from autorecipe.schema.recommendation import Question, Topic

_NUMBER = r"(?:\d+|" + "|".join(sorted(map(re.escape, vocabulary.NUMBER_WORDS), key=len, reverse=True)) + ")"
_COUNTERS = "枚|台|基|個|つ"
_TIMES = r"\s*(?:[x×*]|個の|枚の|台の|基の|の|を|が|は|で)?\s*"
_NODES = r"(?:nodes?|hosts?|servers?|machines?|ノード|サーバー?)"
_NODE_WORDS = ("node", "host", "server", "machine", "ノード", "サーバ")
_EACH = r"(?:each|per node|a node|/ ?node|ずつ)"


@dataclass
class _Reading:
    """Text that is being used up, and what has been found."""

    text: str
    facts: dict[str, object] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def take(self, pattern: str) -> re.Match[str] | None:
        """Return the first match that is not negated, and blank it out; negated ones are blanked out with their negation."""
        while match := re.search(pattern, self.text):
            before, after = self.text[: match.start()], self.text[match.end() :]
            negated_before = re.search(vocabulary.NEGATION, before)
            negated_after = re.match(vocabulary.NEGATION_AFTER, after)
            if negated_before:
                before = before[: negated_before.start()]
            if negated_after:
                after = after[negated_after.end() :]
            self.text = before + "  " + after
            if not negated_before and not negated_after:
                return match
        return None

    def has(self, words: Iterable[str]) -> bool:
        """Return whether any of some literal words is in the text: cheaper than compiling patterns that need one of them."""
        return any(word in self.text for word in words)

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
    parts = re.split(r"[;；\n]+", text)
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
    folded = unicodedata.normalize("NFKC", text)
    reading = _Reading(text=_lower_keep_paths(folded))
    _read_model_reference(reading, folded, recipes)
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
    return Question(text=text, **reading.facts)  # type: ignore[arg-type]


def merge_options(question: Question, options: Mapping[str, object]) -> tuple[Question, tuple[tuple[str, object, object], ...]]:
    """Let options win over what was read from text.

    Returns:
        the merged question, and (name, value in the text, value of the option) for each value that an option replaced.
    """
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    current = {name: getattr(question, name) for name in field_names(question) or ()}
    replaced = tuple(
        (name, current[name], value)
        for name, value in given.items()
        if current[name] not in (None, False, value) and name in OPTIONS
    )
    return replace(question, **given), replaced  # type: ignore[arg-type]


def check_question(question: Question, *, presets: Sequence[str]) -> None:
    """Refuse a question whose parts contradict each other.

    Raises:
        UsageError: naming every contradiction.
    """
    problems = []
    if question.dataset is not None and question.dataset not in presets:
        problems.append(unknown_name("dataset preset", question.dataset, presets, hint=f"presets: {', '.join(presets)}"))
    if question.num_nodes and question.gpus_per_node and question.num_gpus:
        product = question.num_nodes * question.gpus_per_node
        if product != question.num_gpus:
            problems.append(
                Problem(
                    code="ambiguous-question",
                    path="num_gpus",
                    message=f"{question.num_nodes} hosts x {question.gpus_per_node} GPUs are {product}, not {question.num_gpus}",
                    hint="give two of --nodes, --gpus-per-node and --gpus",
                )
            )
    elif question.num_gpus and (question.num_nodes or question.gpus_per_node):
        part = question.num_nodes or question.gpus_per_node or 1
        if question.num_gpus % part:
            word = "hosts" if question.num_nodes else "GPUs per host"
            problems.append(
                Problem(
                    code="ambiguous-question",
                    path="num_gpus",
                    message=f"{question.num_gpus} GPUs do not divide into {part} {word}",
                    hint="give --gpus as a multiple of --nodes and of --gpus-per-node",
                )
            )
    if question.benchmark and question.adapter == "dora":
        problems.append(
            Problem(
                code="BR-PEFT-05",
                path="--goal dora",
                message="benchmark PEFT recipes are fixed LoRA; DoRA cannot be benchmarked with them",
                hint="ask for --goal dora without a benchmark to get the library recipe, which takes DoRA",
            )
        )
    if problems:
        raise UsageError(problems)


def _lower_keep_paths(text: str) -> str:
    return re.sub(r"\s+", " ", text).lower()


def _read_model_reference(reading: _Reading, original: str, recipes: Callable[[str], bool]) -> None:
    """Read what names a model beyond doubt: a recipe, a Hugging Face id, a path of a configuration."""
    for word in re.findall(r"[A-Za-z0-9_./~:@-]+", original):
        word = word.rstrip(".:,")
        is_path = word.endswith(".json") or word.startswith(("/", "./", "../", "~/"))
        is_id = re.fullmatch(r"[A-Za-z][\w.-]*/[\w.-]*[A-Za-z][\w.-]*", word) is not None and not re.search(
            r"^(?:sft|lora|dora|peft|pretrain|tokens?|and|tp|pp|cp|ep)/|/(?:sft|lora|dora|peft|s|sec|gpu|node)$", word.lower()
        )
        if recipes(word) or is_path or is_id:
            reading.facts["model"] = word
            reading.text = reading.text.replace(word.lower(), " ", 1)
            return


def _read_first_run(reading: _Reading) -> None:
    while reading.has(vocabulary.FIRST_RUN_WORDS) and reading.take(vocabulary.FIRST_RUN_PATTERN):
        reading.facts["first_run"] = True


def _read_gpus(reading: _Reading, gpus: tuple[str, ...]) -> None:
    """Read GPU types with the count beside them: `8x H100`, `H100 x 8`, `16 H100s`, `H100 を 8 枚`, `one h100`."""
    names = "|".join(sorted(map(re.escape, gpus), key=len, reverse=True))
    kind = rf"(?P<gpu>{names})(?:[- ]?(?:sxm5?|pcie|nvl\d*|hgx|dgx|superpods?))?(?:[- ]?\d+ ?gi?b)?"
    head = r"(?:nvidia\s*)?(?:dgx |hgx )?"
    tail = r"(?:\s*(?:tensor core )?gpus?)?"
    patterns = (
        rf"(?<![\w.-])(?P<nodes>{_NUMBER})\s*[x×*]\s*(?P<count>\d+)\s*(?:[x×*]\s*)?{head}{kind}s?(?![a-z0-9]){tail}",
        rf"(?<![\w.-])(?P<count>{_NUMBER})\s*(?:[x×*]|枚の|台の|基の|個の)?\s*{head}{kind}s?(?![a-z0-9]){tail}(?:\s*{_EACH})?",
        rf"(?<![a-z0-9]){head}{kind}s?(?![a-z0-9])\s*(?:gpu)?s?{_TIMES}(?P<count>{_NUMBER})(?:\s*(?:{_COUNTERS})|(?![\w.]))(?:ずつ)?",
        rf"(?<![a-z0-9]){head}{kind}s?(?![a-z0-9]){tail}",
    )
    for pattern in patterns:
        while reading.has(gpus) and (match := reading.take(pattern)) is not None:
            reading.note("gpu", match["gpu"])
            found = match.groupdict()
            if found.get("nodes"):
                reading.note("num_nodes", _number(found["nodes"]))
                reading.note("gpus_per_node", _number(found["count"]))
            elif found.get("count"):
                each = re.search(rf"{_EACH}$", match.group(0)) or re.search(
                    rf"{_NODES}\s*(?:of|with|[x×*]|、|に|で)?\s*$", reading.text[: match.start()]
                )
                reading.note("gpus_per_node" if each else "num_gpus", _number(found["count"]))
    if "gpu" not in reading.facts and (match := reading.take(rf"(?<![a-z0-9])(?:{vocabulary.OTHER_GPUS})s?(?![a-z0-9])")):
        close = near_misses(match.group(0), gpus)
        reading.problems.append(
            Problem(
                code="unknown-gpu",
                path="gpu",
                message=f"no facts about GPU type {match.group(0)!r}; known are {', '.join(gpus)}",
                hint=f"use --gpu {close[0] if close else 'TYPE'} with the closest type in memory and generation",
            )
        )


def _read_nodes_and_counts(reading: _Reading) -> None:
    """Read `2 nodes of 8`, `16 GPUs`, `GPU 16 台`, `4 nodes`."""
    if reading.has(_NODE_WORDS):
        match = reading.take(
            rf"(?<![\w.-])(?P<nodes>{_NUMBER})\s*{_NODES}\s*(?:of|with|[x×*])\s*(?P<count>{_NUMBER})(?:\s*gpus?)?(?:\s*{_EACH})?(?![\w.])"
        )
        if match:
            reading.note("num_nodes", _number(match["nodes"]))
            reading.note("gpus_per_node", _number(match["count"]))
        if match := reading.take(rf"(?<![\w.-])(?P<nodes>{_NUMBER})\s*{_NODES}"):
            reading.note("num_nodes", _number(match["nodes"]))
    patterns = (
        (
            ("gpu",),
            rf"(?<![\w.-])(?P<count>{_NUMBER})\s*(?:[x×*]\s*)?(?:{_COUNTERS})?(?:の)?\s*gpus?(?![a-z])(?P<each>\s*{_EACH})?",
        ),
        (
            ("gpu",),
            rf"(?<![a-z])gpus?\s*[:=]?{_TIMES}(?P<count>{_NUMBER})(?:\s*(?:{_COUNTERS})|(?![\w.]))(?P<each>ずつ)?",
        ),
        (("枚", "台", "基"), r"(?<![\w.-])(?P<count>\d+)\s*(?:枚|台|基)(?P<each>ずつ)?"),
    )
    for words, pattern in patterns:
        if reading.has(words) and (match := reading.take(pattern)):
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
        (("k",), rf"(?<![\w.-])(?P<value>\d+(?:\.\d+)?)(?P<unit>k)(?![\w.])(?!{vocabulary.NOT_A_SEQUENCE})"),
    )
    for words, pattern in patterns:
        if reading.has(words) and (match := reading.take(pattern)):
            scale = {"k": 1024, "m": 1024 * 1024, None: 1}[match["unit"]]
            value = float(match["value"].replace(",", ""))
            exact = int(value) if scale != 1 and value >= 1000 else int(value * scale)
            reading.note("seq_length", exact)
            return


def _read_dataset(reading: _Reading, presets: tuple[str, ...]) -> None:
    letters = re.sub(r"[^a-z0-9]", "", reading.text)
    for preset in sorted(presets, key=len, reverse=True):
        if preset.replace("-", "") not in letters:
            continue  # most questions name no preset: do not compile a pattern for each
        spelled = re.escape(preset).replace(r"\-", "[-_ ]?")
        spelled = re.sub(r"([a-z])(\d)", r"\1[-_ ]?\2", spelled)
        if reading.take(rf"(?<![a-z0-9]){spelled}(?:[- ]?(?:data(?:set)?|データ(?:セット)?))?(?![a-z0-9])"):
            reading.note("dataset", preset)
            return
    if "mock" in presets and reading.take(r"(?:synthetic|dummy|fake|random) data|モックデータ|モック|ダミーデータ"):
        reading.note("dataset", "mock")


def _read_precision(reading: _Reading) -> None:
    match = reading.take(r"(?<![a-z0-9])(?P<name>bf16|fp8[-_ ]?(?:mx|cs|sc|ds)|mxfp8|nvfp4|fp4|fp8)(?![a-z0-9])")
    if match:
        name = re.sub(r"[-_ ]", "", match["name"])
        reading.facts["precision"] = {"mxfp8": "fp8mx", "fp4": "nvfp4", "fp8": "fp8cs"}.get(name, name)


def _read_goal(reading: _Reading) -> None:
    if reading.take(vocabulary.BENCHMARK_PATTERN):
        reading.facts["benchmark"] = True
    if match := re.search(r"(?<![a-z])q?dora(?![a-z])", reading.text):
        reading.facts["adapter"] = "dora"
    elif match := re.search(r"(?<![a-z])q?lora(?![a-z])", reading.text):
        reading.facts["adapter"] = "lora"
    found: list[tuple[Mode, str]] = []
    for mode, pattern in vocabulary.GOAL_PATTERNS:
        while match := reading.take(pattern):
            if mode not in [known for known, _ in found]:
                found.append((mode, match.group(0).strip()))
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
    if re.search(vocabulary.CORRELATION_PATTERN, reading.text):
        reading.take(vocabulary.CORRELATION_PATTERN)
        reading.facts["topic"] = Topic.CORRELATION
        return
    for topic, pattern in vocabulary.TOPIC_PATTERNS:
        if re.search(pattern, reading.text):
            reading.facts["topic"] = topic
            return


def _read_size(reading: _Reading) -> None:
    match = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)(?:\s*[-~–]\s*\d+(?:\.\d+)?)?\s*([bmt])(?![a-z0-9])", reading.text)
    if match:
        reading.facts["size"] = float(match[1]) * {"b": 1.0, "m": 1e-3, "t": 1e3}[match[2]]


_FILLER = (
    r"(?<![a-z])(?:i|we|you|my|our|your|want(?:ed)?|would|like|need|to|how|can|could|should|do|does|please|help|me|us|with|on|using|use|for|the|a|an|"
    r"of|in|at|and|or|it|is|are|have|has|got|only|just|some|real|really|what|which|recipe|recipes|recommend|train(?:ing|ed)?|run|running|model|models|"
    r"llm|llms|gpu|gpus|node|nodes|data|dataset|datasets|over|across|from|by|as|fast|best|good|full|large|small|dense|moe|context|long|"
    r"length|sequence|tokens?|single|machine|cluster|then|goal|size|type|mode|start|starting|try|first|time|bridge|megatron(?:-bridge)?|framework)(?![a-z0-9])"
)
_JAPANESE = r"[\u3040-\u30ff\u3400-\u9fff々ー、。・「」]+"


def _read_name(reading: _Reading) -> None:
    """Keep what no other reader understood, when it looks like a model's name."""
    rest = re.sub(
        vocabulary.BENCHMARK_PATTERN + "|" + "|".join(pattern for _, pattern in vocabulary.TOPIC_PATTERNS), " ", reading.text
    )
    if not rest.isascii():
        rest = re.sub(_JAPANESE, " ", rest)
    rest = re.sub(_FILLER, " ", rest)
    rest = re.sub(r"[^\w.\- ]+", " ", rest)
    rest = re.sub(r"(?<!\w)[-.]+|[-.]+(?!\w)", " ", rest)
    words = [word for word in rest.split() if not re.fullmatch(r"[x×]|\d+", word) or _follows_name(word, rest)]
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
