"""Answers a question of `recommend` on the terminal. Knows no command-line parser: see `direct` for the reason."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autorecipe.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from autorecipe.api.recommend import Understood
    from autorecipe.recommend.subject import Missing


def reply(*, question: Sequence[str], release: str | None, lang: str, brief: bool, output_format: str, **given: Any) -> int:
    """Answer a question, asking for what is missing where somebody sits at a terminal.

    Args:
        question: words of the question.
        release: Bridge release of the catalog, or None for the newest.
        lang: `en` or `ja`.
        brief: whether details are left out.
        output_format: `text` or `json`.
        given: the other options, by keyword.

    Returns:
        exit code: 0, or 1 where a question has no command that runs.

    Raises:
        AutorecipeError: as `api.recommend.recommend` does.
    """
    text = " ".join(question)
    options = _read_options(given)
    from autorecipe.api.recommend import read_questions, recommend

    if sys.stdin.isatty() and sys.stdout.isatty():
        understood = read_questions(text, options, release=release)
        if len(understood) == 1:
            options |= _ask(understood[0], lang)
    answers = recommend(text, options, release=release, lang=lang)
    if output_format == "json":
        import json

        from autorecipe.schema.value import to_jsonable

        _write(json.dumps({"answers": to_jsonable(answers)}, ensure_ascii=False, indent=2) + "\n")
    else:
        from autorecipe.recommend.render import render_answers

        _write(render_answers(answers, lang=lang, brief=brief))
    return 0 if all(item.command for item in answers) else 1


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _read_options(given: dict[str, Any]) -> dict[str, Any]:
    """Turn command-line options into fields of a question."""
    options = {
        "model": given["model"],
        "num_gpus": given["gpus"],
        "gpu": _gpu_id(given["gpu"]),
        "seq_length": given["seq_length"],
        "num_nodes": given["nodes"],
        "gpus_per_node": given["gpus_per_node"],
        "dataset": given["dataset"],
        "precision": given["precision"],
        "first_run": given["first_run"] or None,
        **_read_goal(given["goal"]),
    }
    return {name: value for name, value in options.items() if value is not None}


def _read_goal(goal: str | None) -> dict[str, Any]:
    if goal is None:
        return {}
    from autorecipe.schema.recipe import Mode

    if goal == "benchmark":
        return {"benchmark": True}
    if goal in ("lora", "dora"):
        return {"mode": Mode.PEFT, "adapter": goal}
    return {"mode": Mode(goal)}


def _gpu_id(name: str | None) -> str | None:
    if name is None:
        return None
    from autorecipe.catalog.hardware import find_gpu

    return find_gpu(name).name


def _ask(understood: Understood, lang: str) -> dict[str, Any]:
    """Ask for what is missing, by name; an empty answer leaves an optional input to its default."""
    import click

    from autorecipe.recommend.language import render_statement

    answers: dict[str, Any] = {}
    for missing in understood.missing:
        text = f"{missing.option}: {render_statement(missing.reason, lang)}"

        def read(words: str, missing: Missing = missing) -> dict[str, Any]:
            try:
                return _read_reply(words.strip(), missing)
            except UsageError as error:  # click shows it and asks again
                raise click.UsageError("; ".join(problem.message for problem in error.problems)) from None

        default = None if missing.required else ""
        answers |= click.prompt(text, default=default, value_proc=read, show_default=False, err=True)
    return answers


def _read_reply(words: str, missing: Missing) -> dict[str, Any]:
    """Read one reply as fields of a question; an empty one to an optional input is none.

    Raises:
        UsageError: not what was asked for.
    """
    if not words and not missing.required:
        return {}
    if missing.choices and words not in missing.choices:
        raise UsageError(unknown_name("answer", words, missing.choices, hint=f"one of {', '.join(missing.choices)}"))
    if missing.name == "mode":
        return _read_goal(words)
    if missing.name == "gpu":
        return {"gpu": _gpu_id(words)}
    if missing.name not in ("num_gpus", "seq_length"):
        return {missing.name: words}
    if not (words.isascii() and words.isdigit() and int(words) > 0):
        raise UsageError(f"{words!r} is no whole number above 0")
    return {missing.name: int(words)}
