"""Completing prompts with a checkpoint: starts the engine as a subprocess, because only the engine imports torch."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autorecipe.api.data import rebuild_error
from autorecipe.errors import EnvironmentProblem

GENERATOR = "autorecipe.engine.generation"


def generate_text(
    checkpoint: Path,
    prompts: Sequence[str],
    *,
    max_new_tokens: int = 64,
    tokenizer: str | None = None,
    base: Path | None = None,
    compare: bool = False,
    chat: bool = False,
) -> dict[str, Any]:
    """Complete prompts greedily with a checkpoint of any layout, adapters included.

    Args:
        checkpoint: a checkpoint, or a folder of them (the newest counts).
        prompts: texts.
        max_new_tokens: most tokens to add to each.
        tokenizer: `ByteTokenizer`, `NullTokenizer`, or a Hugging Face name or folder; None takes the training's.
        base: weights that an adapter belongs to; None takes those that its training started from.
        compare: whether to complete with the weights that training started from, too.
        chat: whether each prompt is what a user says, laid out as fine-tuning lays chats out.

    Returns:
        checkpoint, iteration, base, adapter, tokenizer, and `completions`: for each prompt its text and number of tokens, and
        under `completion` (and `before`) the new text, its ids, their probabilities and whether the model ended it.

    Raises:
        UsageError: no tokenizer is known, or a prompt does not fit.
        NegativeAnswer: the base is of another model.
        EnvironmentProblem: packages, checkpoints or tokenizer files are missing.
    """
    missing = [name for name in ("torch", "megatron") if importlib.util.find_spec(name) is None]
    if missing:
        raise EnvironmentProblem(f"generation needs {' and '.join(missing)}", hint="pip install 'autorecipe[train]'")
    request = {
        "checkpoint": str(checkpoint),
        "prompts": list(prompts),
        "limit": max_new_tokens,
        "tokenizer": tokenizer,
        "base": str(base) if base is not None else None,
        "compare": compare,
        "chat": chat,
    }
    done = subprocess.run(
        [sys.executable, "-m", GENERATOR], input=json.dumps(request), capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        report: dict[str, Any] = json.loads(done.stdout)
        return report
    raise rebuild_error(done.returncode, done.stderr, program="the generation")
