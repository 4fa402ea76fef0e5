"""`python -m autorecipe.engine.upstream mlm|bridge PLACE ARGUMENTS...`: see the package."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from autorecipe.engine.upstream.bytecode import bytecode_folder, keep_out_of

SCRIPTS = {"mlm": "pretrain_gpt.py", "bridge": "scripts/training/run_recipe.py"}
PACKAGES = {"mlm": "megatron/training", "bridge": "megatron/bridge"}
"""Program -> package without which there is nothing to start."""


def main(arguments: Sequence[str]) -> int:
    """Run an upstream program in this process.

    Args:
        arguments: `mlm` or `bridge`, the place, and the program's own arguments.

    Returns:
        exit status; the program's own where it exits by itself.
    """
    if len(arguments) < 2 or arguments[0] not in SCRIPTS:
        print(f"usage: python -m autorecipe.engine.upstream {'|'.join(SCRIPTS)} PLACE ARGUMENTS...", file=sys.stderr)
        return 2
    program, place, rest = arguments[0], arguments[1], list(arguments[2:])
    script = find_script(program, place)
    paths = import_paths(program, place, script)
    if script is None and not any((Path(path) / PACKAGES[program]).is_dir() for path in [*map(str, paths), *sys.path]):
        print(
            f"error[no-checkout]: {place}: neither {SCRIPTS[program]} nor {PACKAGES[program]} is there\n"
            "hint: clone the upstream repository, or unpack its wheel there",
            file=sys.stderr,
        )
        return 3
    sys.path[:0] = [str(path) for path in paths]
    keep_out_of([*paths, *upstream_trees()], bytecode_folder())
    import torch

    if not torch.cuda.is_available():
        from autorecipe.engine.upstream import host

        host.prepare(program)
    if script is None:
        return _run_installed(program, rest)
    sys.argv = [str(script), *rest]
    runpy.run_path(str(script), run_name="__main__")
    return 0


def find_script(program: str, place: str) -> Path | None:
    """Return upstream's own script at a place, or None where only its packages are."""
    if place == "-":
        return None
    path = Path(place)
    script = path if path.suffix == ".py" else path / SCRIPTS[program]
    return script if script.is_file() else None


def import_paths(program: str, place: str, script: Path | None) -> list[Path]:
    """Return what goes in front of the import path; a Bridge checkout brings its own Megatron-LM."""
    if place == "-":
        return []
    if script is None:
        return [Path(place)]
    if program == "mlm":
        return [script.parent]
    root = script.parents[2]
    paths = [script.parent, root / "src"]
    bundled = root / "3rdparty" / "Megatron-LM"
    return [*paths, bundled] if (bundled / "megatron").is_dir() else paths


def upstream_trees() -> list[Path]:
    """Return the folders of the import path that hold upstream's packages and are no installation."""
    found = [Path(path) for path in sys.path if path and (Path(path) / "megatron").is_dir()]
    return [path for path in found if path.name not in ("site-packages", "dist-packages")]


def _run_installed(program: str, arguments: list[str]) -> int:
    """Call the training function of upstream's package, which has no script beside it."""
    if program == "mlm":
        from autorecipe.engine.upstream import megatron_lm

        return megatron_lm.pretrain_gpt(arguments)
    from autorecipe.engine.upstream import megatron_bridge

    return megatron_bridge.run_recipe(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
