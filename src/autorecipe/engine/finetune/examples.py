"""From a row of any known schema to a prompt with its completion, or to a conversation. No torch.

Source of prompts and columns: Megatron Bridge 0.6.2 data/sources/hf_adapters.py, data/conversation_processing.py.
Evidence: enforced-upstream. Start reading at `read_example`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autorecipe.engine.finetune.spec import CHAT_OVERRIDE, ChatFormat, PromptFormat

CONVERSATION_COLUMNS = ("messages", "conversation", "conversations")
_ROLES = {"human": "user", "gpt": "assistant"}


class RowError(Exception):
    """A row that cannot be read: the message says why."""


@dataclass(frozen=True, kw_only=True)
class PromptPair:
    """A prompt and the answer to it."""

    prompt: str
    completion: str


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """Messages in order.

    Attributes:
        messages: each with at least `role` and `content`.
        tools: tool descriptions for the template, or None.
    """

    messages: tuple[Mapping[str, Any], ...]
    tools: Any = field(default=None)


def read_example(row: Any, *, schema: str | None, form: PromptFormat | ChatFormat) -> PromptPair | Conversation:
    """Read one row.

    Args:
        row: what the source holds.
        schema: columns of the source; None for prompts or chats.
        form: what the run makes of rows. A pair becomes a chat of two turns where it asks for chats.

    Raises:
        RowError: naming the column that is missing or of the wrong kind.
    """
    if not isinstance(row, Mapping):
        raise RowError(f"is {_kind(row)}, not an object with columns")
    if schema is not None:
        row = SCHEMAS[schema](row)
    found = [name for name in CONVERSATION_COLUMNS if row.get(name) is not None]
    pair = _find_pair(row, form)
    if found and pair is not None:
        raise RowError(f"has both {found[0]!r} and {pair[0]!r} with {pair[1]!r}; keep one")
    if isinstance(form, ChatFormat):
        if pair is not None:
            prompt, completion = _text(row, pair[0]), _text(row, pair[1])
            return Conversation(messages=({"role": "user", "content": prompt}, {"role": "assistant", "content": completion}))
        return _read_conversation(row, found)
    if found:
        raise RowError(f"has {found[0]!r}, and the run reads prompts and completions; for chats add {CHAT_OVERRIDE}")
    if pair is None:
        missing = " and ".join(repr(name) for name in (form.prompt_column, form.completion_column) if name not in row)
        raise RowError(f"lacks {missing} (or 'prompt' and 'completion'); it has {_columns(row)}")
    return PromptPair(prompt=_text(row, pair[0]), completion=_text(row, pair[1]))


def _find_pair(row: Mapping[str, Any], form: PromptFormat | ChatFormat) -> tuple[str, str] | None:
    """Return the columns of a prompt and its answer, or None."""
    candidates = [("prompt", "completion")]
    if isinstance(form, PromptFormat):
        candidates.insert(0, (form.prompt_column, form.completion_column))
    return next((pair for pair in candidates if pair[0] in row and pair[1] in row), None)


def _read_conversation(row: Mapping[str, Any], found: Sequence[str]) -> Conversation:
    if not found:
        raise RowError(
            f"lacks {', '.join(map(repr, CONVERSATION_COLUMNS))}, or 'prompt' and 'completion'; it has {_columns(row)}"
        )
    turns = row[found[0]]
    if not isinstance(turns, Sequence) or isinstance(turns, str | bytes) or not turns:
        raise RowError(f"{found[0]!r} is {_kind(turns)}, not a list of messages")
    messages = [_read_message(turn, f"{found[0]}[{index}]") for index, turn in enumerate(turns)]
    if row.get("system") and not any(message["role"] == "system" for message in messages):
        messages.insert(0, {"role": "system", "content": _text(row, "system")})
    if not any(message["role"] == "assistant" for message in messages):
        raise RowError("has no message of the assistant, so nothing to learn")
    return Conversation(messages=tuple(messages), tools=row.get("tools") or None)


def _read_message(turn: Any, name: str) -> dict[str, Any]:
    if not isinstance(turn, Mapping):
        raise RowError(f"{name} is {_kind(turn)}, not an object")
    if "role" in turn and "content" in turn:
        role, content, rest = turn["role"], turn["content"], dict(turn)
    elif "from" in turn and "value" in turn:
        role, content, rest = turn["from"], turn["value"], {}
        role = _ROLES.get(str(role).lower(), str(role).lower())
    else:
        raise RowError(f"{name} lacks 'role' and 'content' (or 'from' and 'value'); it has {_columns(turn)}")
    if not isinstance(role, str) or not role:
        raise RowError(f"{name}.role is {_kind(role)}, not text")
    if content is None and rest.get("tool_calls"):
        content = ""
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in content]
        if None in parts:
            raise RowError(f"{name}.content holds more than text, which --engine core does not read")
        content = "".join(str(part) for part in parts)
    if not isinstance(content, str):
        raise RowError(f"{name}.content is {_kind(content)}, not text")
    return {**{key: value for key, value in rest.items() if value is not None}, "role": role, "content": content}


def _read_squad(row: Mapping[str, Any]) -> Mapping[str, Any]:
    answers = _column(row, "answers")
    texts = answers.get("text") if isinstance(answers, Mapping) else None
    if not isinstance(texts, Sequence) or isinstance(texts, str) or not texts or not isinstance(texts[0], str):
        raise RowError("'answers' holds no list of texts under 'text'")
    prompt = f"Context: {_text(row, 'context')} Question: {_text(row, 'question')} Answer:"
    return {"prompt": prompt, "completion": texts[0]}


def _read_gsm8k(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"prompt": f"Question: {_text(row, 'question')} Answer:", "completion": _text(row, "answer")}


def _read_math(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"prompt": f"Problem: {_text(row, 'problem')} Solution:", "completion": _text(row, "generated_solution")}


def _read_math_thinking(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The solution up to its last boxed result is the thought; the expected answer is the answer."""
    solution, answer = _text(row, "generated_solution"), _text(row, "expected_answer")
    last = solution.rfind(_BOX)
    thought = solution
    if last >= 0 and _closing(solution, last) is not None:
        thought = re.sub(r"\$?\s*$", "", solution[:last])
    thought = _unbox(thought.rstrip())
    reply = {"role": "assistant", "thinking": thought, "content": f"#### {answer}"}
    return {"messages": [{"role": "user", "content": _text(row, "problem")}, reply]}


_BOX = "\\boxed{"


def _closing(text: str, start: int) -> int | None:
    """Return where the boxed result that begins at `start` ends, or None where it is not closed."""
    depth, at = 1, start + len(_BOX)
    while at < len(text) and depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return None if depth else at


def _unbox(text: str) -> str:
    """Take boxed results out of their boxes, up to the first that is not closed."""
    parts, at = [], 0
    while (start := text.find(_BOX, at)) >= 0 and (end := _closing(text, start)) is not None:
        parts += [text[at:start], text[start + len(_BOX) : end - 1]]
        at = end
    return "".join([*parts, text[at:]])


SCHEMAS: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "squad": _read_squad,
    "gsm8k": _read_gsm8k,
    "openmathinstruct2": _read_math,
    "openmathinstruct2_thinking": _read_math_thinking,
}
"""Columns of a data set -> reader, by upstream's adapter names."""


def _column(row: Mapping[str, Any], name: str) -> Any:
    if name not in row:
        raise RowError(f"lacks {name!r}; it has {_columns(row)}")
    return row[name]


def _text(row: Mapping[str, Any], name: str) -> str:
    value = _column(row, name)
    if not isinstance(value, str):
        raise RowError(f"{name!r} is {_kind(value)}, not text")
    return value


def _columns(row: Mapping[str, Any]) -> str:
    names = [repr(str(name)) for name in row]
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "") if names else "no columns"


def _kind(value: Any) -> str:
    names = {"NoneType": "null", "str": "text", "dict": "an object", "list": "a list", "bool": "true or false"}
    return names.get(type(value).__name__, f"a {type(value).__name__}")
