"""Rows of every schema become prompts or chats; what cannot be read says why."""

from typing import Any

import pytest

from autorecipe.engine.finetune.examples import Conversation, PromptPair, RowError, read_example
from autorecipe.engine.finetune.spec import ChatFormat, PromptFormat

PROMPTS, CHATS = PromptFormat(), ChatFormat()
TURNS = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def read(row: Any, schema: str | None = None, form: Any = PROMPTS) -> Any:
    return read_example(row, schema=schema, form=form)


def test_columns_of_the_known_data_sets_become_upstreams_prompts() -> None:
    squad = {"context": "C.", "question": "Q?", "answers": {"text": ["A", "B"], "answer_start": [0, 1]}}
    assert read(squad, "squad") == PromptPair(prompt="Context: C. Question: Q? Answer:", completion="A")
    assert read({"question": "1+1?", "answer": "2 #### 2"}, "gsm8k").prompt == "Question: 1+1? Answer:"
    maths = {"problem": "P", "generated_solution": "so \\boxed{7} and \\boxed{8}$", "expected_answer": "8"}
    assert read(maths, "openmathinstruct2").prompt == "Problem: P Solution:"
    reply = read(maths, "openmathinstruct2_thinking", CHATS).messages[-1]
    assert (reply["thinking"], reply["content"]) == ("so 7 and", "#### 8")


def test_prompts_are_read_under_the_columns_of_the_run_or_under_plain_names() -> None:
    assert read({"input": "a", "output": "b"}) == read({"prompt": "a", "completion": "b"})
    assert read({"q": "a", "w": "b"}, form=PromptFormat(prompt_column="q", completion_column="w")).completion == "b"


def test_chats_come_in_three_spellings_and_from_pairs() -> None:
    expected = read({"messages": TURNS}, form=CHATS)
    legacy = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}
    assert isinstance(expected, Conversation)
    assert read({"conversation": TURNS}, form=CHATS) == expected == read(legacy, form=CHATS)
    assert read({"prompt": "q", "completion": "a"}, form=CHATS) == expected
    assert read({"messages": TURNS, "system": "s"}, form=CHATS).messages[0] == {"role": "system", "content": "s"}
    parts = [{"role": "user", "content": [{"type": "text", "text": "q"}]}, TURNS[1]]
    assert read({"messages": parts}, form=CHATS) == expected


@pytest.mark.parametrize(
    ("row", "form", "reason"),
    [
        (["a"], PROMPTS, "is a list, not an object"),
        ({"input": "a"}, PROMPTS, "lacks 'output' (or 'prompt' and 'completion'); it has 'input'"),
        ({"text": "a"}, PROMPTS, "lacks 'input' and 'output'"),
        ({"input": "a", "output": 3}, PROMPTS, "'output' is a int, not text"),
        ({"input": "a", "output": None}, PROMPTS, "'output' is null, not text"),
        ({"messages": TURNS}, PROMPTS, "for chats add 'dataset.preprocessing={_target_:"),
        ({"prompt": "a", "completion": "b", "messages": TURNS}, CHATS, "has both 'messages' and 'prompt'"),
        ({"text": "a"}, CHATS, "lacks 'messages'"),
        ({"messages": []}, CHATS, "'messages' is a list, not a list of messages"),
        ({"messages": "hello"}, CHATS, "'messages' is text"),
        ({"messages": [TURNS[0]]}, CHATS, "no message of the assistant"),
        ({"messages": [{"role": "user"}]}, CHATS, "messages[0] lacks 'role' and 'content'"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, CHATS, "holds more than text"),
        ({"messages": [{"role": "user", "content": 3}]}, CHATS, "messages[0].content is a int"),
    ],
)
def test_what_cannot_be_read_says_why(row: Any, form: Any, reason: str) -> None:
    with pytest.raises(RowError) as caught:
        read(row, form=form)
    assert reason in str(caught.value)


def test_a_row_that_lacks_its_data_sets_columns_names_those_it_has() -> None:
    with pytest.raises(RowError, match="lacks 'answers'; it has 'context'"):
        read({"context": "C"}, "squad")
    with pytest.raises(RowError, match="no list of texts"):
        read({"context": "C", "question": "Q", "answers": {"text": []}}, "squad")
