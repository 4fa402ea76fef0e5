"""Command line of the conversions: `import`, `export` and `merge`, with the options of `autorecipe checkpoint`.

The report goes to standard output as JSON, messages to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from autorecipe.errors import AutorecipeError


def main() -> int:
    """Run the command line and return the exit code."""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # libraries print
            report = convert(_parser().parse_args())
    except AutorecipeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(report))
    return 0


def convert(given: argparse.Namespace) -> dict[str, Any]:
    """Do what a command line asks for, and return its report."""
    if given.command != "merge":
        from autorecipe.engine.hf.hub import find_folder
        from autorecipe.engine.hf.model import read_hf_model

        given.hf = find_folder(given.hf, weights=given.command == "import")
        read_hf_model(given.hf)  # refuses what is not converted before torch takes its seconds
    if given.command == "merge":
        from autorecipe.engine.adapters.merge import merge_adapter

        return merge_adapter(given.checkpoint, given.out, base=given.base)
    from autorecipe.engine.hf.convert import export_weights, import_weights

    if given.command == "import":
        return import_weights(given.hf, given.out, peft=given.peft, vocab_size=given.vocab_size)
    return export_weights(given.checkpoint, given.hf, given.out, base=given.base, merge=given.merge, vocab_size=given.vocab_size)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m autorecipe.engine.hf", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("import", "export", "merge"):
        command = commands.add_parser(name)
        command.add_argument("--out", type=Path, required=True)
        if name != "merge":
            command.add_argument("--hf", type=Path, required=True)
            command.add_argument("--vocab-size", type=int)
        if name == "import":
            command.add_argument("--peft", type=Path)
        else:
            command.add_argument("--checkpoint", type=Path, required=True)
            command.add_argument("--base", type=Path)
        if name == "export":
            command.add_argument("--merge", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
