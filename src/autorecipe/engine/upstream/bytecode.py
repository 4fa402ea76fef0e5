"""Keeps compiled Python out of upstream's trees: a checkout stays as it was, to the file.

`sys.pycache_prefix` would move the bytecode of everything, torch's too, and compile it again; this moves one tree's.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from pathlib import Path
from typing import Any


def keep_out_of(roots: Sequence[Path], folder: Path) -> None:
    """Let modules below some folders be imported as ever, with their bytecode in another folder.

    Args:
        roots: trees in which nothing may be written.
        folder: where the bytecode goes.
    """
    resolved = [root.resolve() for root in roots]

    class Loader(SourceFileLoader):
        """Reads and writes bytecode below `folder`."""

        def get_data(self, path: str) -> bytes:
            return super().get_data(_moved(path, folder))

        def set_data(self, path: str, data: Any, **options: Any) -> None:
            super().set_data(_moved(path, folder), data, **options)

    def hook(path: str) -> FileFinder:
        here = Path(path).resolve()
        if not any(here.is_relative_to(root) for root in resolved) or not here.is_dir():
            raise ImportError(f"{path} is none of the trees to keep clean")
        return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (Loader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, hook)
    for path in list(sys.path_importer_cache):
        if any(Path(path).resolve().is_relative_to(root) for root in resolved):
            del sys.path_importer_cache[path]
    importlib.invalidate_caches()


def bytecode_folder() -> Path:
    """Return where this user's compiled Python of upstream's trees is kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "autorecipe" / "bytecode"


def _moved(path: str, folder: Path) -> str:
    """Return where a bytecode file is; other files stay where they are."""
    if not path.endswith(".pyc"):
        return path
    where = Path(path).resolve()
    return str(folder.joinpath(*where.parts[1:]))
