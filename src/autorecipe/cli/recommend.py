"""`autorecipe recommend`: the right recipe for a question, and the command that starts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from autorecipe.cli.direct import OPTIONS, Option
from autorecipe.cli.reply import reply


def _declare(option: Option) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    kind = click.IntRange(min=1) if option.is_count else click.Choice(option.choices) if option.choices else None
    return click.option(
        option.flag,
        option.keyword,
        type=kind,
        metavar=option.metavar or None,
        is_flag=option.is_flag,
        default=False if option.is_flag else option.default,
        show_default=option.default is not None,
        help=option.help,
    )


def _with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(OPTIONS):
        function = _declare(option)(function)
    return function


@click.command(
    "recommend",
    epilog="Exit codes: 0 answered; 1 it does not fit, or there is no such recipe; 2 something must be said first.",
)
@click.argument("question", nargs=-1)
@_with_options
@click.pass_context
def recommend(ctx: click.Context, /, *, question: Sequence[str], **given: Any) -> int:
    """Recommend a recipe and the command that starts it.

    QUESTION is free text, English or Japanese, with as much as you know: model, size, GPUs, goal, sequence length.
    Options say the same and win. Several questions are separated by `;`. What is missing is asked for.

    \b
    autorecipe recommend "fine-tune qwen3 8b with lora on one h100, 16k context"
    autorecipe recommend "Qwen3 30B-A3B" --gpus 16 --gpu h100 --goal sft
    autorecipe recommend --first-run
    """
    if not question and not any(given[name] for name in given if name not in ("release", "lang", "brief", "output_format")):
        click.echo(ctx.get_help())
        return 0
    return reply(question=question, **given)
