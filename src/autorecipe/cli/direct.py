"""The options of `recommend`, and a reader of its plain command lines.

Importing click takes as long as half an answer. A line in which every option is known, spelled out and given a legal value needs
none of it; `read_directly` reads such lines alone. Help, mistakes, completion and unusual output are left to click, which reads
the same table (a test holds both readers to the same results).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from autorecipe.record import dataclass

GOALS = ("pretrain", "sft", "peft", "lora", "dora", "benchmark")


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        flag: as typed, such as `--gpus`.
        help: what it says.
        metavar: name of its value in help; empty for a choice or a flag.
        choices: legal values; empty for any.
        is_count: whether the value is a whole number above zero.
        is_flag: whether it has no value.
        default: value when not given.
        name: keyword of the function that answers; empty for the flag's own name.
    """

    flag: str
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    is_count: bool = False
    is_flag: bool = False
    default: str | None = None
    name: str = ""

    @property
    def keyword(self) -> str:
        """Keyword of the function that answers."""
        return self.name or self.flag.removeprefix("--").replace("-", "_")


OPTIONS = (
    Option("--model", "Model name, Hugging Face id, recipe name, or path of a config.json.", "NAME"),
    Option("--gpus", "GPUs in total.", "N", is_count=True),
    Option("--gpu", "GPU type, such as h100 or gb200.", "TYPE"),
    Option("--goal", "What the run is for.", choices=GOALS),
    Option("--seq-length", "Tokens per sample.", "N", is_count=True),
    Option("--nodes", "Hosts.", "N", is_count=True),
    Option("--gpus-per-node", "GPUs of each host.", "N", is_count=True),
    Option("--dataset", "Dataset preset, such as mock, squad or tulu3.", "PRESET"),
    Option("--precision", "Precision of a benchmark recipe: bf16, fp8cs, fp8mx or nvfp4.", "NAME"),
    Option("--first-run", "A first run that works: the smoke test of Megatron Bridge.", is_flag=True),
    Option("--bridge", "Megatron Bridge release of the catalog; the newest by default.", "RELEASE", name="release"),
    Option("--lang", "Language of the answer.", choices=("en", "ja"), default="en"),
    Option("--brief", "Only summary, command, overrides, check and checklist.", is_flag=True),
    Option(
        "--format",
        "Text for people, JSON for programs; both on stdout.",
        choices=("text", "json"),
        default="text",
        name="output_format",
    ),
)


def read_directly(words: Sequence[str]) -> dict[str, Any] | None:
    """Read the words after `recommend`.

    Returns:
        keywords of `reply.reply`, or None where click must read the line.
    """
    if not words or "_AUTORECIPE_COMPLETE" in os.environ or "utf" not in (sys.stdout.encoding or "").lower():
        return None
    by_flag = {option.flag: option for option in OPTIONS}
    values: dict[str, Any] = {option.keyword: False if option.is_flag else option.default for option in OPTIONS}
    question: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            question.append(word)
            continue
        flag, equals, text = word.partition("=")
        option = by_flag.get(flag)
        if option is None or (option.is_flag and equals):
            return None
        value = True if option.is_flag else text if equals else next(rest, None)
        if not option.is_flag and not _is_legal(value, option):
            return None
        values[option.keyword] = int(value) if option.is_count and isinstance(value, str) else value
    return {"question": tuple(question), **values}


def _is_legal(value: object, option: Option) -> bool:
    if not isinstance(value, str) or (value.startswith("-") and not value[1:].isalnum()):
        return False
    if option.is_count:
        return value.isascii() and value.isdigit() and len(value) < 20 and int(value) > 0
    return value in option.choices if option.choices else True
