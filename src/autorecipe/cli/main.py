"""Entry point, command table and exit codes.

Commands are imported only when they run, so that `--help` and shell completion stay fast. To add one: write
`cli/NAME.py` with a click command, and add a line to `COMMANDS`.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from autorecipe import __version__
from autorecipe.errors import AutorecipeError, Problem, near_misses
from autorecipe.record import dataclass


@dataclass(frozen=True)
class LazyCommand:
    """Where a command lives and the one line that help shows for it."""

    target: str
    short_help: str


COMMANDS: dict[str, LazyCommand] = {
    "estimate": LazyCommand("autorecipe.cli.estimate:estimate", "Will it fit, and how fast: memory and time of a training step."),
    "check": LazyCommand("autorecipe.cli.check:check", "Find what cannot run, or trains something else, before the GPUs do."),
    "explain": LazyCommand("autorecipe.cli.explain:explain", "Show the page of a rule or of a configuration field."),
    "config": LazyCommand("autorecipe.cli.config:config", "Show, compare and look up configurations, by layer of change."),
    "recommend": LazyCommand("autorecipe.cli.recommend:recommend", "Recommend a recipe and the command that starts it."),
    "checkpoint": LazyCommand(
        "autorecipe.cli.checkpoint:checkpoint", "Convert checkpoints from and to Hugging Face; merge adapters."
    ),
    "generate": LazyCommand("autorecipe.cli.generate:generate", "Complete prompts with a checkpoint, to see what training did."),
    "data": LazyCommand("autorecipe.cli.data:data", "Prepare training data: JSON Lines text to indexed .bin/.idx files."),
    "recipes": LazyCommand("autorecipe.cli.recipes:recipes", "List, show, search, compare and lint recipes."),
    "models": LazyCommand("autorecipe.cli.models:models", "Architecture and parameter count of models."),
    "catalog": LazyCommand("autorecipe.cli.catalog:catalog", "Build, verify and list catalogs of upstream releases."),
    "plan": LazyCommand("autorecipe.cli.plan:plan", "Rank every legal layout of a recipe for given GPUs."),
    "launch": LazyCommand("autorecipe.cli.launch:launch", "Show, or start, the launch of a recipe: local or Slurm."),
    "translate": LazyCommand(
        "autorecipe.cli.translate:translate", "Megatron-LM options to Bridge overrides and back, nothing lost."
    ),
    "parity": LazyCommand("autorecipe.cli.parity:parity", "Prove that two runs give the same loss, or say where they part."),
}
"""Top-level commands in the order that help lists them: daily verbs first, then management nouns."""

EXIT_CODES = "Exit codes: 0 fine, 1 the answer is no, 2 usage, 3 environment, 70 a bug in autorecipe."


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


def run(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with the promised code."""
    sys.exit(execute(args))


def execute(args: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; errors go to stderr, all at once."""
    arguments = list(sys.argv[1:] if args is None else args)
    try:
        result = cli.main(args=arguments, prog_name="autorecipe", standalone_mode=False)
    except click.exceptions.Exit as exit_request:
        return exit_request.exit_code
    except click.Abort:
        click.echo("aborted", err=True)
        return 130
    except click.ClickException as error:
        _report([_problem_of(error)], as_json=_wants_json(arguments))
        return 2
    except AutorecipeError as error:
        _report(error.problems, as_json=_wants_json(arguments))
        return error.exit_code
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - the reader went away; nothing to close
        return 0
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return 130
    except Exception:
        click.echo(traceback.format_exc(), err=True)
        click.echo("error[bug]: this is a bug in autorecipe; please report the lines above", err=True)
        return 70
    return result if isinstance(result, int) else 0


def _wants_json(arguments: Sequence[str]) -> bool:
    return "--format=json" in arguments or ("--format", "json") in itertools.pairwise(arguments)


def _problem_of(error: click.ClickException) -> Problem:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "autorecipe"
    return Problem(code="usage", message=error.format_message(), hint=f"`{path} --help` lists what is legal")


def _report(problems: Sequence[Problem], *, as_json: bool) -> None:
    if as_json:
        rows = [{"code": p.code, "path": p.path, "message": p.message, "hint": p.hint} for p in problems]
        click.echo(json.dumps({"errors": rows}, ensure_ascii=False, indent=2), err=True)
        return
    for problem in problems:
        click.echo(problem.render(), err=True)
