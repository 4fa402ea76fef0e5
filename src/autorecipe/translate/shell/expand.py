"""Giving words their values: variables, arrays, defaults, removals and replacements, arithmetic; splitting at blanks."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

from autorecipe.translate.shell.arithmetic import evaluate
from autorecipe.translate.shell.lexer import Segment, Word, split_shell
from autorecipe.translate.shell.state import Piece, State

_ALL_WORDS = re.compile(r"\w+\[[@*]\]|@")
_VARIABLE = re.compile(
    r"(?P<length>#)?(?P<name>\w+|[@*#?!])(?:\[(?P<index>[@*]|-?\w+)\])?"
    r"(?:(?P<operator>:?[-=+?]|%%?|##?|//?|\^\^?|,,?|:)(?P<word>.*))?",
    re.DOTALL,
)


def expand_word(word: Word, state: State, *, report: bool = True) -> list[Piece]:
    """Expand a word into fields: unquoted values are split at blanks, `"${NAME[@]}"` gives the array's fields.

    Args:
        word: from the lexer.
        state: what is known.
        report: whether what is not known is noted.
    """
    fields: list[Piece] = []
    current: str | None = None
    for segment in word.segments:
        name = segment.text
        pieces = state.pieces_of(name.split("[")[0]) if segment.kind == "variable" and _ALL_WORDS.fullmatch(name) else None
        if pieces is not None:
            if not segment.quoted:
                pieces = [Piece(text, piece.line) for piece in pieces for text in split_blanks(piece.text)]
            if current:
                fields.append(Piece(current, word.line))
            current = None
            fields += pieces
            continue
        text, known = expand_segment(segment, state, report=report)
        if segment.quoted or segment.kind == "text" or (not known and segment.kind != "variable"):
            current = (current or "") + text
            continue
        parts = split_blanks(text)
        if text[:1].isspace() and current:
            fields.append(Piece(current, word.line))
            current = None
        for position, part in enumerate(parts):
            if position:
                fields.append(Piece(current or "", word.line))
                current = None
            current = (current or "") + part
        if text[-1:].isspace() and current is not None:
            fields.append(Piece(current, word.line))
            current = None
    if current is not None:
        fields.append(Piece(current, word.line))
    return fields


def split_blanks(text: str) -> list[str]:
    """Split a value at blanks; what is not known in it (`${1}`, `$(date +%F)`) stays whole."""
    fields: list[str] = []
    current = ""
    depth = 0
    for position, char in enumerate(text):
        opens = char in "({" and (depth > 0 or text[position - 1 : position] == "$")
        depth += opens - (char in ")}" and depth > 0)
        if char.isspace() and depth == 0:
            fields += [current] if current else []
            current = ""
        else:
            current += char
    return [*fields, current] if current else fields


def expand_text(word: Word, state: State, *, report: bool = True) -> tuple[str, bool]:
    """Expand a word without splitting it, as an assignment's value or one side of a test.

    Returns:
        its text, and whether all of it is known.
    """
    parts = [expand_segment(segment, state, report=report) for segment in word.segments]
    return "".join(text for text, _ in parts), all(known for _, known in parts)


def expand_segment(segment: Segment, state: State, *, report: bool) -> tuple[str, bool]:
    """Return the text of a segment and whether it is fully known."""
    if segment.kind == "text":
        return segment.text, True
    if segment.kind == "arithmetic":
        value = evaluate(segment.text, state.number)
        if value is not None:
            return str(value), True
        return _keep(f"$(({segment.text}))", state, report)
    if segment.kind == "command":
        return _keep(f"$({segment.text})", state, report)
    return _expand_variable(segment.text, state, report=report)


def _keep(text: str, state: State, report: bool) -> tuple[str, bool]:
    if report:
        state.report(f"{text} is known only when the script runs")
    return text, False


def _expand_variable(text: str, state: State, *, report: bool) -> tuple[str, bool]:
    found = _VARIABLE.fullmatch(text)
    if found is None:
        return _keep(f"${{{text}}}", state, report)
    name, operator, argument = found["name"], found["operator"] or "", found["word"] or ""
    value = _value(name, found["index"], state)
    if found["length"]:
        return _length(text, name, found["index"], value, state, report)
    if operator.strip(":") in ("-", "=", "+") and operator != ":":
        return _default(name, operator, argument, value, state, report)
    if value is None or (operator.endswith("?") and value == ""):
        return _keep(f"${{{text}}}", state, report)
    if not operator or operator.endswith("?"):
        return value, "$" not in value
    changed = _change(value, operator, _inner(argument, state, report=report), state)
    return (changed, "$" not in changed) if changed is not None and "$" not in value else _keep(f"${{{text}}}", state, report)


def _value(name: str, index: str | None, state: State) -> str | None:
    pieces = state.pieces_of(name)
    if pieces is None:
        return None
    if index is None or index in ("@", "*"):
        joined = index is not None or name not in state.arrays
        return " ".join(piece.text for piece in pieces) if joined else pieces[0].text if pieces else ""
    position = int(index) if index.lstrip("-").isdigit() else state.number(index)
    if position is None:
        return None
    return pieces[position].text if -len(pieces) <= position < len(pieces) else ""


def _length(text: str, name: str, index: str | None, value: str | None, state: State, report: bool) -> tuple[str, bool]:
    if value is None:
        return _keep(f"${{{text}}}", state, report)
    return str(len(state.pieces_of(name) or ()) if index in ("@", "*") else len(value)), True


def _default(name: str, operator: str, argument: str, value: str | None, state: State, report: bool) -> tuple[str, bool]:
    is_missing = value is None or (operator.startswith(":") and value == "")
    if operator.endswith("+"):
        if is_missing:
            return "", True
        chosen = _inner(argument, state, report=report)
        return chosen, "$" not in chosen
    if is_missing:
        value = _inner(argument, state, report=report)
        if operator.endswith("="):
            state.variables[name] = [Piece(value, 0)]
    assert value is not None
    return value, "$" not in value


def _inner(text: str, state: State, *, report: bool) -> str:
    """Expand the word inside `${NAME:-word}`."""
    commands = split_shell(text) if text else []
    words = [piece.text for command in commands for item in command.words for piece in expand_word(item, state, report=report)]
    return " ".join(words)


def _change(value: str, operator: str, argument: str, state: State) -> str | None:
    """Apply a removal, replacement, change of case or cut; None where it is not understood."""
    if operator in ("#", "##", "%", "%%"):
        return _remove(value, argument, from_start=operator[0] == "#", longest=len(operator) == 2)
    if operator in ("/", "//"):
        pattern, _, replacement = argument.partition("/")
        compiled = _compile(pattern)
        return None if compiled is None else re.sub(compiled, lambda _: replacement, value, count=0 if operator == "//" else 1)
    case: dict[str, Callable[[str], str]] = {
        "^^": str.upper,
        ",,": str.lower,
        "^": lambda text: text[:1].upper() + text[1:],
        ",": lambda text: text[:1].lower() + text[1:],
    }
    if operator in case:
        return case[operator](value) if not argument else None
    bounds = [evaluate(part, state.number) for part in argument.split(":")]
    if operator == ":" and bounds and None not in bounds and len(bounds) <= 2:
        start = bounds[0] or 0
        start = max(0, len(value) + start) if start < 0 else start
        length = bounds[1] if len(bounds) == 2 else None
        return value[start:] if length is None else value[start : start + length] if length >= 0 else value[start:length]
    return None


def _compile(pattern: str) -> re.Pattern[str] | None:
    return re.compile(fnmatch.translate(pattern).replace(r"\Z", "").replace(r"\z", "")) if pattern else None


def _remove(value: str, pattern: str, *, from_start: bool, longest: bool) -> str:
    lengths = range(len(value) + 1)
    for length in reversed(lengths) if longest else lengths:
        part = value[:length] if from_start else value[len(value) - length :]
        if fnmatch.fnmatchcase(part, pattern):
            return value[length:] if from_start else value[: len(value) - length]
    return value
