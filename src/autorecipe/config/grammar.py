"""The grammar of one override: `KEY=VALUE`, `+KEY=VALUE`, `++KEY=VALUE`, `~KEY`, `~KEY=VALUE`.

The grammar is Hydra's, because Megatron Bridge hands its overrides to Hydra's parser (megatron/bridge/training/utils/
omegaconf_utils.py @ 0.6.2). Importing that parser takes about 0.2 s, so plain scalars take a short path that a property
test holds to the same result. Leaves out: whether the key exists and the value fits (see `overrides`).
"""

from __future__ import annotations

import enum
import re
from typing import Any

from autorecipe.record import dataclass
from autorecipe.schema.value import FieldValue


class Operation(enum.StrEnum):
    """What an override asks for, by its prefix."""

    SET = "set"
    ADD = "add"
    FORCE_ADD = "force-add"
    DELETE = "delete"


PREFIXES = {Operation.SET: "", Operation.ADD: "+", Operation.FORCE_ADD: "++", Operation.DELETE: "~"}


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One parsed override text.

    Attributes:
        text: as typed.
        operation: by its prefix.
        key: dotted path.
        value: plain value; None also for `~KEY`.
        has_value: whether a value was written (`~KEY` has none).
    """

    text: str
    operation: Operation
    key: str
    value: FieldValue
    has_value: bool = True


class GrammarError(ValueError):
    """A text that the override grammar does not accept; the message says why."""


_KEY = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_PLAIN = rf"(\+{{0,2}})({_KEY})=(?:([A-Za-z0-9_./\-]*)|\"([A-Za-z0-9_.*|() ,\-]*)\"|\[([A-Za-z0-9_,\-]*)\])"
_INTEGER = r"-?(?:0|[1-9][0-9]*)"
_FLOAT = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE]-?[0-9]+)?|[eE]-?[0-9]+)"
_WORD = r"[A-Za-z_][A-Za-z0-9_\-]*"
_SAFE_TEXT = r"[A-Za-z_][A-Za-z0-9_\-]*|[A-Za-z0-9_.\-]*/[A-Za-z0-9_./\-]*"
_NUMBER_LIKE = r"(?i:[+-]?(?:[0-9_.]+(?:[eE][+-]?[0-9_]+)?|inf|nan))"
_KEYWORDS = {"true", "false", "null", "inf", "nan"}


def parse_assignment(text: str) -> Assignment:
    """Parse one override.

    Raises:
        GrammarError: a text outside the grammar, a sweep (`a=1,2`, `choice(...)`), or a `KEY@PACKAGE`.
    """
    return parse_plain(text) or parse_with_hydra(text)


def parse_plain(text: str) -> Assignment | None:
    """Parse an override whose value is one plain scalar, a list of words or simple quoted text; None where only the full grammar
    can say.
    """
    match = re.fullmatch(_PLAIN, text, re.ASCII)
    if match is None:
        return None
    prefix, key, raw, quoted, items = match.groups()
    operation = (Operation.SET, Operation.ADD, Operation.FORCE_ADD)[len(prefix)]
    if quoted is not None:
        return Assignment(text=text, operation=operation, key=key, value=quoted)
    if items is not None:
        words = items.split(",")
        if not all(re.fullmatch(_WORD, word, re.ASCII) and word.lower() not in _KEYWORDS for word in words):
            return None
        return Assignment(text=text, operation=operation, key=key, value=words)
    if len(raw) > 4300:  # Python's limit on the digits of an integer; the full grammar gives the error
        return None
    if raw == "":
        return Assignment(text=text, operation=operation, key=key, value="")
    value: FieldValue
    folded = raw.lower()
    if folded in ("true", "false"):
        value = folded == "true"
    elif folded == "null":
        value = None
    elif re.fullmatch(_INTEGER, raw, re.ASCII):
        value = int(raw)
    elif re.fullmatch(_FLOAT, raw, re.ASCII):
        value = float(raw)
    elif "/" in raw or (re.fullmatch(_WORD, raw, re.ASCII) and folded not in _KEYWORDS):
        value = raw
    else:
        return None
    return Assignment(text=text, operation=operation, key=key, value=value)


def parse_with_hydra(text: str) -> Assignment:
    """Parse one override with Hydra's own parser.

    Raises:
        GrammarError: as `parse_assignment`.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_override(text)
    except (HydraException, ValueError, RecursionError) as error:
        # ValueError: an integer with more digits than Python converts; RecursionError: thousands of nested brackets.
        first = str(error).strip().splitlines()
        raise GrammarError(first[0] if first else type(error).__name__) from None
    if parsed.package is not None:
        raise GrammarError("looks like a config group override (KEY@PACKAGE=VALUE); Megatron Bridge has no config groups")
    if parsed.is_sweep_override():
        raise GrammarError("is a sweep over several values; give one value, and quote text that contains a comma")
    value = parsed.value()
    plain = _to_plain(value)
    operation = Operation.SET
    if parsed.is_delete():
        operation = Operation.DELETE
    elif parsed.is_force_add():
        operation = Operation.FORCE_ADD
    elif parsed.is_add():
        operation = Operation.ADD
    has_value = not parsed.is_delete() or "=" in text
    return Assignment(text=text, operation=operation, key=parsed.key_or_group, value=plain, has_value=has_value)


def _to_plain(value: Any) -> FieldValue:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _to_plain(item) for key, item in value.items()}
    raise GrammarError(f"has a value of type {type(value).__name__}, which a configuration cannot hold")


def render_value(value: FieldValue) -> str:
    """Render a value so that parsing gives it back.

    Raises:
        GrammarError: a value that the grammar cannot express.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        if re.fullmatch(_SAFE_TEXT, value, re.ASCII) and value.lower() not in _KEYWORDS:
            return value
        return _quote(value)
    if isinstance(value, list | tuple):
        return "[" + ",".join(render_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_render_key(key)}:{render_value(item)}" for key, item in value.items()) + "}"
    raise GrammarError(f"cannot write a {type(value).__name__} as an override")


def _quote(value: str) -> str:
    """Quote text: backslashes are doubled only before a quote, as the grammar un-escapes only there."""
    escaped = re.sub(r"(\\*)'", lambda match: match.group(1) * 2 + "\\'", value)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return "'" + escaped + "\\" * trailing + "'"


def _render_key(key: Any) -> str:
    text = str(key)
    is_keyword = text.strip(" \t").lower() in _KEYWORDS
    is_number = re.fullmatch(_NUMBER_LIKE, text.strip(" \t"), re.ASCII) is not None and not re.fullmatch(r"0|[1-9][0-9]*", text)
    if not is_keyword and not is_number:  # the grammar would turn these into other keys: null -> None, 1.0 -> 1.0 as a number
        if re.fullmatch(_WORD, text, re.ASCII) or re.fullmatch(r"0|[1-9][0-9]*", text):
            return text
        escaped = re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", text)
        if re.fullmatch(r"(?:[A-Za-z0-9_/\-+.$%*@?|]|\\[\\()\[\]{}:=, \t])+", escaped, re.ASCII):
            return escaped
    raise GrammarError(f"cannot write the dictionary key {text!r} as an override")
