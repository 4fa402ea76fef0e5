"""Packages that upstream imports and this machine lacks: importable, and empty.

Every name of such a package exists and is a class, which can be named, subclassed, decorated with and asked `isinstance`. Two
kinds of mark: objects of inert ones accept any call (whoever only reads a configuration needs no more), objects of strict ones
refuse (a training run must not go on with nothing in place of a result). Leaves out: which packages those are, which the
callers know.
"""

from __future__ import annotations

import abc
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def mark_packages(
    versions: Mapping[str, str], *, strict: bool, only_absent: bool = True, fill: Callable[[ModuleType], None] | None = None
) -> MarkFinder:
    """Put marks before every other importer, and answer version queries for them.

    Args:
        versions: import root (`triton`, `megatron.energon`) -> version that satisfies whoever asks for one.
        strict: whether a mark refuses to be called for a result.
        only_absent: whether packages that are installed stay as they are.
        fill: called with each new module, to add real names.
    """
    chosen = {name: version for name, version in versions.items() if not (only_absent and is_installed(name))}
    finder = MarkFinder(chosen, strict=strict, fill=fill)
    if chosen:
        sys.meta_path.insert(0, finder)
        real = importlib.metadata.version

        def version(distribution_name: str) -> str:
            root = distribution_name.replace("-", "_").lower()
            return chosen[root] if root in chosen else real(distribution_name)

        importlib.metadata.version = version
    return finder


def add_override_decorator() -> None:
    """Add `typing.override` where Python lacks it: upstream targets 3.12, and it is the one name that it needs from there."""
    if not hasattr(typing, "override"):

        def override(method: Any) -> Any:
            return method

        typing.override = override  # type: ignore[attr-defined]


def is_installed(name: str) -> bool:
    """Return whether a package can be found, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        return False


class MarkType(abc.ABCMeta):
    """The type of marks: any attribute is another mark. An ABCMeta, because upstream mixes marks with abstract classes."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        mark = make_mark(f"{cls.__module__}.{cls.__name__}", name, strict=issubclass(cls, StrictMark))
        setattr(cls, name, mark)
        return mark

    def __getitem__(cls, parameters: Any) -> Any:
        del parameters  # generic classes: `Base[int]` is as empty as `Base`
        return cls


class Mark:
    """What a mark's class builds: takes any arguments, leaves a decorated function alone, and is itself the result of a call."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the decorated function, or this object."""
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else self


class StrictMark(Mark):
    """A mark that stands for no result."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the decorated function.

        Raises:
            RuntimeError: called for anything else.
        """
        if len(args) == 1 and not kwargs and callable(args[0]):
            return self
        kind = type(self)
        raise RuntimeError(f"{kind.__module__}.{kind.__name__} was called, and its package is not installed here")


def make_mark(module: str, name: str, *, strict: bool) -> MarkType:
    """Return an empty class.

    Args:
        module: where it seems to come from.
        name: its name.
        strict: whether its objects refuse to be called for a result.
    """
    return MarkType(name, (StrictMark if strict else Mark,), {"__module__": module})


class MarkModule(ModuleType):
    """A package in which every name exists."""

    strict = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        mark = make_mark(self.__name__, name, strict=self.strict)
        setattr(self, name, mark)
        return mark


class MarkFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads marked packages and everything below them, and remembers which were used.

    Args:
        versions: import root -> version to claim.
        strict: see `mark_packages`.
        fill: see `mark_packages`.
    """

    def __init__(self, versions: Mapping[str, str], *, strict: bool, fill: Callable[[ModuleType], None] | None = None) -> None:
        self.versions = dict(versions)
        self.strict = strict
        self.fill = fill
        self.used: set[str] = set()

    def root_of(self, fullname: str) -> str | None:
        """Return the marked root that a module lies below, or None."""
        return next((root for root in self.versions if fullname == root or fullname.startswith(f"{root}.")), None)

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return a spec for every module below a marked root."""
        del path, target
        return None if self.root_of(fullname) is None else ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Create the empty package."""
        module = MarkModule(spec.name)
        module.strict = self.strict
        module.__path__ = []
        module.__version__ = self.versions[self.root_of(spec.name) or ""]  # type: ignore[attr-defined]
        module.__file__ = f"<absent {spec.name}>"
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Let the caller add real names."""
        self.used.add(self.root_of(module.__name__) or module.__name__)
        if self.fill is not None:
            self.fill(module)
