"""Turns live configuration objects into flat JSON values, by the catalog's conventions.

dtype -> `torch.bfloat16`, callable -> `module:qualname`, enum -> `Class.NAME`, class -> `class:module:qualname`, dataclasses
and string-keyed dicts are descended with dotted keys, lists stay lists, anything else becomes `<module.Class>`.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import pathlib
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch

HOOK_FIELDS = frozenset({"pre_wrap_hooks", "post_wrap_hooks", "_pre_wrap_hooks", "_post_wrap_hooks"})
"""Runtime plumbing of model providers that is no configuration."""

MAX_DEPTH = 6


def qualified_name(thing: Any) -> str:
    """Return `module:qualname` of a class or callable; tracked subclasses answer as what they track."""
    thing = getattr(thing, "_tracked_class", thing) if isinstance(thing, type) else thing
    name = getattr(thing, "__qualname__", getattr(thing, "__name__", type(thing).__qualname__))
    return f"{getattr(thing, '__module__', '?')}:{name}"


def class_name(kind: type) -> str:
    """Return a class's name; tracked subclasses answer as what they track."""
    return str(getattr(kind, "_tracked_class", kind).__qualname__)


class ValueWriter:
    """Writes values; hides paths of the machine behind `${BRIDGE}`, `${CWD}` and `${HOME}`.

    Attributes:
        classes: path -> class of every dataclass met by `flatten` since the last `reset`.
    """

    def __init__(self, hidden_paths: Mapping[str, str]) -> None:
        self._hidden = sorted(hidden_paths.items(), key=lambda item: -len(item[0]))
        self.classes: dict[str, type] = {}

    def reset(self) -> None:
        """Forget the classes met so far."""
        self.classes = {}

    def text(self, value: str) -> str:
        """Replace machine paths in a text."""
        for path, name in self._hidden:
            value = value.replace(path, name)
        return value

    def flatten(self, prefix: str, value: Any, out: dict[str, Any], depth: int = 0) -> None:
        """Write a value under a dotted key, descending dataclasses and string-keyed dicts."""
        if _is_dataclass(value) and depth < MAX_DEPTH:
            self.classes[prefix] = getattr(type(value), "_tracked_class", type(value))
            out[f"{prefix}._class"] = class_name(type(value))
            for name, item in attributes(value):
                self.flatten(f"{prefix}.{name}", item, out, depth + 1)
        elif isinstance(value, dict) and value and depth < MAX_DEPTH and all(isinstance(key, str) for key in value):
            for name, item in value.items():
                self.flatten(f"{prefix}.{name}", item, out, depth + 1)
        else:
            out[prefix] = self.plain(value)

    def plain(self, value: Any, depth: int = 0) -> Any:
        """Return a value as JSON scalars, lists and dicts."""
        if isinstance(value, enum.Enum):
            return f"{type(value).__name__}.{value.name}"
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, torch.dtype):
            return str(value)
        if isinstance(value, pathlib.PurePath):
            return self.text(str(value))
        if isinstance(value, functools.partial):
            return self._partial(value)
        if isinstance(value, type):
            return f"class:{qualified_name(value)}"
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
            return qualified_name(value)
        if isinstance(value, types.ModuleType):
            return f"module:{value.__name__}"
        if depth > MAX_DEPTH:
            return opaque(value)
        if isinstance(value, list | tuple):
            return [self.plain(item, depth + 1) for item in value]
        if isinstance(value, set | frozenset):
            return sorted((self.plain(item, depth + 1) for item in value), key=str)
        if isinstance(value, dict):
            return {str(self.plain(key)): self.plain(item, depth + 1) for key, item in value.items()}
        return self._object(value, depth)

    def _object(self, value: Any, depth: int) -> Any:
        layout = getattr(value, "input_data", None)
        if type(value).__name__ == "PipelineParallelLayerLayout" and layout is not None:
            return self.plain(layout, depth + 1)
        if _is_dataclass(value) or _is_plain_object(value):
            items = {name: self.plain(item, depth + 1) for name, item in attributes(value)}
            return {"_class": class_name(type(value)), **items}
        return opaque(value)

    def _partial(self, value: functools.partial[Any]) -> str:
        arguments = [str(self.plain(item)) for item in value.args]
        arguments += [f"{name}={self.plain(item)}" for name, item in sorted(value.keywords.items())]
        return f"partial({', '.join([qualified_name(value.func), *arguments])})"


def attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield public attributes: declared fields in order, then whatever else was set on the object."""
    declared = [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
    known = set(declared)
    extra = [name for name in getattr(value, "__dict__", {}) if name not in known]
    for name in (*declared, *extra):
        if name.startswith("_") or name in HOOK_FIELDS:
            continue
        try:
            item = getattr(value, name)
        except AttributeError:
            continue
        yield name, item


def opaque(value: Any) -> str:
    """Return the text form of an object that is no configuration value."""
    kind = type(value)
    return f"<{kind.__module__.rpartition('.')[2]}.{class_name(kind)}>"


def _is_dataclass(value: Any) -> bool:
    return (
        dataclasses.is_dataclass(value)
        and not isinstance(value, type)
        and not isinstance(value, torch.nn.Module)
        and type(value).__name__ != "PipelineParallelLayerLayout"
        and not any(base.__module__.startswith("transformers.") for base in type(value).__mro__)
    )


def _is_plain_object(value: Any) -> bool:
    """Whether an upstream object holds nothing but values (quantization recipes are such)."""
    return (
        type(value).__module__.startswith("megatron.core.quantization")
        and not isinstance(value, torch.nn.Module)
        and hasattr(value, "__dict__")
    )
