"""Words of a shell command: quoting, and breaking long commands over lines."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


class Expression(str):
    """A word that the shell must expand, such as `"$MASTER_ADDR:29500"`; written as it is."""


def quote_word(word: str) -> str:
    """Quote one word for a POSIX shell, unless it is an `Expression`."""
    return str(word) if isinstance(word, Expression) else shlex.quote(word)


def render_command(words: Sequence[str], *, width: int = 100, indent: str = "    ") -> str:
    """Join words into a command, broken with backslashes where it is long.

    An option stays on the line of its value, and nothing is broken inside a word.

    Args:
        words: program and arguments; `Expression`s are not quoted.
        width: longest line that is not broken (characters).
        indent: start of each further line.
    """
    quoted = [quote_word(word) for word in words]
    whole = " ".join(quoted)
    if len(whole) <= width:
        return whole
    lines: list[str] = []
    current = ""
    index = 0
    while index < len(quoted):
        group = quoted[index]
        takes_next = words[index].startswith("-") and "=" not in words[index] and index + 1 < len(quoted)
        if takes_next and not words[index + 1].startswith("-"):
            group += " " + quoted[index + 1]
            index += 1
        index += 1
        joined = f"{current} {group}" if current else group
        if current and len(joined) > width - 2:
            lines.append(current)
            current = group
        else:
            current = joined
    lines.append(current)
    return f" \\\n{indent}".join(lines)
