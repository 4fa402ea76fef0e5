"""Command line of the completion: one JSON request on standard input, one JSON report on standard output.

The request: `checkpoint`, `prompts`, `limit`, and optionally `base`, `tokenizer`, `compare`, `chat`.
Messages go to standard error.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autorecipe.engine.adapters.attach import attach_adapters
from autorecipe.engine.checkpoint.pretrained import load_pretrained
from autorecipe.engine.data.tokenizer import Tokenizer, load_tokenizer, set_template
from autorecipe.engine.finetune.chat import ChatLayout, Question
from autorecipe.engine.finetune.examples import Conversation, RowError
from autorecipe.engine.generation.greedy import complete
from autorecipe.engine.saved import SavedModel, read_saved, whole_model
from autorecipe.errors import AutorecipeError, EnvironmentProblem, Problem, UsageError

OWN_TOKENIZERS = ("NullTokenizer", "ByteTokenizer")


def main() -> int:
    """Answer the request and return the exit code."""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # libraries print
            report = generate(json.load(sys.stdin))
    except AutorecipeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(report))
    return 0


def generate(request: Mapping[str, Any]) -> dict[str, Any]:
    """Complete prompts.

    Args:
        request: `checkpoint` (folder), `prompts` (texts), `limit` (new tokens); optionally `base` (folder of the weights that
            an adapter belongs to), `tokenizer` (a type of ours, or a Hugging Face name or folder), `compare` (whether the
            weights that training started from complete them too) and `chat` (whether each prompt is what a user says, laid
            out as fine-tuning lays it out).

    Returns:
        checkpoint, base, adapter, tokenizer, and one entry per prompt.

    Raises:
        UsageError: no tokenizer is known, a prompt is empty or too long, or the chat template refuses it.
        EnvironmentProblem: nothing whole is there.
        NegativeAnswer: the base is of another model.
    """
    base = request.get("base")
    saved = read_saved(Path(request["checkpoint"]).expanduser(), base=Path(base).expanduser() if base else None)
    tokenizer, name = _open_tokenizer(saved, request.get("tokenizer"))
    limit = int(request["limit"])
    questions = _lay(tokenizer, request["prompts"], chat=bool(request.get("chat")), saved=saved)
    prompts = [list(question.ids) for question in questions]
    _check_prompts(saved, request["prompts"], prompts, limit=limit, vocab_size=_vocabulary(saved, tokenizer))
    if request.get("compare") and saved.base is None:
        message = "does not say which weights it started from"
        raise UsageError(
            Problem(
                path=str(saved.candidate.path), code="base-missing", message=message, hint="add --base DIR, or leave --compare"
            )
        )
    rows: list[dict[str, Any]] = [
        {"prompt": text, "prompt_tokens": len(ids)} for text, ids in zip(request["prompts"], prompts, strict=True)
    ]

    def answer(chunk: Any, key: str) -> None:
        chunk.eval()
        for row, question in zip(rows, questions, strict=True):
            found = complete(chunk, question.ids, vocab_size=_vocabulary(saved, tokenizer), ends=question.ends, limit=limit)
            row[key] = {"text": tokenizer.detokenize(found.ids), **asdict(found)}

    with whole_model(saved.reading_run) as chunk:
        if saved.base is not None and (saved.adapter is not None or request.get("compare")):
            load_pretrained(saved.base, [chunk])
            if request.get("compare"):
                answer(chunk, "before")
        if saved.adapter is not None:
            attach_adapters([chunk], saved.adapter, seed=0)
        load_pretrained(saved.candidate, [chunk])
        answer(chunk, "completion")
    return {
        "checkpoint": str(saved.candidate.path),
        "iteration": saved.candidate.iteration,
        "base": str(saved.base.path) if saved.base is not None else None,
        "adapter": saved.adapter.render() if saved.adapter is not None else None,
        "tokenizer": name,
        "completions": rows,
    }


def _lay(tokenizer: Tokenizer, texts: list[str], *, chat: bool, saved: SavedModel) -> list[Question]:
    """Return the ids of each prompt and what ends an answer: of the text as it is, or of a chat's first turn."""
    if not chat:
        return [Question(ids=tokenizer.tokenize(text), ends=frozenset({tokenizer.eod})) for text in texts]
    template, path = (saved.run.get(f"tokenizer.chat_template{suffix}", None) for suffix in ("", "_path"))
    set_template(tokenizer, template or None, path or None)
    layout = ChatLayout(tokenizer)
    try:
        return [layout.ask(Conversation(messages=({"role": "user", "content": text},))) for text in texts]
    except RowError as error:
        hint = "leave --chat and write the whole text"
        raise UsageError(Problem(path="--chat", code="bad-value", message=str(error), hint=hint)) from None


def _open_tokenizer(saved: SavedModel, given: str | None) -> tuple[Tokenizer, str]:
    """Return the tokenizer that was asked for, or the one of the training."""
    size = saved.run.get("model.vocab_size", None)
    if given is not None:
        kind = given if given in OWN_TOKENIZERS else "HuggingFaceTokenizer"
        return load_tokenizer(kind, given, size), given
    kind = saved.run.get("tokenizer.tokenizer_type", None)
    model = saved.run.get("tokenizer.tokenizer_model", None)
    if not kind:
        message = "does not say which tokenizer belongs to it"
        hint = f"add --tokenizer NAME_OR_FOLDER, or one of {', '.join(OWN_TOKENIZERS)}"
        raise UsageError(Problem(path=str(saved.candidate.path), code="missing-value", message=message, hint=hint))
    try:
        return load_tokenizer(str(kind), model, saved.run.get("tokenizer.vocab_size", None) or size), str(model or kind)
    except EnvironmentProblem as error:
        problem = error.problems[0]
        hint = "add --tokenizer FOLDER"
        raise EnvironmentProblem(Problem(path=problem.path, code=problem.code, message=problem.message, hint=hint)) from None


def _vocabulary(saved: SavedModel, tokenizer: Tokenizer) -> int:
    """Return how many ids both the model and the tokenizer know; padding of the embedding counts for neither."""
    return min(int(saved.run.get("model.vocab_size")), tokenizer.vocab_size)


def _check_prompts(saved: SavedModel, texts: list[str], prompts: list[list[int]], *, limit: int, vocab_size: int) -> None:
    problems = []
    learned = saved.run.get("model.position_embedding_type", None) == "learned_absolute"
    longest = saved.run.get("model.seq_length", None)
    for text, ids in zip(texts, prompts, strict=True):
        shown = repr(text if len(text) <= 40 else f"{text[:40]}...")
        if not ids:
            problems.append(Problem(path="--prompt", code="bad-value", message=f"{shown} has no token", hint="write some text"))
        elif max(ids) >= vocab_size:
            message = f"{shown} has token {max(ids)}, and the model knows {vocab_size}"
            problems.append(
                Problem(path="--tokenizer", code="bad-value", message=message, hint="use the tokenizer of the training")
            )
        elif learned and len(ids) + limit > longest:
            message = f"{shown} has {len(ids)} tokens; with {limit} more they exceed the model's {longest} learned positions"
            hint = f"use --max-new-tokens {max(longest - len(ids), 1)} or a shorter prompt"
            problems.append(Problem(path="--max-new-tokens", code="bad-value", message=message, hint=hint))
    if problems:
        raise UsageError(problems)


if __name__ == "__main__":
    sys.exit(main())
