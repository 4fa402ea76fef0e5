"""Predicates in words: `not on(ddp.overlap_grad_reduce)` reads `ddp.overlap_grad_reduce off`.

Start reading at `render_condition`.
"""

from __future__ import annotations

from collections.abc import Iterable

from autorecipe.rules.expression import TRANSPARENT
from autorecipe.rules.syntax import Arithmetic, Call, Compare, Constant, Items, Join, Name, Negative, Node, Not

OPERATORS = {"*": "x", "//": "/"}
"""Signs that are shown otherwise than they are written."""


def render_condition(node: Node) -> str:
    """Render a predicate; alternatives that only cover an unset field are left out."""
    if isinstance(node, Join):
        if node.word == "or":
            kept = [part for part in node.parts if not _is_unset(part)] or node.parts
            return " or ".join(_grouped(part, "and") for part in kept)
        return " and ".join(_grouped(part, "or") for part in node.parts)
    if isinstance(node, Not):
        return _negated(node.inner)
    if isinstance(node, Compare):
        return _comparison(node)
    if isinstance(node, Call):
        return _call(node)
    return render_value_of(node)


def render_value_of(node: Node) -> str:
    """Render a value: a path, a number, an arithmetic term."""
    if isinstance(node, Constant):
        return "unset" if node.value is None else str(node.value).lower() if isinstance(node.value, bool) else str(node.value)
    if isinstance(node, Items):
        return ", ".join(render_value_of(item) for item in node.items)
    if isinstance(node, Arithmetic):
        return f"{_term(node.left)} {OPERATORS.get(node.operator, node.operator)} {_term(node.right)}"
    if isinstance(node, Negative):
        return f"-{render_value_of(node.inner)}"
    if isinstance(node, Call):
        return _call(node)
    if isinstance(node, Name):
        return node.text
    return render_condition(node)


def _term(node: Node) -> str:
    text = render_value_of(node)
    if isinstance(node, Call) and " " in text:
        return f"({text})"
    return f"({text})" if isinstance(node, Arithmetic) and node.operator in "+-" else text


def _grouped(node: Node, word: str) -> str:
    text = render_condition(node)
    return f"({text})" if isinstance(node, Join) and node.word == word and " " in text else text


def _is_unset(node: Node) -> bool:
    return isinstance(node, Call) and node.name == "unset"


def _negated(node: Node) -> str:
    if isinstance(node, Call):
        subject = render_value_of(node.arguments[0]) if node.arguments else ""
        if node.name == "on":
            return f"{subject} off"
        if node.name == "has":
            return f"no {_choices(node.arguments[1:])} in {subject}"
        if node.name == "contains":
            return f"no {render_value_of(node.arguments[1])} in {subject}"
        if node.name == "isset":
            return f"{subject} unset"
        if node.name == "empty":
            return f"{subject} given"
    if isinstance(node, Join) and node.word == "and":
        return "not both " + " and ".join(_grouped(part, "or") for part in node.parts)
    if isinstance(node, Join):
        return " and ".join(_negated(part) for part in node.parts)
    if isinstance(node, Name):
        return f"{node.text} off"
    return f"not ({render_condition(node)})"


def _comparison(node: Compare) -> str:
    text = render_value_of(node.left)
    for sign, right in zip(node.operators, node.rights, strict=True):
        value = render_value_of(right)
        if sign in ("in", "not in"):
            listed = (" is one of " if sign == "in" else " is none of ") + value
            text += listed if isinstance(right, Items) else f" {sign} {value}"
        elif isinstance(right, Constant) and right.value is None:
            text += " is unset" if sign == "==" else " is set"
        else:
            text += f" {sign} {value}"
    return text


def _call(node: Call) -> str:
    name, arguments = node.name, node.arguments
    subject = render_value_of(arguments[0]) if arguments else ""
    if name in TRANSPARENT or name == "islist":
        return subject
    if name == "version":
        return subject
    if name in ("isset", "unset"):
        return f"{subject} {'set' if name == 'isset' else 'unset'}"
    if name == "empty":
        return f"{subject} empty"
    if name == "has":
        return f"{_choices(arguments[1:])} in {subject}"
    if name == "contains":
        return f"{render_value_of(arguments[1])} in {subject}"
    if name == "within":
        return f"{subject} within {render_value_of(arguments[1])}"
    if name == "count":
        return f"length of {subject}"
    if name == "found":
        return f"what lies at {subject}"
    return f"{name} of {subject}" if len(arguments) == 1 else f"{name}({', '.join(render_value_of(item) for item in arguments)})"


def _choices(nodes: Iterable[Node]) -> str:
    return " or ".join(render_value_of(item) for item in nodes)
