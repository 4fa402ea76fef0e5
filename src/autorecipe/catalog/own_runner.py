"""Subprocess entry: `python -m autorecipe.catalog.own_runner FILE FUNCTION` prints what the function built, as one JSON line.

What the file itself prints goes to stderr. Imports no torch; whatever the file imports is its own affair.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from autorecipe.catalog.own import HINT, DerivedRecipe, describe_derived
from autorecipe.errors import AutorecipeError, near_misses


def main(arguments: list[str]) -> int:
    """Run one function and print its configuration, or why there is none."""
    path, name = Path(arguments[0]), arguments[1]
    with contextlib.redirect_stdout(sys.stderr):
        answer = run_function(path, name)
    print(json.dumps(answer))
    return 0


def run_function(path: Path, name: str) -> dict[str, Any]:
    """Import a file and call its function."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        return {"kind": "usage", "error": f"{path} is no Python file", "hint": HINT}
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
        function = getattr(module, name, None)
        if not inspect.isfunction(function):
            return _no_function(module, path, name)
        result = function()
    except AutorecipeError as error:
        return {"kind": "usage", "error": "; ".join(problem.message for problem in error.problems), "hint": HINT}
    except Exception as error:  # the file is the user's: whatever it raises is reported with its place
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        return {"kind": "crash", "error": f"{type(error).__name__}: {error} ({where})", "hint": f"run `python {path}` to see it"}
    if not isinstance(result, DerivedRecipe):
        return {"kind": "usage", "error": f"{name}() returned {type(result).__name__}, not a derived recipe", "hint": HINT}
    return describe_derived(result, line=inspect.getsourcelines(function)[1])


def _no_function(module: Any, path: Path, name: str) -> dict[str, Any]:
    functions = [
        item for item, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    close = near_misses(name, functions) or functions[:3]
    meant = f"; it has {', '.join(close)}" if close else ""
    return {"kind": "usage", "error": f"{path.name} has no function {name!r}{meant}", "hint": HINT}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
