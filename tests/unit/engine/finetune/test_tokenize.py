"""Joining, cutting and masking of prompts and chats."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.finetune.chat_tokenizer import load

from autorecipe.engine.data.tokenizer import ByteTokenizer, NullTokenizer
from autorecipe.engine.finetune.examples import RowError
from autorecipe.engine.finetune.spec import ChatFormat, PromptFormat
from autorecipe.engine.finetune.tokenize import RowTokenizer, TokenizedRow
from autorecipe.errors import UsageError

EOD = 256


def pair(prompt: str, completion: str, *, limit: int = 100, tokenizer: Any = None, **fields: Any) -> TokenizedRow:
    form = PromptFormat(**fields)
    row = {"input": prompt, "output": completion}
    return RowTokenizer(tokenizer or ByteTokenizer(), form, schema=None, limit=limit)(row)


def learned_text(row: TokenizedRow) -> list[int]:
    return [int(number) for number, is_learned in zip(row.ids, row.learned, strict=True) if is_learned]


def test_the_answer_and_the_end_are_learned_and_the_prompt_is_not() -> None:
    row = pair("  Q: 1+1 ", "2 ")
    assert list(row.ids) == [*b"Q: 1+1", *b" 2", EOD]
    assert learned_text(row) == [*b" 2", EOD] and not row.was_cut
    assert all(pair("q", "a", trains_all=True).learned)
    assert list(pair(" q", "a ", strips=False, add_eos=False, separator="").ids) == list(b" qa ")
    assert list(pair("q", "a", template="<{prompt}>").ids) == [*b"<q>", *b" a", EOD]


@pytest.mark.parametrize(
    ("limit", "fields", "expected"),
    [
        (9, {}, [*b"abcd", *b" XYZ", EOD]),
        (9, {"keeps_end": True}, [*b"efgh", *b" XYZ", EOD]),
        (5, {}, [*b" XYZ", EOD]),
        (4, {}, [*b" XY", EOD]),
        (4, {"keeps_end": True}, [*b"XYZ", EOD]),
    ],
)
def test_what_is_too_long_loses_prompt_first_and_then_answer(limit: int, fields: dict[str, Any], expected: list[int]) -> None:
    row = pair("abcdefgh", "XYZ", limit=limit, **fields)
    assert list(row.ids) == expected and row.was_cut


def test_numbers_are_read_by_a_tokenizer_of_numbers() -> None:
    row = pair("1 2 3", "4", tokenizer=NullTokenizer(10))
    assert list(row.ids) == [1, 2, 3, 4, 9] and learned_text(row) == [4, 9]
    with pytest.raises(RowError, match="reads numbers only"):
        pair("one", "4", tokenizer=NullTokenizer(10))


def test_ids_that_the_tokenizer_lacks_are_refused_before_any_row() -> None:
    with pytest.raises(UsageError, match="no bos id"):
        pair("q", "a", add_bos=True)
    with pytest.raises(UsageError, match="1 tokens leave no room"):
        pair("q", "a", limit=1)


def test_special_ids_of_a_tokenizer_with_files(tmp_path: Path) -> None:
    tokenizer = load(tmp_path)
    row = pair("the fox", "jumps", tokenizer=tokenizer, add_bos=True)
    text = tokenizer.inner.convert_ids_to_tokens([int(number) for number in row.ids])
    assert text[0] == "<|begin_of_text|>" and text[-1] == "<|endoftext|>" and "Ġjumps" in text
    whole = pair("the fox", "jumps", tokenizer=tokenizer, add_bos=True, trains_all=True)
    assert list(whole.learned) == [False] + [True] * (len(whole.ids) - 1)  # the opener is never learned


def test_a_plain_chat_learns_answers_with_their_end() -> None:
    turns = [("user", "hi"), ("assistant", "yo"), ("user", "go"), ("assistant", "ok")]
    row = {"messages": [{"role": role, "content": content} for role, content in turns]}

    def lay(trains: str, limit: int = 100) -> TokenizedRow:
        return RowTokenizer(ByteTokenizer(), ChatFormat(trains=trains), schema=None, limit=limit)(row)

    laid = lay("assistant")
    assert list(laid.ids) == [*b"User: hi\nAssistant: yo", EOD, *b"\nUser: go\nAssistant: ok", EOD, *b"\n"]
    assert learned_text(laid) == [*b" yo", EOD, *b" ok", EOD]
    assert learned_text(lay("last_turn")) == [*b" ok", EOD]
    assert all(lay("full").learned)
    cut = lay("assistant", limit=24)
    assert (len(cut.ids), cut.was_cut, learned_text(cut)) == (24, True, [*b" yo", EOD])
