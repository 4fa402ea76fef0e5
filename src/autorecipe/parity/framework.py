"""Which program wrote a text log, and what its header states.

A program is recognised by what it says about itself first, then by what only it prints, then by the form of its time stamps:
newer Megatron-LM prints microseconds, Bridge prints seconds.
"""

from __future__ import annotations

import re
import shlex

from autorecipe.record import dataclass, field
from autorecipe.schema.parity import Framework, Precision

_SIGNS: tuple[tuple[Framework, re.Pattern[str], str], ...] = (
    (
        Framework.AUTORECIPE,
        re.compile(r"^[#\s]*(source: )?autorecipe\b|\bautorecipe [\d.]+, engine core\b", re.MULTILINE),
        "its header names autorecipe",
    ),
    (Framework.BRIDGE, re.compile(r"megatron[ ._-]bridge", re.IGNORECASE), "its header names Megatron Bridge"),
    (
        Framework.BRIDGE,
        re.compile(r"^\W*((Final )?Task Configuration|Configuration Summary \(Non-Default)", re.MULTILINE),
        "it prints Bridge's configuration",
    ),
    (Framework.MEGATRON_LM, re.compile(r"\bMegatron-LM\b|pretrain_gpt\.py"), "its header names Megatron-LM"),
    (Framework.MEGATRON_LM, re.compile(r"-{8,} arguments -{8,}"), "it prints Megatron-LM's argument table"),
    (Framework.MEGATRON_LM, re.compile(r"^#?\s*args: --", re.MULTILINE), "its header holds Megatron-LM options"),
)
_STAMP = re.compile(r"\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?P<fraction>\.\d+)?\]")
_DUMP_LINE = re.compile(r"^\s*(?:\[?(?:default|rank)?\d*\]?:?\s*)?(?P<name>[a-z][a-z0-9_]+) \.{3,} ?(?P<value>.*?)\s*$")
_SECTIONS = (
    "model|train|validation|optimizer|scheduler|ddp|dataset|dist|rng|logger|checkpoint|tokenizer|peft|comm_overlap|mixed_precision"
    "|profiling|engine"
)
_OVERRIDE = re.compile(rf"(?<![\w.])(?P<name>(?:{_SECTIONS})(?:\.[a-z0-9_]+)+)=(?P<value>\S+)")
_SECTION_HEAD = re.compile(rf"^\[(?P<section>{_SECTIONS})\](?:\s+Non-default values.*)?:\s*$")
_SECTION_LINE = re.compile(r"^  (?P<name>[a-z][a-z0-9_]*): (?P<value>.*?)(?:  \(Mcore default: .*\))?\s*$")
_PARAMETERS = re.compile(r"number of parameters on[^:]*:\s*(\d+)")
_BODY_START = re.compile(r"iteration\s+\d+\s*/\s*\d+\s*\|")


@dataclass(frozen=True, kw_only=True)
class Header:
    """What stands before the first iteration of a text log.

    Attributes:
        framework: program that wrote the log.
        reason: what shows it.
        facts: settings by the name the log uses, as text. Megatron-LM options are given by destination (`adam_beta2`).
        precision: arithmetic, or None where the header does not say.
        num_parameters: parameters of the reporting rank, or None.
        fine_timestamps: whether iteration lines carry microseconds.
    """

    framework: Framework
    reason: str
    facts: dict[str, str] = field(default_factory=dict)
    precision: Precision | None = None
    num_parameters: int | None = None
    fine_timestamps: bool = False


def read_header(text: str) -> Header:
    """Recognise the program behind a log and read what its header states.

    Args:
        text: the whole log, without escape sequences.
    """
    body = _BODY_START.search(text)
    line_start = text.rfind("\n", 0, body.start()) + 1 if body else len(text)
    head = text[:line_start]
    stamp = _STAMP.search(text[line_start : line_start + 400]) if body else None
    fine = bool(stamp and stamp["fraction"])
    framework, reason = _recognise(head, has_stamp=stamp is not None, fine=fine)
    facts = _read_facts(head)
    parameters = _PARAMETERS.search(text)
    return Header(
        framework=framework,
        reason=reason,
        facts=facts,
        precision=_precision_of(facts, framework, head),
        num_parameters=int(parameters[1]) if parameters else None,
        fine_timestamps=fine,
    )


def _recognise(head: str, *, has_stamp: bool, fine: bool) -> tuple[Framework, str]:
    for framework, pattern, reason in _SIGNS:
        if pattern.search(head):
            return framework, reason
    if has_stamp and fine:
        return Framework.MEGATRON_LM, "its time stamps carry microseconds, as newer Megatron-LM prints them"
    if has_stamp:
        return Framework.BRIDGE, "its time stamps carry whole seconds, as Megatron Bridge prints them"
    return Framework.UNKNOWN, "nothing in it names a program"


def _read_facts(head: str) -> dict[str, str]:
    facts: dict[str, str] = {}
    section = ""
    for line in head.splitlines():
        opened = _SECTION_HEAD.match(line)
        if opened:
            section = opened["section"]
            continue
        entry = _SECTION_LINE.match(line) if section else None
        if entry:
            facts[f"{section}.{entry['name']}"] = entry["value"].strip("'")
            continue
        section = ""
        dumped = _DUMP_LINE.match(line)
        if dumped:
            facts[dumped["name"]] = dumped["value"]
            continue
        if " --" in line or line.lstrip("# ").startswith("--"):
            facts.update(_read_flags(line))
        for override in _OVERRIDE.finditer(line):
            facts[override["name"]] = override["value"]
    return facts


def _read_flags(line: str) -> dict[str, str]:
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    facts: dict[str, str] = {}
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not re.fullmatch(r"--[a-z][a-z0-9_-]*(=.*)?", word):
            continue
        name, separator, value = word[2:].partition("=")
        values = [value] if separator else []
        while not separator and position < len(words) and not words[position].startswith("--"):
            values.append(words[position])
            position += 1
        facts[name.replace("-", "_")] = " ".join(values) if values else "True"
    return facts


def _precision_of(facts: dict[str, str], framework: Framework, head: str) -> Precision | None:
    def on(name: str) -> bool:
        return facts.get(name, "").lower() == "true"

    if facts.get("fp8", facts.get("fp8_format", "None")) not in ("None", "False", "null", ""):
        return Precision.FP8
    mixed = facts.get("mixed_precision", "") or "".join(re.findall(r"(?<![\w.])mixed_precision=(\S+)", head))
    for name, precision in (("fp8", Precision.FP8), ("bf16", Precision.BF16), ("fp16", Precision.FP16), ("fp32", Precision.FP32)):
        if name in mixed:
            return precision
        if on(name) or on(f"model.{name}"):
            return precision
    is_full_table = framework is Framework.MEGATRON_LM and ("micro_batch_size" in facts or "train_iters" in facts)
    return Precision.FP32 if is_full_table else None
