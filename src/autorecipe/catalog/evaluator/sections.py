"""Which classes may stand at which path of a configuration container, by its type annotations.

Recipes use a part of them; the schema of a release has to know them all, because an override may select any.
"""

from __future__ import annotations

import dataclasses
import importlib
import types
import typing
from collections.abc import Iterator
from typing import Any

from autorecipe.catalog.evaluator.container import ContainerWriter

CONTAINER = ("megatron.bridge.training.config", "ConfigContainer")
MAX_DEPTH = 2
"""Levels below a section that are described; deeper ones only where a recipe has them."""


def describe_sections(writer: ContainerWriter) -> dict[str, list[str]]:
    """Return path -> base ids of every class that its annotation allows, subclasses included; empty without a container."""
    try:
        container = getattr(importlib.import_module(CONTAINER[0]), CONTAINER[1])
    except (ModuleNotFoundError, AttributeError):
        return {}
    found: dict[str, set[str]] = {"": {writer.add_class(container, named=False)}}
    _descend(writer, container, "", found, 0)
    return {path: sorted(ids) for path, ids in sorted(found.items())}


def _descend(writer: ContainerWriter, kind: type, path: str, found: dict[str, set[str]], depth: int) -> None:
    for name, hint in _hints(kind).items():
        if name.startswith("_"):
            continue
        for member in _dataclasses_in(hint):
            child = f"{path}.{name}" if path else name
            merge = "transformer" if child == "model" else ""
            base_id = writer.add_class(member, merge=merge)
            if base_id not in found.setdefault(child, set()):
                found[child].add(base_id)
                if depth < MAX_DEPTH and child != "model":
                    _descend(writer, member, child, found, depth + 1)


def _hints(kind: type) -> dict[str, Any]:
    """Return resolved annotations of a dataclass's fields; those that name what is not importable are left out."""
    names = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    try:
        return {name: hint for name, hint in typing.get_type_hints(kind).items() if name in names}
    except (NameError, TypeError, AttributeError):
        return {
            field.name: field.type
            for field in (dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ())
            if not isinstance(field.type, str)
        }


def _dataclasses_in(hint: Any) -> Iterator[type]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        for argument in typing.get_args(hint):
            yield from _dataclasses_in(argument)
    elif isinstance(hint, type) and hint.__module__.startswith("megatron."):
        for member in _with_subclasses(hint):
            if dataclasses.is_dataclass(member) and member.__module__.startswith("megatron."):
                yield member


def _with_subclasses(kind: type) -> Iterator[type]:
    yield kind
    below: list[type] = type.__subclasses__(kind)
    for member in below:
        if "_tracked_class" not in vars(member):
            yield from _with_subclasses(member)
