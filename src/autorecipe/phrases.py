"""Say a finished sentence in another language: find the template that it was written from, and fill the other one.

A phrase is a pair of templates. `{name}` in the first stands for any text (the same text where a name comes twice); in the second
`{name}` puts it back as it was, `{name:say}` says it by phrases for parts, `{name:each}` says each part of a list joined by `; `,
`{name:list}` joins a list with `、`. What no phrase knows inside a sentence is quoted, never dropped. Start at `say`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

Phrase = tuple[str, str]
"""A sentence template, and the same in the other language."""

_FIELD = re.compile(r"\{(\w+)(?::(\w+))?\}")


def say(text: str, phrases: Sequence[Phrase], parts: Sequence[Phrase] = ()) -> str | None:
    """Say a sentence by the first phrase that fits, or return None.

    Args:
        text: whole sentence.
        phrases: tried in order, so that the longer of two alike comes first.
        parts: phrases for what stands inside a sentence, and never alone.
    """
    for template, other in phrases:
        match = _pattern(template).fullmatch(text)
        if match is not None:
            return _fill(other, match.groupdict(), parts)
    return None


def quote(text: str, phrases: Sequence[Phrase], parts: Sequence[Phrase] = ()) -> str:
    """Say a text, or quote it as it is where no phrase fits."""
    said = say(text, phrases, parts)
    return f"「{text}」" if said is None else said


@lru_cache(maxsize=1024)
def _pattern(template: str) -> re.Pattern[str]:
    parts, end, seen = [], 0, set()
    for field in _FIELD.finditer(template):
        parts.append(re.escape(template[end : field.start()]))
        name = field[1]
        parts.append(f"(?P={name})" if name in seen else f"(?P<{name}>.+?)")
        seen.add(name)
        end = field.end()
    return re.compile("".join(parts) + re.escape(template[end:]), re.DOTALL)


def _fill(template: str, values: dict[str, str], parts: Sequence[Phrase]) -> str:
    def fill(field: re.Match[str]) -> str:
        value, form = values[field[1]], field[2]
        if form == "say":
            return quote(value, parts, parts)
        if form == "each":
            return "; ".join(quote(part, parts, parts) for part in value.split("; "))
        if form == "list":
            return "、".join(re.split(r", | and ", value))
        return value

    return _FIELD.sub(fill, template)
