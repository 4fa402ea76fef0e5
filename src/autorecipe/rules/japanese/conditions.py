"""Predicates in Japanese: `not on(ddp.overlap_grad_reduce)` reads `ddp.overlap_grad_reduce が無効`. The sibling of `wording`.

Start reading at `say_condition`.
"""

from __future__ import annotations

from collections.abc import Iterable

from autorecipe.rules.expression import TRANSPARENT
from autorecipe.rules.syntax import Arithmetic, Call, Compare, Constant, Items, Join, Name, Negative, Node, Not
from autorecipe.rules.wording import OPERATORS

UNSET = "未指定"

KINDS = {"empty": "空", "isnumber": "数値", "islist": "一覧", "istext": "テキスト"}
"""Functions that tell what kind of value it is."""


def say_condition(node: Node) -> str:
    """Say a predicate; alternatives that only cover an unset field are left out, as in English."""
    if isinstance(node, Join):
        if node.word == "or":
            kept = [part for part in node.parts if not (isinstance(part, Call) and part.name == "unset")] or node.parts
            return "、または ".join(_grouped(part, "and") for part in kept)
        return "、かつ ".join(_grouped(part, "or") for part in node.parts)
    if isinstance(node, Not):
        return _negated(node.inner)
    if isinstance(node, Compare):
        return _comparison(node)
    if isinstance(node, Call):
        return _call(node)
    if isinstance(node, Name):
        return f"{node.text} が有効"
    return say_value(node)


def say_value(node: Node) -> str:
    """Say a value: a path, a number, an arithmetic term."""
    if isinstance(node, Constant):
        return UNSET if node.value is None else str(node.value).lower() if isinstance(node.value, bool) else str(node.value)
    if isinstance(node, Items):
        return "、".join(say_value(item) for item in node.items)
    if isinstance(node, Arithmetic):
        return f"{_term(node.left)} {OPERATORS.get(node.operator, node.operator)} {_term(node.right)}"
    if isinstance(node, Negative):
        return f"-{say_value(node.inner)}"
    if isinstance(node, Call):
        return _quantity(node)
    if isinstance(node, Name):
        return node.text
    return f"「{say_condition(node)}」"


def _term(node: Node) -> str:
    text = say_value(node)
    return f"({text})" if isinstance(node, Arithmetic) and node.operator in "+-" else text


def _grouped(node: Node, word: str) -> str:
    text = say_condition(node)
    return f"({text})" if isinstance(node, Join) and node.word == word else text


def _negated(node: Node) -> str:
    if isinstance(node, Call):
        subject = say_value(node.arguments[0]) if node.arguments else ""
        if node.name == "on":
            return f"{subject} が無効"
        if node.name in ("has", "contains"):
            items = [say_value(item) for item in node.arguments[1:]]
            several = " も ".join(items) + " も含まれない"
            return f"{subject} に {items[0]} が含まれない" if len(items) == 1 else f"{subject} に {several}"
        if node.name == "isset":
            return f"{subject} が{UNSET}"
        if node.name in KINDS:
            return f"{subject} が{KINDS[node.name]}でない"
    if isinstance(node, Join) and node.word == "and":
        return "と".join(f"「{say_condition(part)}」" for part in node.parts) + "を同時に満たさない"
    if isinstance(node, Join):
        return "、かつ ".join(_negated(part) for part in node.parts)
    if isinstance(node, Name):
        return f"{node.text} が無効"
    return f"「{say_condition(node)}」ではない"


def _comparison(node: Compare) -> str:
    text = say_value(node.left)
    if len(node.operators) == 1:
        sign, right = node.operators[0], node.rights[0]
        if sign in ("in", "not in") and isinstance(right, Items):
            return f"{_subject(text)}が{_one_of(right.items)}のいずれ" + ("か" if sign == "in" else "でもない")
        if sign in ("in", "not in"):
            return f"{say_value(right)} に {text} が含まれ" + ("る" if sign == "in" else "ない")
        if isinstance(right, Constant) and right.value is None:
            return f"{_subject(text)}が" + (UNSET if sign == "==" else "指定されている")
    for sign, right in zip(node.operators, node.rights, strict=True):
        text += f" {sign} {say_value(right)}"
    return text


def _call(node: Call) -> str:
    name, arguments = node.name, node.arguments
    subject = say_value(arguments[0]) if arguments else ""
    if name == "isset":
        return f"{subject} が指定されている"
    if name == "unset":
        return f"{subject} が{UNSET}"
    if name in KINDS:
        return f"{subject} が{KINDS[name]}"
    if name in ("has", "contains"):
        items = [say_value(item) for item in arguments[1:]]
        return f"{subject} に {_either(items)}が含まれる"
    if name == "within":
        return f"{subject} がすべて{_one_of(arguments[1].items if isinstance(arguments[1], Items) else arguments[1:])}のいずれか"
    if name in TRANSPARENT:
        return f"{subject} が有効"
    return _quantity(node)


def _quantity(node: Call) -> str:
    """Say a call that stands for a value."""
    name, arguments = node.name, node.arguments
    subject = say_value(arguments[0]) if arguments else ""
    if name in ("isset", "unset", "empty", "has", "contains", "within", *KINDS):
        return f"「{_call(node)}」"
    if name in TRANSPARENT or name == "version":
        return subject
    if name == "count":
        return f"{subject} の長さ"
    if name == "found":
        return f"{subject} にあるもの"
    return f"{name}({'、'.join(say_value(item) for item in arguments)})"


def _one_of(items: Iterable[Node]) -> str:
    """List values; Japanese sets Latin words off by spaces."""
    text = "、".join(say_value(item) for item in items)
    return ("" if text.startswith(UNSET) else " ") + text + ("" if text.endswith(UNSET) else " ")


def _subject(text: str) -> str:
    return f"{text} " if text[-1].isascii() else text


def _either(items: list[str]) -> str:
    return " か ".join(items) + " "
