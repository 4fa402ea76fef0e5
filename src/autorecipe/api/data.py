"""Preparing data: starts the engine's indexer as a subprocess, because only the engine may import torch."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from autorecipe.errors import (
    AutorecipeError,
    EnvironmentProblem,
    InternalError,
    NegativeAnswer,
    Problem,
    UsageError,
)

INDEXER = "autorecipe.engine.data.index"


def index_text(
    inputs: Sequence[str],
    output: str,
    *,
    key: str = "text",
    tokenizer: str = "ByteTokenizer",
    tokenizer_model: str | None = None,
    vocab_size: int | None = None,
    no_eod: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Turn JSON Lines text into one indexed dataset.

    Args:
        inputs: JSON Lines files; `-` reads standard input.
        output: path prefix.
        key: JSON key that holds the text.
        tokenizer: tokenizer type.
        tokenizer_model: name or folder, for the types that need one.
        vocab_size: for `NullTokenizer`.
        no_eod: do not end documents.
        overwrite: replace an existing pair.

    Returns:
        documents, tokens, empty lines, token type, vocabulary size and output prefix.

    Raises:
        UsageError: a bad line, key or option.
        NegativeAnswer: there is no text.
        EnvironmentProblem: the training packages or a file are not here.
    """
    missing = [name for name in ("torch", "megatron") if importlib.util.find_spec(name) is None]
    if missing:
        raise EnvironmentProblem(f"indexing needs {' and '.join(missing)}", hint="pip install 'autorecipe[train]'")
    command = [sys.executable, "-m", INDEXER, *inputs, "--output", output, "--key", key, "--tokenizer", tokenizer]
    command += ["--tokenizer-model", tokenizer_model] if tokenizer_model else []
    command += ["--vocab-size", str(vocab_size)] if vocab_size is not None else []
    command += ["--no-eod"] if no_eod else []
    command += ["--overwrite"] if overwrite else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        report: dict[str, Any] = json.loads(done.stdout)
        return report
    raise rebuild_error(done.returncode, done.stderr, program="the indexer")


def rebuild_error(code: int, text: str, *, program: str) -> AutorecipeError:
    """Rebuild the error of a subprocess from what it printed.

    Args:
        code: its exit code.
        text: its standard error.
        program: what it is called in a message.
    """
    kinds: dict[int, type[AutorecipeError]] = {1: NegativeAnswer, 2: UsageError, 3: EnvironmentProblem}
    lines = text.strip().splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith("error")]
    if code not in kinds or not starts:
        return InternalError(f"{program} ended with exit code {code}:\n{text.strip()}")
    problems = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        hint = next((line.removeprefix("hint: ") for line in lines[start + 1 : end] if line.startswith("hint: ")), "")
        problems.append(Problem(message=lines[start].partition(": ")[2], hint=hint))
    return kinds[code](problems)
