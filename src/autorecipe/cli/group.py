"""The command group: names and one-line helps from the table of `main`, commands imported when they run."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import click

from autorecipe import __version__
from autorecipe.cli.main import COMMANDS, EXIT_CODES, PIPE_CLOSED, LazyCommand, drop_output
from autorecipe.errors import Problem, UsageError, near_misses


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it runs."""

    def __init__(self, *args: object, lazy: dict[str, LazyCommand] | None = None, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return lazy commands in table order, then ordinary ones."""
        return [*self.lazy, *(name for name in super().list_commands(ctx) if name not in self.lazy)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        entry = self.lazy.get(cmd_name)
        if entry is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = entry.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; a reader that goes away, such as `head`, ends it quietly. Click would end with 1, which is a "no"."""
        try:
            result: object = super().invoke(ctx)
        except BrokenPipeError:
            drop_output()
            return PIPE_CLOSED
        return result

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command name, suggesting near misses for an unknown one."""
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            close = near_misses(args[0], known)
            hint = f"; did you mean {', '.join(repr(name) for name in close)}?" if close else ""
            raise click.UsageError(f"unknown command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands with their short help, without importing the lazy ones."""
        rows: list[tuple[str, str]] = []
        for name in self.list_commands(ctx):
            if name in self.lazy:
                rows.append((name, self.lazy[name].short_help))
            else:
                command = super().get_command(ctx, name)
                if command is not None and not command.hidden:
                    rows.append((name, command.get_short_help_str()))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    invoke_without_command=True,
    epilog=EXIT_CODES,
)
@click.version_option(__version__, "-V", "--version", prog_name="autorecipe")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """From a question to a verified LLM training run on NVIDIA's Megatron stack.

    \b
    Try:  autorecipe recommend "qwen3 30b-a3b" --gpus 16 --gpu h100 --goal sft
          autorecipe recommend --first-run
          autorecipe recipes search "llama 3.1 70b lora"
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def invoke(arguments: Sequence[str]) -> int:
    """Run a command line through click and return its exit code.

    Raises:
        UsageError: a line that click refuses.
        KeyboardInterrupt: a question that was not answered.
        (others): what the command raises.
    """
    try:
        result = cli.main(args=list(arguments), prog_name="autorecipe", standalone_mode=False)
    except click.exceptions.Exit as exit_request:
        return exit_request.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        raise UsageError(_problem_of(error)) from None
    return result if isinstance(result, int) else 0


def _problem_of(error: click.ClickException) -> Problem:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "autorecipe"
    return Problem(code="usage", message=error.format_message(), hint=f"`{path} --help` lists what is legal")
