"""Shared output options: one `--format` for every command that reads, one way to print a result."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autorecipe.units import MOST_GPUS

if TYPE_CHECKING:
    from rich.console import Console

GPU_COUNT = click.IntRange(min=1, max=MOST_GPUS)
"""Type of an option that counts GPUs or hosts."""

Function = TypeVar("Function", bound=Callable[..., Any])


def format_option(function: Function) -> Function:
    """Add `--format text|json` to a command; it arrives as `output_format`."""
    decorate: Callable[[Function], Function] = click.option(
        "--format",
        "output_format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Text for people, JSON for programs; both on stdout.",
    )
    return decorate(function)


def emit(result: Any, *, output_format: str, render: Callable[[Console], None]) -> None:
    """Print a result on stdout.

    Args:
        result: schema types or plain values; printed as JSON when `output_format` is `json`.
        output_format: `text` or `json`.
        render: writes the text form to a rich console; called only for `text`.
    """
    if output_format == "json":
        from autorecipe.schema.value import to_jsonable

        click.echo(json.dumps(to_jsonable(result), ensure_ascii=False, indent=2, sort_keys=False))
        return
    render(make_console())


def emit_plain(result: Any, *, output_format: str, render: Callable[[], None]) -> None:
    """Print a result on stdout as `emit` does, without loading rich.

    Args:
        result: schema types or plain values; printed as JSON when `output_format` is `json`.
        output_format: `text` or `json`.
        render: prints the text form itself; called only for `text`.
    """
    if output_format == "json":
        emit(result, output_format=output_format, render=lambda _: None)
    else:
        render()


def make_console(*, stderr: bool = False) -> Console:
    """Return a console that respects `NO_COLOR` and does not wrap what is piped."""
    from rich.console import Console

    class _Console(Console):
        def on_broken_pipe(self) -> None:
            """Leave a reader that went away to the caller, who ends as other programs do; rich would end with 1."""
            raise BrokenPipeError

    return _Console(stderr=stderr, highlight=False, soft_wrap=True)
