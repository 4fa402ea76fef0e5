"""Answers are found in what templates render, whatever they do to earlier turns."""

from typing import Any

import pytest
from tests.unit.engine.finetune.chat_tokenizer import TEMPLATES, load

from autorecipe.engine.data.tokenizer import ByteTokenizer, HuggingFaceTokenizer
from autorecipe.engine.finetune.chat import ChatLayout
from autorecipe.engine.finetune.examples import Conversation, RowError
from autorecipe.engine.finetune.spec import ChatFormat
from autorecipe.engine.finetune.tokenize import RowTokenizer

TURNS = [("user", "Hello! how are you?"), ("assistant", "a"), ("user", "12 + 30"), ("assistant", "42 = fine")]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> HuggingFaceTokenizer:
    return load(tmp_path_factory.mktemp("tokenizer"))


def learned(tokenizer: HuggingFaceTokenizer, template: str, turns: Any, trains: str = "assistant") -> str:
    """Return what is learned, spans set apart by `|`."""
    tokenizer.set_chat_template(TEMPLATES[template])
    row = {"messages": [{"role": role, "content": content} for role, content in turns]}
    found = RowTokenizer(tokenizer, ChatFormat(trains=trains), schema=None, limit=1000)(row)
    spans: list[list[int]] = []
    for number, is_learned, before in zip(found.ids, found.learned, [False, *found.learned[:-1]], strict=True):
        if is_learned:
            if not before:
                spans.append([])
            spans[-1].append(int(number))
    return "|".join(tokenizer.inner.decode(span, skip_special_tokens=False) for span in spans)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("chatml", "a<|im_end|>\n|42 = fine<|im_end|>\n"),
        ("llama3", "a<|eot_id|>|42 = fine<|eot_id|>"),
        ("gemma", "a<end_of_turn>|42 = fine<end_of_turn>"),
        ("thinking", "a<|im_end|>\n|<think>\n\n</think>\n\n42 = fine<|im_end|>\n"),
        ("channels", "<|channel|>final<|message|>a<|end|>|<|channel|>final<|message|>42 = fine<|return|>"),
        ("marked", "a<|im_end|>|42 = fine<|im_end|>"),
    ],
)
def test_answers_are_learned_with_their_end_marks(tokenizer: HuggingFaceTokenizer, template: str, expected: str) -> None:
    assert learned(tokenizer, template, TURNS) == expected
    last = learned(tokenizer, template, TURNS, trains="last_turn")
    assert expected.endswith(last) and "42" in last and not last.startswith("a")


def test_openers_are_never_learned_even_where_everything_else_is(tokenizer: HuggingFaceTokenizer) -> None:
    text = learned(tokenizer, "chatml", TURNS, trains="full")
    assert "<|im_start|>" not in text and "user\nHello! how are you?<|im_end|>" in text


def test_what_a_template_refuses_or_hides_is_an_error_of_the_row(tokenizer: HuggingFaceTokenizer) -> None:
    with pytest.raises(RowError, match="the chat template refuses it: no system"):
        learned(tokenizer, "strict", [("system", "s"), *TURNS])
    with pytest.raises(RowError, match=r"differently once it follows; give a template that marks answers"):
        learned(tokenizer, "counting", TURNS)


@pytest.mark.parametrize(
    ("template", "mark"),
    [
        ("chatml", "<|im_end|>"),
        ("llama3", "<|eot_id|>"),
        ("gemma", "<end_of_turn>"),
        ("channels", "<|return|>"),
        ("marked", "<|im_end|>"),
    ],
)
def test_a_question_is_what_stands_before_an_answer_in_training(
    tokenizer: HuggingFaceTokenizer, template: str, mark: str
) -> None:
    tokenizer.set_chat_template(TEMPLATES[template])
    layout, turns = ChatLayout(tokenizer), ({"role": "user", "content": "12 + 30"},)
    question = layout.ask(Conversation(messages=turns))
    laid = layout.lay(Conversation(messages=(*turns, {"role": "assistant", "content": "42 = fine"})))
    assert list(question.ids) == list(laid.ids[: laid.spans[0][0]])
    assert question.ends == {tokenizer.eod, tokenizer.inner.convert_tokens_to_ids(mark)}


def test_a_question_without_a_template_is_a_line() -> None:
    tokenizer = ByteTokenizer()
    question = ChatLayout(tokenizer).ask(Conversation(messages=({"role": "user", "content": "Peru?"},)))
    assert tokenizer.detokenize(question.ids) == "User: Peru?\nAssistant:" and question.ends == {tokenizer.eod}
