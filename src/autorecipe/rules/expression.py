"""A tiny predicate language for rules, with three-valued logic.

`model` fields stand bare (`sequence_parallel`), other paths in full (`ddp.overlap_grad_reduce`), derived sizes in upper
case (`TP`, `MICROBATCHES`); `env.NAME`, `given.NAME`, `saved.PATH`, `found(PATH)` reach the rest of the context. An
expression is true, false, or `UNKNOWN` where its inputs are not known and decide. Comparing with an unset value for order
is false. Leaves out: messages (`declare`) and fixes (`repair`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from typing import Any

from autorecipe.rules.context import Context
from autorecipe.rules.derived import AXIS_PATHS, DERIVED
from autorecipe.rules.functions import FUNCTIONS
from autorecipe.rules.release import AtLeast
from autorecipe.rules.syntax import (
    Arithmetic,
    Call,
    Compare,
    Constant,
    Items,
    Join,
    Name,
    Negative,
    Node,
    Not,
    parse,
    plain_value,
)
from autorecipe.schema.value import UNKNOWN

SECTIONS = ("mixed_precision", "comm_overlap", "peft", "dataset")
"""Bare names that are paths of their own and no model fields."""

TRANSPARENT = ("get", "on", "name", "dtype", "lower")
"""Functions of one path that a way out may look through."""

Evaluate = Callable[[Context], Any]

ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
ARITHMETIC = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "/": operator.truediv,
}


class Expression:
    """A predicate to be read, not judged (see `evaluate`).

    Args:
        text: as written; a mistake in it is our own bug and raises `ValueError` when it is read.
    """

    def __init__(self, text: str) -> None:
        self.text = text.strip()

    @cached_property
    def node(self) -> Node:
        """The syntax tree of the whole, found to be in the language."""
        node = parse(self.text)
        compile_node(node)
        return node

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """What it reads, in order of appearance."""
        return tuple(dict.fromkeys(paths_of(self.node)))


def evaluate(text: str, context: Context) -> Any:
    """Return True, False, another value, or `UNKNOWN`.

    A predicate is read no further than asked: of `A and B`, `B` is compiled when `A` first holds. Most rules do not apply to most
    configurations, and reading all of them would cost more than the rest of an answer.
    """
    parts = split_conjunction(text)
    if len(parts) == 1:
        return _compile_text(parts[0])(context)
    unknown = False
    for part in parts:
        value = _compile_text(part)(context)
        if value is UNKNOWN:
            unknown = True
        elif not value:
            return False
    return UNKNOWN if unknown else True


@lru_cache(maxsize=4096)
def split_conjunction(text: str) -> tuple[str, ...]:
    """Split `A and B` into its parts, without a parser; a text of any other form is one part."""
    parts: list[str] = []
    held = ""
    for piece in text.split(" and "):
        held = f"{held} and {piece}" if held else piece
        if _is_closed(held):
            if " or " in held and _has_bare_or(held):
                return (text,)
            parts.append(held)
            held = ""
    return (text,) if held else tuple(parts)


def _is_closed(text: str) -> bool:
    return all(text.count(left) == text.count(right) for left, right in ("()", "[]", "{}")) and not (
        text.count("'") % 2 or text.count('"') % 2
    )


def _has_bare_or(text: str) -> bool:
    """Return whether ` or ` stands outside all brackets; inside quotes counts too, which only costs the split."""
    start = text.find(" or ")
    while start >= 0:
        if _is_closed(text[:start]):
            return True
        start = text.find(" or ", start + 1)
    return False


@lru_cache(maxsize=4096)
def _compile_text(text: str) -> Evaluate:
    return compile_node(parse(text))


def path_of(node: Node) -> str | None:
    """Return the configuration path that a node names, seen through `get(...)` and its like, or None."""
    if isinstance(node, Call) and node.name in TRANSPARENT and node.arguments:
        return path_of(node.arguments[0])
    if not isinstance(node, Name):
        return None
    text = node.text
    if "." in text or text in SECTIONS:
        return text
    return AXIS_PATHS.get(text) if text.isupper() else f"model.{text}"


def paths_of(node: Node) -> Iterator[str]:
    """Yield the paths that a node reads."""
    if isinstance(node, Call):
        for argument in node.arguments:
            yield from (f"found.{path}" if node.name == "found" else path for path in paths_of(argument))
    elif isinstance(node, Name):
        path = path_of(node)
        if path:
            yield path
    else:
        for child in _children(node):
            yield from paths_of(child)


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Join):
        return node.parts
    if isinstance(node, Compare):
        return (node.left, *node.rights)
    if isinstance(node, Arithmetic):
        return (node.left, node.right)
    if isinstance(node, Items):
        return node.items
    return (node.inner,) if isinstance(node, Not | Negative) else ()


def compile_node(node: Node) -> Evaluate:
    """Compile a part of an expression.

    Raises:
        ValueError: an unknown function or derived name.
    """
    return COMPILERS[type(node)](node)


def _compile_constant(node: Constant) -> Evaluate:
    value = node.value
    return lambda context: value


def _compile_items(node: Items) -> Evaluate:
    if all(isinstance(item, Constant) for item in node.items):
        constants = plain_value(node)
        return lambda context: constants
    items = [compile_node(item) for item in node.items]
    return lambda context: tuple(item(context) for item in items)


def _compile_name(node: Name) -> Evaluate:
    name = node.text
    if name.isupper():
        if name not in DERIVED:
            raise ValueError(f"unknown derived name {name}")
        return lambda context: context.derived(name)
    path = name if "." in name or name in SECTIONS else f"model.{name}"
    space, _, rest = path.partition(".")
    if space == "env":
        return lambda context: context.env(rest)
    if space == "given":
        return lambda context: context.given.get(rest, UNKNOWN)
    if space == "saved":
        return lambda context: context.saved.get(rest, UNKNOWN)
    return lambda context: context.values.get(path, UNKNOWN)


def _compile_join(node: Join) -> Evaluate:
    parts = [compile_node(part) for part in node.parts]
    decisive = node.word == "or"

    def evaluate(context: Context) -> Any:
        unknown = False
        for part in parts:
            value = part(context)
            if value is UNKNOWN:
                unknown = True
            elif bool(value) is decisive:
                return decisive
        return UNKNOWN if unknown else not decisive

    return evaluate


def _compile_not(node: Not) -> Evaluate:
    inner = compile_node(node.inner)

    def negate(context: Context) -> Any:
        value = inner(context)
        return UNKNOWN if value is UNKNOWN else not value

    return negate


def _compile_negative(node: Negative) -> Evaluate:
    inner = compile_node(node.inner)
    return lambda context: -inner(context)


def _compile_compare(node: Compare) -> Evaluate:
    if len(node.operators) == 1:
        return _compile_single(node)
    operands = [compile_node(item) for item in (node.left, *node.rights)]
    tests = [_comparison(operator) for operator in node.operators]

    def evaluate(context: Context) -> Any:
        left = operands[0](context)
        outcome: Any = True
        for test, operand in zip(tests, operands[1:], strict=True):
            right = operand(context)
            if left is UNKNOWN or right is UNKNOWN:
                outcome = UNKNOWN
            elif not test(left, right):
                return False
            left = right
        return outcome

    return evaluate


def _compile_single(node: Compare) -> Evaluate:
    left, right = compile_node(node.left), compile_node(node.rights[0])
    sign = node.operators[0]
    test = _comparison(sign)

    def evaluate(context: Context) -> Any:
        first = left(context)
        if first is UNKNOWN:
            return UNKNOWN
        second = right(context)
        if isinstance(first, AtLeast):
            return _against_bound(first, second, sign)
        return UNKNOWN if second is UNKNOWN else test(first, second)

    return evaluate


def _against_bound(bound: AtLeast, other: Any, sign: str) -> Any:
    """Compare a lower bound: decided where it is high enough, `UNKNOWN` elsewhere."""
    if not isinstance(other, tuple) or not bound.is_at_least(other):
        return UNKNOWN
    return {">=": True, "<": False}.get(sign, UNKNOWN)


def _equal(left: Any, right: Any) -> bool:
    return bool(left == right)


def _different(left: Any, right: Any) -> bool:
    return bool(left != right)


def _contained(item: Any, container: Any) -> bool:
    try:
        return item in container
    except TypeError:
        return False


def _missing(item: Any, container: Any) -> bool:
    return not _contained(item, container)


def _ordered(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    def ordered(left: Any, right: Any) -> bool:
        try:
            return bool(compare(left, right))
        except TypeError:
            return False

    return ordered


TESTS = {
    "==": _equal,
    "!=": _different,
    "in": _contained,
    "not in": _missing,
    **{sign: _ordered(compare) for sign, compare in ORDER.items()},
}


def _comparison(sign: str) -> Callable[[Any, Any], bool]:
    return TESTS[sign]


def _compile_arithmetic(node: Arithmetic) -> Evaluate:
    left, right = compile_node(node.left), compile_node(node.right)
    apply = ARITHMETIC[node.operator]

    def evaluate(context: Context) -> Any:
        first, second = left(context), right(context)
        if first is UNKNOWN or second is UNKNOWN or first is None or second is None:
            return UNKNOWN
        try:
            return apply(first, second)
        except (TypeError, ZeroDivisionError):
            return UNKNOWN

    return evaluate


def _compile_call(node: Call) -> Evaluate:
    arguments = [compile_node(argument) for argument in node.arguments]
    if node.name == "found":
        target = arguments[0]

        def look(context: Context) -> Any:
            path = target(context)
            return path if path is None or path is UNKNOWN else context.found.get(str(path), UNKNOWN)

        return look
    if node.name == "get":
        inner = arguments[0]

        def known(context: Context) -> Any:
            value = inner(context)
            return None if value is UNKNOWN else value

        return known
    if node.name == "on":
        target = arguments[0]

        def is_on(context: Context) -> Any:
            value = target(context)
            return False if value is UNKNOWN else bool(value)

        return is_on
    function = FUNCTIONS.get(node.name)
    if function is None:
        raise ValueError(f"unknown function {node.name}")
    if len(arguments) == 1:
        only = arguments[0]

        def evaluate_one(context: Context) -> Any:
            value = only(context)
            return UNKNOWN if value is UNKNOWN else function(value)

        return evaluate_one

    def evaluate(context: Context) -> Any:
        values = [argument(context) for argument in arguments]
        return UNKNOWN if any(value is UNKNOWN for value in values) else function(*values)

    return evaluate


COMPILERS: dict[type[Node], Callable[[Any], Evaluate]] = {
    Constant: _compile_constant,
    Name: _compile_name,
    Items: _compile_items,
    Join: _compile_join,
    Not: _compile_not,
    Negative: _compile_negative,
    Compare: _compile_compare,
    Arithmetic: _compile_arithmetic,
    Call: _compile_call,
}
