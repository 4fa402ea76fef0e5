"""The configuration schema of a release, from the dataclasses of its tree."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

REQUIRED = "<required>"
"""Stands for the default of a field that has none."""


def schema_lines(
    raw: Mapping[str, Mapping[str, Any]], sections: Mapping[str, list[str]], records: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return one line per configuration path: type and default, and the classes that declare it (subclasses implied).

    Args:
        raw: described bases by id.
        sections: path -> ids of the classes that its annotation allows.
        records: evaluated recipes, which may use classes that no annotation names.
    """
    classes: dict[str, set[str]] = {path: set(ids) for path, ids in sections.items()}
    for record in records:
        for path, base_id in record.get("bases", {}).items():
            start = raw[base_id]["on"].get("", base_id)
            if start.startswith("class:"):
                classes.setdefault(path, set()).add(start)
    fields: dict[str, dict[str, Any]] = {}
    for path, class_ids in classes.items():
        for class_id in sorted(class_ids, key=_generality):
            description = raw[class_id]
            for name, declared in description["types"].items():
                full = f"{path}.{name}" if path else name
                line = fields.setdefault(full, {"path": full, "type": declared})
                if "." in path:  # variants of an object; a section's classes are one model or data set with other fields
                    line["type"] = _merge_choices(line["type"], declared)
                line.setdefault("default", _default(description["fields"], name))
                declaring = line.setdefault("classes", [])
                if not any(_inherits(raw, class_id, other) for other in declaring):
                    declaring.append(class_id)
    for path in sorted({path for record in records for path in record.get("fields", {})} - fields.keys()):
        if not path.endswith("_class"):
            # Written to an object that does not declare it, or a key inside a dictionary: legal upstream, without a type.
            fields[path] = {"path": path, "type": "undeclared", "default": None, "classes": []}
    for line in fields.values():
        line["classes"] = [class_id.rpartition(":")[2] for class_id in line["classes"]]
    return [fields[path] for path in sorted(fields)]


def _merge_choices(known: str, declared: str) -> str:
    """Return a type that takes the choices of both: variants of an object may declare one field with choices of their own."""
    choices = [_choices(known), _choices(declared)]
    if None in choices or choices[0] == choices[1]:
        return known
    merged = dict.fromkeys(choice for found in choices for choice in found or ())
    return f"Literal[{', '.join(map(repr, merged))}]"


def _choices(declared: str) -> tuple[Any, ...] | None:
    """Return what a `Literal[...]` allows, or None for another type."""
    inside = declared.removeprefix("Literal[").removesuffix("]")
    return tuple(ast.literal_eval(f"({inside},)")) if declared == f"Literal[{inside}]" else None


def _default(fields: Mapping[str, Any], name: str) -> Any:
    """Return a field's class default; a nested object's own defaults stand at its own paths."""
    if name in fields:
        return fields[name]
    return fields[f"{name}._class"] if f"{name}._class" in fields else _nested(fields, name)


def _nested(fields: Mapping[str, Any], name: str) -> Any:
    inside = {path.removeprefix(f"{name}."): value for path, value in fields.items() if path.startswith(f"{name}.")}
    return inside or REQUIRED


def subclasses_of(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return class name -> names of every class below it."""
    below: dict[str, set[str]] = {}
    for class_id in raw:
        parent = raw[class_id].get("parent")
        while parent is not None:
            below.setdefault(parent.rpartition(":")[2], set()).add(class_id.rpartition(":")[2])
            parent = raw[parent].get("parent")
    return {name: sorted(names - {name}) for name, names in sorted(below.items()) if names - {name}}


def _inherits(raw: Mapping[str, Mapping[str, Any]], class_id: str, ancestor: str) -> bool:
    while class_id != ancestor:
        parent = raw[class_id].get("parent")
        if parent is None:
            return False
        class_id = parent
    return True


def _generality(class_id: str) -> tuple[int, str]:
    """Order classes so that the most general provider's default is the one a schema shows."""
    name = class_id.rpartition(":")[2]
    first = ("GPTModelProvider", "GPTDatasetConfig", "LoRA")
    return (first.index(name) if name in first else len(first), class_id)
