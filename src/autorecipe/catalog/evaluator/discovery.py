"""Finds every recipe function and every exported name of the recipe packages of a Bridge tree."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

PACKAGES = (("library", "megatron.bridge.recipes"), ("benchmark", "megatron.bridge.perf_recipes"))
"""Kind of recipe -> package that exports it."""


@dataclass
class Export:
    """One function with the names it is exported under.

    Attributes:
        kind: `library` or `benchmark`.
        function: the recipe function.
        aliases: other exported names of the same function, sorted.
    """

    kind: str
    function: Callable[..., Any]
    aliases: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The function's own name."""
        return self.function.__qualname__


@dataclass
class Discovery:
    """What was found.

    Attributes:
        exports: by kind, then module and name.
        broken_modules: module -> why it could not be imported.
        packages: recipe packages that exist.
    """

    exports: list[Export] = field(default_factory=list)
    broken_modules: dict[str, str] = field(default_factory=dict)
    packages: list[str] = field(default_factory=list)


def discover() -> Discovery:
    """Import the recipe packages and collect functions whose name contains `_config`.

    Raises:
        ModuleNotFoundError: neither recipe package exists.
    """
    found = Discovery()
    for kind, package in PACKAGES:
        try:
            root = importlib.import_module(package)
        except ModuleNotFoundError as error:
            if error.name is not None and package.startswith(error.name):
                continue
            raise
        found.packages.append(package)
        by_function: dict[tuple[str, str], Export] = {}
        names: dict[tuple[str, str], set[str]] = {}
        for module in _modules(root, found.broken_modules):
            for name, value in vars(module).items():
                if not _is_recipe(name, value, package):
                    continue
                key = (value.__module__, value.__qualname__)
                by_function.setdefault(key, Export(kind=kind, function=value))
                names.setdefault(key, set()).add(name)
        for key in sorted(by_function):
            export = by_function[key]
            export.aliases = sorted(names[key] - {key[1]})
            found.exports.append(export)
    if not found.packages:
        raise ModuleNotFoundError("the tree has neither megatron.bridge.recipes nor megatron.bridge.perf_recipes")
    return found


def _is_recipe(name: str, value: Any, package: str) -> bool:
    return (
        "_config" in name
        and not name.startswith("_")
        and inspect.isfunction(value)
        and "<locals>" not in value.__qualname__
        and f"{value.__module__}.".startswith(f"{package}.")
        and ".utils." not in value.__module__
    )


def _modules(root: ModuleType, broken: dict[str, str]) -> list[ModuleType]:
    modules = [root]
    pending = [root]
    while pending:
        package = pending.pop()
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            try:
                module = importlib.import_module(info.name)
            except Exception as error:  # upstream code may raise anything; it is reported by module
                broken[info.name] = f"{type(error).__name__}: {error}"
                continue
            modules.append(module)
            if info.ispkg:
                pending.append(module)
    return sorted(modules, key=lambda module: module.__name__)
