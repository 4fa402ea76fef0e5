"""Records which attributes of a model provider a recipe wrote itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WRITES = "_tracked_writes"

_subclasses: dict[type, type] = {}


def track(provider: Any, *, rebase: Callable[[Any], Any] | None = None) -> Any:
    """Make an object remember every later attribute write.

    Args:
        provider: any object with a `__dict__`; it stays the same object.
        rebase: called with the result of `to_text_provider()`, which hands out another provider; returns what to hand out.

    Returns:
        the same object.
    """
    kind = type(provider)
    if kind not in _subclasses:
        _subclasses[kind] = _subclass(kind, rebase)
    object.__setattr__(provider, "__class__", _subclasses[kind])
    provider.__dict__[WRITES] = {}
    return provider


def written(provider: Any) -> set[str] | None:
    """Return the names written since `track`, or None for an object that is not tracked."""
    writes = getattr(provider, "__dict__", {}).get(WRITES)
    return None if writes is None else set(writes)


def _subclass(kind: Any, rebase: Callable[[Any], Any] | None) -> type:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        writes = self.__dict__.get(WRITES)
        if writes is not None and name != WRITES:
            writes[name] = True
        kind.__setattr__(self, name, value)

    members: dict[str, Any] = {
        "__setattr__": __setattr__,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "_tracked_class": kind,
    }
    if rebase is not None and hasattr(kind, "to_text_provider"):

        def to_text_provider(self: Any, *args: Any, **kwargs: Any) -> Any:
            return rebase(kind.to_text_provider(self, *args, **kwargs))

        members["to_text_provider"] = to_text_provider
    return type(kind.__name__, (kind,), members)
