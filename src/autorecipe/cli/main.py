"""Entry point, command table and exit codes.

Commands are imported only when they run, and click only where it is needed (see `direct`), so that starts stay fast. To add a
command: write `cli/NAME.py` with a click command, and add a line to `COMMANDS`.
"""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from autorecipe.errors import AutorecipeError, Problem
from autorecipe.record import dataclass


@dataclass(frozen=True)
class LazyCommand:
    """Where a command lives and the one line that help shows for it."""

    target: str
    short_help: str


COMMANDS: dict[str, LazyCommand] = {
    "estimate": LazyCommand("autorecipe.cli.estimate:estimate", "Will it fit, and how fast: memory and time of a training step."),
    "check": LazyCommand("autorecipe.cli.check:check", "Find what cannot run, or trains something else, before the GPUs do."),
    "explain": LazyCommand("autorecipe.cli.explain:explain", "Show what a rule, a code or a configuration field means."),
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

SPEAKING = ("recommend", "check")
"""Commands that take `--lang`."""

EXIT_CODES = "Exit codes: 0 fine, 1 the answer is no, 2 usage, 3 environment, 70 a bug in autorecipe."


PIPE_CLOSED = 141
"""Exit code where the reader of the output went away: 128 + SIGPIPE, as of other programs; 0 would hide a "no"."""


def run(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with the promised code."""
    code = execute(args)
    gc.freeze()  # the process ends: searching what is left for cycles would take as long as reading a question
    sys.exit(code)


def execute(args: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; errors go to stderr, all at once."""
    arguments = list(sys.argv[1:] if args is None else args)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # an ASCII terminal shows the rest
    try:
        code = _dispatch(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except AutorecipeError as error:
        _report(error.problems, as_json=_wants(arguments, "--format", "json"), lang=_language(arguments))
        return error.exit_code
    except BrokenPipeError:
        drop_output()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        import errno

        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and error.filename is None:
            drop_output()
            print(f"error[unwritable]: the output cannot be written: {error.strerror}", file=sys.stderr)
            return 3
        import traceback

        print(traceback.format_exc(), file=sys.stderr)
        print("error[bug]: this is a bug in autorecipe; please report the lines above", file=sys.stderr)
        return 70


def drop_output() -> None:
    """Send what is still to be written nowhere: nobody reads it, or it has no place."""
    import os

    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - it lives until the process ends


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["recommend"]:
        from autorecipe.cli.direct import read_directly

        line = read_directly(arguments[1:])
        if line is not None:
            return _reply_uncollected(line)
    from autorecipe.cli.group import invoke

    return invoke(arguments)


def _reply_uncollected(line: dict[str, Any]) -> int:
    """Answer without the garbage collector: modules and the answer are made once and kept."""
    gc.disable()
    try:
        from autorecipe.cli.reply import reply

        return reply(**line)
    finally:
        gc.enable()


def _wants(arguments: Sequence[str], option: str, value: str) -> bool:
    return f"{option}={value}" in arguments or (option, value) in zip(arguments, arguments[1:], strict=False)  # noqa: RUF007 - one import less


def _language(arguments: Sequence[str]) -> str:
    """Return the language of errors: the one that a command with `--lang` was asked for."""
    return "ja" if "".join(arguments[:1]) in SPEAKING and _wants(arguments, "--lang", "ja") else "en"


def _report(problems: Sequence[Problem], *, as_json: bool, lang: str) -> None:
    if lang == "ja":
        from autorecipe.recommend.problems_ja import say_problem

        problems = [say_problem(problem) for problem in problems]
    if as_json:
        import json

        rows = [{"code": p.code, "path": p.path, "message": p.message, "hint": p.hint} for p in problems]
        print(json.dumps({"errors": rows}, ensure_ascii=False, indent=2), file=sys.stderr)
        return
    words = {"error": "エラー", "hint": "ヒント"} if lang == "ja" else {}
    for problem in problems:
        print(problem.render(**words), file=sys.stderr)
