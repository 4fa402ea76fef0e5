"""Lays a conversation out as tokens and marks the answers: by the tokenizer's chat template, or plainly where it has none.

Answers are found by rendering: an answer begins where the rendering of the turns before it, asked for an answer, ends, and
ends where the rendering up to it does. A template with `{% generation %}` marks says it itself. Start at `ChatLayout`.

Source of what is trained (answers with their end marks, never the turn openers): Megatron Bridge 0.6.2
data/conversation_processing.py. Evidence: enforced-upstream; the way to find them is this project's. On a template with marks
upstream adds the line end after ChatML's end mark, this does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autorecipe.engine.data.tokenizer import HuggingFaceTokenizer, Tokenizer
from autorecipe.engine.finetune.examples import Conversation, RowError

_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
_PLACE_HOLDER = "autorecipe-place-holder"
_REMEDY = "give a template that marks answers with {% generation %}"
_UNLEARNED_ENDS = ("<end_of_turn>\n", "<turn|>\n")
"""End marks of templates whose line end upstream takes no loss on (it does after ChatML's)."""

PLAIN_NAMES = {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Tool"}


@dataclass(frozen=True, kw_only=True)
class Laid:
    """Token ids of a conversation.

    Attributes:
        ids: all of them.
        spans: where answers begin and end in `ids`, in order.
    """

    ids: Sequence[int]
    spans: Sequence[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Question:
    """Turns that wait for an answer.

    Attributes:
        ids: all of them.
        ends: ids that end an answer: that of a document, and the mark that training taught.
    """

    ids: Sequence[int]
    ends: frozenset[int]


class ChatLayout:
    """Turns conversations into token ids with answer spans."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Choose the template.

        Args:
            tokenizer: of the run; one of `transformers` brings its own template.
        """
        self._tokenizer = tokenizer
        self._inner = tokenizer.inner if isinstance(tokenizer, HuggingFaceTokenizer) else None
        self.template: str | None = getattr(self._inner, "chat_template", None)

    @property
    def is_plain(self) -> bool:
        """Whether there is no template, so that the plain layout is used."""
        return not self.template

    def lay(self, conversation: Conversation) -> Laid:
        """Return the ids of a conversation and where its answers are.

        Raises:
            RowError: the template refuses it, or does not show where an answer begins.
        """
        if self.is_plain:
            return self._lay_plainly(conversation)
        if _GENERATION.search(self.template or ""):
            return self._lay_marked(conversation)
        text = self._render(conversation.messages, conversation, asks=False)
        spans = find_answers(conversation.messages, text, lambda turns, asks: self._render(turns, conversation, asks=asks))
        return self._cut(text, spans)

    def ask(self, conversation: Conversation) -> Question:
        """Return the ids of turns as they stand before an answer in training, and the ids that end such an answer.

        Raises:
            RowError: the template refuses the turns, or does not show where an answer begins.
        """
        held = {"role": "assistant", "content": _PLACE_HOLDER}
        laid = self.lay(Conversation(messages=(*conversation.messages, held), tools=conversation.tools))
        if not laid.spans:
            raise RowError(f"the chat template marks no answer; {_REMEDY}")
        begin, end = laid.spans[-1]
        special = set(self._inner.all_special_ids) if self._inner is not None else set()
        # What an answer ends with is its last special token; a line end may follow it.
        marks = [number for number in laid.ids[begin:end] if number in special]
        if self.is_plain or _GENERATION.search(self.template or ""):
            return Question(ids=laid.ids[:begin], ends=frozenset((self._tokenizer.eod, *marks[-1:])))
        text = self._render(conversation.messages, conversation, asks=True)
        assert self._inner is not None
        ids = self._inner(text, add_special_tokens=False)["input_ids"]
        return Question(ids=ids, ends=frozenset((self._tokenizer.eod, *marks[-1:])))

    def _render(self, messages: Sequence[Mapping[str, Any]], conversation: Conversation, *, asks: bool) -> str:
        assert self._inner is not None
        turns = [dict(message) for message in messages]
        try:
            return str(
                self._inner.apply_chat_template(turns, tokenize=False, add_generation_prompt=asks, tools=conversation.tools)
            )
        except Exception as error:  # templates are programs of their own: whatever they raise, they refuse this row
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise RowError(f"the chat template refuses it: {text}") from None

    def _cut(self, text: str, spans: Sequence[tuple[int, int]]) -> Laid:
        """Tokenize a rendering; a token belongs to the answer that it begins in."""
        assert self._inner is not None
        if not getattr(self._inner, "is_fast", False):
            raise RowError("the tokenizer does not say which characters a token covers; give one with a tokenizer.json")
        found = self._inner(text, add_special_tokens=False, return_offsets_mapping=True)
        begins = [begin for begin, _ in found["offset_mapping"]]
        cut = [(_first_at(begins, start), _first_at(begins, end)) for start, end in spans]
        return Laid(ids=found["input_ids"], spans=cut)

    def _lay_marked(self, conversation: Conversation) -> Laid:
        assert self._inner is not None
        turns = [dict(message) for message in conversation.messages]
        try:
            found = self._inner.apply_chat_template(
                turns, tokenize=True, return_dict=True, return_assistant_tokens_mask=True, tools=conversation.tools
            )
        except Exception as error:  # see `_render`
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise RowError(f"the chat template refuses it: {text}") from None
        ids, marks = found["input_ids"], [bool(mark) for mark in found["assistant_masks"]]
        edges = [index for index, mark in enumerate(marks) if mark != (marks[index - 1] if index else False)]
        edges += [len(marks)] if len(edges) % 2 else []
        return Laid(ids=ids, spans=list(zip(edges[0::2], edges[1::2], strict=True)))

    def _lay_plainly(self, conversation: Conversation) -> Laid:
        """`Name: text` a line; an answer ends with the end-of-document id."""
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        for message in conversation.messages:
            name = PLAIN_NAMES.get(message["role"], str(message["role"]).capitalize())
            ids += self._tokenizer.tokenize(f"{name}:")
            begin = len(ids)
            ids += self._tokenizer.tokenize(f" {message['content'].strip()}")
            if message["role"] == "assistant":
                ids.append(self._tokenizer.eod)
                spans.append((begin, len(ids)))
            ids += self._tokenizer.tokenize("\n")
        return Laid(ids=ids, spans=spans)


def find_answers(
    messages: Sequence[Mapping[str, Any]], text: str, render: Callable[[Sequence[Mapping[str, Any]], bool], str]
) -> list[tuple[int, int]]:
    """Return where the assistant's turns begin and end in the rendering of a whole conversation.

    Args:
        messages: the conversation.
        text: its rendering.
        render: renders turns; True asks for an answer at the end.

    Raises:
        RowError: earlier turns are rendered differently once later ones follow, so that no answer can be told.
    """
    spans = []
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        begin = _common(render(messages[:index], True), text)
        if begin < len(render(messages[:index], False)):
            raise RowError(f"the chat template renders the turns before message {index} differently once it follows; {_REMEDY}")
        until = render(messages[: index + 1], False)
        # Most templates show a turn alike whether or not others follow; some drop the thoughts of earlier ones.
        end = len(until) if text.startswith(until) else _find_end(messages, index, text, begin, render)
        spans.append((begin, end - 1 if text.endswith(_UNLEARNED_ENDS, begin, end) else end))
    return spans


def _find_end(
    messages: Sequence[Mapping[str, Any]],
    index: int,
    text: str,
    begin: int,
    render: Callable[[Sequence[Mapping[str, Any]], bool], str],
) -> int:
    """Return where an earlier answer ends, its end mark included: a place holder shows what follows its words."""
    held = {**messages[index], "content": _PLACE_HOLDER}
    whole = render([*messages[:index], held, *messages[index + 1 :]], False)
    alone = render([*messages[:index], held], False)
    after, mark = whole.partition(_PLACE_HOLDER)[2], alone.partition(_PLACE_HOLDER)[2]
    end = len(text) - len(after)
    if _PLACE_HOLDER not in whole or not text.endswith(after) or end < begin:
        raise RowError(f"the chat template does not show where the answer of message {index} ends; {_REMEDY}")
    return end + _common(mark, after)


def _common(a: str, b: str) -> int:
    """Return the length of the common beginning."""
    return next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _first_at(begins: Sequence[int], place: int) -> int:
    """Return the first token that begins at or after a character; offsets never decrease."""
    low, high = 0, len(begins)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if begins[middle] < place else (low, middle)
    return low
