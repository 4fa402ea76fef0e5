"""Reads the text of a type annotation with Python's own parser. See `annotations` for what the result means."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from autorecipe.config.annotations import ENUMS, TypeSpec

_SCALARS = {"bool": "bool", "int": "int", "float": "float", "str": "str", "Path": "str", "NoneType": "none", "None": "none"}
_SEQUENCES = {"list": "list", "List": "list", "Sequence": "list", "tuple": "tuple", "Tuple": "tuple", "set": "set", "Set": "set"}
_OPEN = {
    "Any": "any",
    "object": "any",
    "dict": "dict",
    "Dict": "dict",
    "Mapping": "dict",
    "dtype": "dtype",
    "Callable": "callable",
}


def read_annotation(text: str) -> TypeSpec:
    """Read an annotation; what cannot be read becomes an `object` type, never an error."""
    plain = re.sub(r"<class '([^']*)'>", r"\1", text.strip())
    try:
        return _read(ast.parse(plain, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        return TypeSpec("object", name=plain)


def _read(node: ast.expr) -> TypeSpec:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union([_read(node.left), _read(node.right)])
    if isinstance(node, ast.Constant):
        return TypeSpec("none") if node.value is None else TypeSpec("object", name=str(node.value))
    if isinstance(node, ast.Subscript):
        return _read_subscript(_name(node.value), node.slice)
    if isinstance(node, ast.Name | ast.Attribute):
        return _named(_name(node))
    return TypeSpec("object", name=ast.unparse(node))


def _read_subscript(name: str, inside: ast.expr) -> TypeSpec:
    items = list(inside.elts) if isinstance(inside, ast.Tuple) else [inside]
    if name == "Literal":
        return TypeSpec("literal", choices=tuple(ast.literal_eval(item) for item in items))
    if name == "Callable":
        return TypeSpec("callable")
    arguments = [_read(item) for item in items if not (isinstance(item, ast.Constant) and item.value is ...)]
    if name == "Optional":
        return _union([*arguments, TypeSpec("none")])
    if name == "Union":
        return _union(arguments)
    if name in _SEQUENCES:
        kind = _SEQUENCES[name]
        is_open = kind == "tuple" and len(arguments) != len(items)
        return TypeSpec("list" if is_open else kind, tuple(arguments))
    if name in ("dict", "Dict", "Mapping"):
        return TypeSpec("dict", tuple(arguments))
    return TypeSpec("object", name=name)


def _named(name: str) -> TypeSpec:
    if name in _SCALARS:
        return TypeSpec(_SCALARS[name])
    if name in _SEQUENCES:
        return TypeSpec("list" if name in ("tuple", "Tuple") else _SEQUENCES[name])
    if name in _OPEN:
        return TypeSpec(_OPEN[name])
    if name in ENUMS:
        return TypeSpec("enum", choices=ENUMS[name], name=name)
    return TypeSpec("object", name=name)


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ast.unparse(node)


def _union(members: Sequence[TypeSpec]) -> TypeSpec:
    flat: list[TypeSpec] = []
    for member in members:
        for item in member.members():
            if item not in flat:
                flat.append(item)
    return flat[0] if len(flat) == 1 else TypeSpec("union", tuple(flat))
