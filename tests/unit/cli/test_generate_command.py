"""What `autorecipe generate` asks the engine for, and how it shows the answer."""

from pathlib import Path
from typing import Any

import pytest

from autorecipe.api import generate
from autorecipe.cli.main import execute

REPORT: dict[str, Any] = {
    "checkpoint": "/runs/iter_0000030",
    "iteration": 30,
    "base": "/base/iter_0000000",
    "adapter": "LoRA of rank 8",
    "tokenizer": "ByteTokenizer",
    "completions": [
        {
            "prompt": "a [b]",
            "prompt_tokens": 5,
            "before": {"text": "x", "ids": [120], "ended": False, "probabilities": [0.5]},
            "completion": {"text": "y", "ids": [121], "ended": True, "probabilities": [0.9, 0.9]},
        }
    ],
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Answer with a fixed report, and give what was asked."""
    found: list[Any] = []

    def answer(checkpoint: Path, prompts: tuple[str, ...], **options: Any) -> dict[str, Any]:
        found.append((checkpoint, prompts, options))
        return REPORT

    monkeypatch.setattr(generate, "generate_text", answer)
    return found


def test_text_shows_both_answers_and_what_was_cut(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    command = ["generate", "--checkpoint", "/runs", "--prompt", "a [b]", "--compare", "--max-new-tokens", "3"]
    assert execute(command) == 0
    printed = capsys.readouterr().out
    assert "/runs/iter_0000030, LoRA of rank 8 on /base/iter_0000000" in printed
    assert "prompt: a [b]\nbefore: x ...\nanswer: y\n" in printed
    options = {"max_new_tokens": 3, "tokenizer": None, "base": None, "compare": True, "chat": False}
    assert asked == [(Path("/runs"), ("a [b]",), options)]


def test_a_prompt_and_a_checkpoint_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["generate", "--checkpoint", "/runs"]) == 2
    assert "--prompt" in capsys.readouterr().err
