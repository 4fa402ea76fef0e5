"""The page that says what becomes of each option: docs/reference/launcher-options.md is written from the parsers."""

from __future__ import annotations

from autorecipe.cli.programs import benchmark, experiment, training
from autorecipe.cli.programs.refused import Parser

PROGRAMS = {
    "scripts/performance/setup_experiment.py": benchmark.make_parser,
    "scripts/training/setup_experiment.py": experiment.make_parser,
    "scripts/training/run_recipe.py": training.make_parser,
}
_HEAD = """# Options of the programs in `scripts/`

Written by `scripts/dev/write_launcher_options.py`; do not edit. Options that Megatron Bridge's programs of the same names have
are all here: they act, or have no effect and say so, or are refused by name with what to do instead. `train.sh` takes what
`scripts/training/setup_experiment.py` takes; what is not in their table is an option of `run_recipe.py`, checked as such and
passed on as typed.
"""


def render_reference() -> str:
    """Return the page."""
    parts = [_HEAD]
    for program, make_parser in PROGRAMS.items():
        parts.append(f"\n## `{program}`\n\n| option | here | what it does, or what to do |\n|---|---|---|\n")
        parts += [f"| {names} | {kind} | {text} |\n" for names, kind, text in _rows(make_parser())]
    return "".join(parts)


def _rows(parser: Parser) -> list[tuple[str, str, str]]:
    asides = {item.names: kind for kind, items in (("no effect", parser.idle), ("refused", parser.refused)) for item in items}
    rows = []
    for action in parser._actions:
        if action.option_strings and action.dest != "help":
            names = ", ".join(f"`{name}`" for name in action.option_strings)
            text = (action.help or "").replace("|", "\\|")
            rows.append((names, asides.get(tuple(action.option_strings), "acts"), text))
    return rows
