"""Asks at a terminal for what a question lacks, in its language. Start at `ask`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autorecipe.errors import Problem, UsageError, unknown_name

if TYPE_CHECKING:
    from autorecipe.api.recommend import Understood
    from autorecipe.recommend.subject import Missing
    from autorecipe.schema.recommendation import Question


def ask(understood: Understood, lang: str) -> dict[str, Any]:
    """Ask for what is missing, by name; an empty answer leaves an optional input to its default.

    Returns:
        fields of a question by name.

    Raises:
        click.Abort: interrupted.
    """
    import click

    from autorecipe.recommend.language import render_statement

    answers: dict[str, Any] = {}
    for missing in understood.missing:
        choices = f" ({', '.join(missing.choices)})" if missing.choices else ""
        text = f"{missing.option}: {render_statement(missing.reason, lang)}{choices}"
        while True:
            words = click.prompt(text, default=None if missing.required else "", type=str, show_default=False, err=True)
            try:
                answers |= read_reply(words.strip(), missing)
            except UsageError as error:
                for problem in error.problems:
                    click.echo(_render(problem, lang), err=True)
                continue
            break
    return answers


def read_reply(words: str, missing: Missing) -> dict[str, Any]:
    """Read one reply as fields of a question: as the option takes it, or in words (`8 枚`, `16K`, `微調整`).

    Raises:
        UsageError: not what was asked for.
    """
    if not words and not missing.required:
        return {}
    if missing.name == "mode":
        return read_goal(words, missing.choices)
    if missing.name == "gpu":
        return {"gpu": read_gpu(words)}
    if missing.name == "num_gpus":
        return {"num_gpus": _positive(words, _parse(f"{words} GPUs").num_gpus)}
    if missing.name == "seq_length":
        return {"seq_length": _positive(words, _parse(f"{words} tokens").seq_length)}
    if missing.choices and words not in missing.choices:
        raise UsageError(unknown_name("answer", words, missing.choices, hint=f"one of {', '.join(missing.choices)}"))
    return {missing.name: words}


def read_goal(words: str, choices: tuple[str, ...]) -> dict[str, Any]:
    """Read a goal, as `--goal` takes it or in words.

    Raises:
        UsageError: no goal.
    """
    from autorecipe.schema.recipe import Mode

    if words == "benchmark":
        return {"benchmark": True}
    if words in ("lora", "dora"):
        return {"mode": Mode.PEFT, "adapter": words}
    if words in set(Mode):
        return {"mode": Mode(words)}
    said = _parse(words)
    found = {"mode": said.mode, "adapter": said.adapter, "benchmark": said.benchmark or None}
    found = {name: value for name, value in found.items() if value is not None}
    if not found:
        raise UsageError(unknown_name("answer", words, choices, hint=f"one of {', '.join(choices)}"))
    return found


def read_gpu(name: str) -> str:
    """Return the id of a GPU type.

    Raises:
        UsageError: unknown, with near misses.
    """
    import unicodedata

    from autorecipe.catalog.hardware import find_gpu

    return find_gpu(unicodedata.normalize("NFKC", name)).name


def _parse(text: str) -> Question:
    from autorecipe.recommend.question import parse_question

    return parse_question(text, gpus=(), presets=(), recipes=lambda _: False)


def _positive(words: str, number: int | None) -> int:
    if not number or number < 1:
        raise UsageError(f"{words!r} is no whole number above 0")
    return number


def _render(problem: Problem, lang: str) -> str:
    if lang == "ja":
        from autorecipe.recommend.problems_ja import render_problem

        return render_problem(problem)
    return problem.render()
