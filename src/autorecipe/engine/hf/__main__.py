"""Command line of the conversion: `import --hf DIR --out DIR`, `export --checkpoint DIR --hf DIR --out DIR`.

The report goes to standard output as JSON, messages to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path

from autorecipe.engine.hf.convert import export_weights, import_weights
from autorecipe.errors import AutorecipeError


def main() -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m autorecipe.engine.hf", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("import", "export"):
        command = commands.add_parser(name)
        command.add_argument("--hf", type=Path, required=True)
        command.add_argument("--out", type=Path, required=True)
        if name == "export":
            command.add_argument("--checkpoint", type=Path, required=True)
    given = parser.parse_args()
    try:
        with contextlib.redirect_stdout(sys.stderr):  # libraries print
            if given.command == "import":
                report = import_weights(given.hf, given.out)
            else:
                report = export_weights(given.checkpoint, given.hf, given.out)
    except AutorecipeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
