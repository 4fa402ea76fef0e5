"""From a row to token ids, and which of them are learned. Start reading at `RowTokenizer`.

Source of the joining, cutting and masking: Megatron Bridge 0.6.2 data/sft_processing.py, data/token_utils.py.
Evidence: enforced-upstream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy

from autorecipe.engine.data.tokenizer import HuggingFaceTokenizer, Tokenizer
from autorecipe.engine.finetune.chat import ChatLayout
from autorecipe.engine.finetune.examples import Conversation, PromptPair, RowError, read_example
from autorecipe.engine.finetune.spec import ChatFormat, PromptFormat
from autorecipe.errors import Problem, UsageError

NEVER_LEARNED = frozenset(
    {
        "<|im_start|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|vision_pad|>",
        "<|image_pad|>",
        "<|video_pad|>",
        "<|AUDIO|>",
        "<|audio_bos|>",
        "<|audio_eos|>",
        "<image>",
        "<pad>",
        "<|begin_of_text|>",
        "<|finetune_right_pad_id|>",
        "<|step_id|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|python_tag|>",
        "<|image|>",
        "<image_soft_token>",
        "<audio_soft_token>",
        "<start_of_audio>",
        "<start_of_image>",
        "<end_of_audio>",
        "<end_of_image>",
    }
)
"""Special tokens that no loss is taken on: openers and place holders (upstream's list)."""


@dataclass(frozen=True, kw_only=True)
class TokenizedRow:
    """Token ids of one row.

    Attributes:
        ids: int32.
        learned: which ids are predicted with a loss; bool, as long as `ids`.
        was_cut: whether it was longer than the limit.
    """

    ids: numpy.ndarray
    learned: numpy.ndarray
    was_cut: bool


class RowTokenizer:
    """Turns rows into token ids."""

    def __init__(self, tokenizer: Tokenizer, form: PromptFormat | ChatFormat, *, schema: str | None, limit: int) -> None:
        """Prepare.

        Args:
            tokenizer: of the run.
            form: prompts or chats.
            schema: columns of the source.
            limit: token ids that a row may have.

        Raises:
            UsageError: a special id is asked for that the tokenizer lacks, or the limit leaves no room for text.
        """
        self._tokenizer = tokenizer
        self._form = form
        self._schema = schema
        self._limit = limit
        self.chat = ChatLayout(tokenizer) if isinstance(form, ChatFormat) else None
        self._unlearned = numpy.array(_find_never_learned(tokenizer), dtype=numpy.int32)
        if isinstance(form, PromptFormat):
            self._head = [_special(tokenizer, "bos", "add_bos")] if form.add_bos else []
            self._middle = [_special(tokenizer, "sep", "add_sep")] if form.add_sep else []
            self._tail = [tokenizer.eod] if form.add_eos else []
            self._separator = _fit_separator(tokenizer, form.separator)
            if limit <= len(self._head) + len(self._middle) + len(self._tail):
                message, hint = f"{limit} tokens leave no room beside the special ones", "raise it"
                raise UsageError(Problem(path="dataset.seq_length", code="bad-value", message=message, hint=hint))

    def __call__(self, row: Any) -> TokenizedRow:
        """Tokenize one row.

        Raises:
            RowError: it cannot be read, or has too few tokens to predict one.
        """
        example = read_example(row, schema=self._schema, form=self._form)
        try:
            tokenized = self._lay_chat(example) if isinstance(example, Conversation) else self._join(example)
        except UsageError as error:  # a text that this tokenizer cannot read
            raise RowError(error.problems[0].message) from None
        if len(tokenized.ids) < 2:
            raise RowError("has fewer than two tokens, so nothing to predict")
        if self._unlearned.size:
            tokenized.learned[numpy.isin(tokenized.ids, self._unlearned)] = False
        return tokenized

    def _join(self, example: PromptPair) -> TokenizedRow:
        """Join prompt and completion; what is too long loses prompt first, then answer."""
        form = self._form
        assert isinstance(form, PromptFormat)
        prompt, completion = example.prompt, example.completion
        if form.strips:
            prompt, completion = prompt.strip(" "), completion.strip(" ")
        question = self._tokenizer.tokenize(form.template.format(prompt=prompt))
        answer = self._tokenizer.tokenize(self._separator + completion)
        room = self._limit - len(self._head) - len(self._middle) - len(self._tail)
        excess = max(0, len(question) + len(answer) - room)
        from_question = min(len(question), excess)
        question = _cut(question, len(question) - from_question, keeps_end=form.keeps_end)
        answer = _cut(answer, len(answer) - (excess - from_question), keeps_end=form.keeps_end)
        context, target = [*self._head, *question, *self._middle], [*answer, *self._tail]
        learned: numpy.ndarray = numpy.ones(len(context) + len(target), dtype=bool)
        if not form.trains_all:
            learned[: len(context)] = False
        return TokenizedRow(ids=numpy.array([*context, *target], dtype=numpy.int32), learned=learned, was_cut=excess > 0)

    def _lay_chat(self, example: Conversation) -> TokenizedRow:
        """Lay a conversation out; what is too long loses its end."""
        assert self.chat is not None and isinstance(self._form, ChatFormat)
        laid = self.chat.lay(example)
        learned: numpy.ndarray = numpy.zeros(len(laid.ids), dtype=bool)
        if self._form.trains == "full":
            learned[:] = True
        for begin, end in laid.spans[-1:] if self._form.trains == "last_turn" else laid.spans:
            learned[begin:end] = True
        ids = numpy.array(laid.ids[: self._limit], dtype=numpy.int32)
        return TokenizedRow(ids=ids, learned=learned[: self._limit], was_cut=len(laid.ids) > self._limit)


def _cut(ids: list[int], length: int, *, keeps_end: bool) -> list[int]:
    length = max(0, length)
    return ids[len(ids) - length :] if keeps_end else ids[:length]


def _special(tokenizer: Tokenizer, name: str, option: str) -> int:
    found = getattr(tokenizer, name, None)
    if found is None:
        message = f"true, and the tokenizer has no {name} id"
        raise UsageError(
            Problem(path=f"dataset.preprocessing.{option}", code="bad-value", message=message, hint=f"set {option} to false")
        )
    return int(found)


def _fit_separator(tokenizer: Tokenizer, separator: str) -> str:
    """Drop a leading space where the tokenizer makes it anyway: where two texts joined differ from both alone."""
    if not separator.startswith(" "):
        return separator
    a, b = ("x", "y") if _reads_letters(tokenizer) else ("1", "2")
    keeps_space = tokenizer.tokenize(f"{a} {b}") != [*tokenizer.tokenize(a), *tokenizer.tokenize(b)]
    return separator if keeps_space else separator[1:]


def _reads_letters(tokenizer: Tokenizer) -> bool:
    try:
        tokenizer.tokenize("x")
    except UsageError:
        return False
    return True


def _find_never_learned(tokenizer: Tokenizer) -> list[int]:
    if not isinstance(tokenizer, HuggingFaceTokenizer):
        return []
    return [number for number, token in tokenizer.inner.added_tokens_decoder.items() if str(token) in NEVER_LEARNED]
