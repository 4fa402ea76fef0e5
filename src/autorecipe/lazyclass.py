"""`dataclass` that writes a class's methods when the class is first used, and not when its module is imported.

The standard decorator compiles six methods for each class, some 0.4 ms; a command imports a hundred classes and uses a few
dozen. Everything else is the standard decorator's, which does the work in the end.
"""

from __future__ import annotations

import dataclasses
from _thread import RLock
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        """Declare a dataclass; options as in `dataclasses.dataclass`.

        One with `slots` is another class than the one decorated, and is made at once.
        """
        if cls is None:
            return lambda decorated: dataclass(decorated, **options)
        if options.get("slots"):
            return dataclasses.dataclass(cls, **options)
        pending = _Pending(cls, options)
        for name in _names(options):
            if name not in cls.__dict__:
                setattr(cls, name, _Method(pending, name))
                pending.names.append(name)
        return cls


_ALWAYS = ("__dataclass_fields__", "__dataclass_params__", "__match_args__", "__init__", "__repr__", "__eq__", "__hash__")
_FROZEN = ("__setattr__", "__delattr__")
_ORDER = ("__lt__", "__le__", "__gt__", "__ge__")
_COMPARING = frozenset(("__repr__", "__eq__", "__hash__"))
_LOCK = RLock()


def _names(options: dict[str, Any]) -> tuple[str, ...]:
    return _ALWAYS + (_FROZEN if options.get("frozen") else ()) + (_ORDER if options.get("order") else ())


class _Pending:
    """A class whose methods are still to be written."""

    def __init__(self, cls: type, options: dict[str, Any]) -> None:
        self.cls = cls
        self.options = options
        self.names: list[str] = []

    def write(self) -> None:
        """Write the methods, once."""
        with _LOCK:
            names, self.names = self.names, []
            for name in names:
                delattr(self.cls, name)
            if names:
                _write(self.cls, self.options)


def _write(cls: type, options: dict[str, Any]) -> None:
    """Let the standard decorator write the methods, except those that need no compiler."""
    if not options.keys() <= {"frozen", "kw_only"} or not _COMPARING.isdisjoint(cls.__dict__):
        dataclasses.dataclass(cls, **options)
        return
    dataclasses.dataclass(cls, repr=False, eq=False, **options)
    fields = dataclasses.fields(cls)
    read = _reader([field.name for field in fields if field.compare])
    read_hashed = _reader([field.name for field in fields if (field.compare if field.hash is None else field.hash)])
    shown = [field.name for field in fields if field.repr]

    @recursive_repr()
    def __repr__(self: object) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def __eq__(self: object, other: object) -> Any:
        return read(self) == read(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:
        return hash(read_hashed(self))

    for method in (__repr__, __eq__, __hash__):
        method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
        setattr(cls, method.__name__, method)
    if not options.get("frozen"):
        setattr(cls, "__hash__", None)  # noqa: B010 - as the standard decorator does


def _reader(names: list[str]) -> Callable[[object], Any]:
    """Return a function from an instance to its values, which compare and hash like the tuple of them."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda instance: tuple(getattr(instance, name) for name in names)


class _Method:
    """Stands for one attribute of a pending class; whoever reads it gets the real one."""

    def __init__(self, pending: _Pending, name: str) -> None:
        self.pending = pending
        self.name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        self.pending.write()
        real = next(base.__dict__[self.name] for base in self.pending.cls.__mro__ if self.name in base.__dict__)
        return real.__get__(instance, owner) if hasattr(real, "__get__") else real
