"""Answers a question of `recommend` on the terminal. Knows no command-line parser: see `direct` for the reason."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any


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
            from autorecipe.cli.ask import ask

            options |= ask(understood[0], lang)
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
        **_goal(given["goal"]),
    }
    return {name: value for name, value in options.items() if value is not None}


def _goal(goal: str | None) -> dict[str, Any]:
    if goal is None:
        return {}
    from autorecipe.cli.ask import read_goal

    return read_goal(goal, ())


def _gpu_id(name: str | None) -> str | None:
    if name is None:
        return None
    from autorecipe.cli.ask import read_gpu

    return read_gpu(name)
