"""A tiny predicate language for rules, with three-valued logic.

`model` fields stand bare (`sequence_parallel`), other paths in full (`ddp.overlap_grad_reduce`), derived sizes in upper
case (`TP`, `MICROBATCHES`); `env.NAME`, `given.NAME`, `saved.PATH`, `found(PATH)` reach the rest of the context. An
expression is true, false, or `UNKNOWN` where its inputs are not known and decide. Comparing with an unset value for order
is false. Leaves out: messages (`declare`) and fixes (`repair`).
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from typing import Any

from autorecipe.rules.context import Context
from autorecipe.rules.derived import AXIS_PATHS, DERIVED
from autorecipe.rules.release import AtLeast
from autorecipe.rules.spelling import dtype_name, plain_name
from autorecipe.schema.value import UNKNOWN

SECTIONS = ("mixed_precision", "comm_overlap", "peft", "dataset")
"""Bare names that are paths of their own and no model fields."""

TRANSPARENT = ("get", "on", "name", "dtype", "lower")
"""Functions of one path that a way out may look through."""

Evaluate = Callable[[Context], Any]

ORDER = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}
ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
}


class Expression:
    """A predicate, read no further than asked: of `A and B`, `B` is compiled when `A` first holds.

    Most rules do not apply to most configurations, and reading all of them would cost more than the rest of an answer.

    Args:
        text: as written; a mistake in it is our own bug and raises `ValueError` or `SyntaxError` when it is read.
    """

    def __init__(self, text: str) -> None:
        self.text = text.strip()

    @cached_property
    def node(self) -> ast.expr:
        """The syntax tree of the whole, found to be in the language."""
        node = _parse(self.text)
        _compile(node)
        return node

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """What it reads, in order of appearance."""
        return tuple(dict.fromkeys(_paths(self.node)))

    @cached_property
    def _parts(self) -> tuple[str, ...]:
        return split_conjunction(self.text)

    def evaluate(self, context: Context) -> Any:
        """Return True, False, another value, or `UNKNOWN`."""
        parts = self._parts
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


def compile_expression(text: str) -> Expression:
    """Return a predicate; it is compiled when first used."""
    return Expression(text)


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
    return _compile(_parse(text))


def _parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def compile_node(node: ast.expr) -> Evaluate:
    """Compile a part of an expression."""
    return _compile(node)


def path_of(node: ast.expr) -> str | None:
    """Return the configuration path that a node names, seen through `get(...)` and its like, or None."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TRANSPARENT and node.args:
        return path_of(node.args[0])
    if isinstance(node, ast.Name):
        if node.id in SECTIONS:
            return node.id
        return AXIS_PATHS.get(node.id) if node.id.isupper() else f"model.{node.id}"
    if isinstance(node, ast.Attribute):
        parts = [node.attr]
        inner = node.value
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            return ".".join([inner.id, *reversed(parts)])
    return None


def _paths(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call):
        looks = isinstance(node.func, ast.Name) and node.func.id == "found"
        for argument in node.args:
            yield from (f"found.{path}" if looks else path for path in _paths(argument))
        return
    if isinstance(node, ast.Name | ast.Attribute):
        path = path_of(node)
        if path:
            yield path
        return
    for child in ast.iter_child_nodes(node):
        yield from _paths(child)


def _compile(node: ast.expr) -> Evaluate:
    if isinstance(node, ast.BoolOp):
        return _compile_bool(node)
    if isinstance(node, ast.UnaryOp):
        return _compile_unary(node)
    if isinstance(node, ast.Compare):
        return _compile_compare(node)
    if isinstance(node, ast.BinOp):
        return _compile_arithmetic(node)
    if isinstance(node, ast.Constant):
        value = node.value
        return lambda context: value
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        if all(isinstance(item, ast.Constant) for item in node.elts):
            constants = tuple(item.value for item in node.elts if isinstance(item, ast.Constant))
            return lambda context: constants
        items = [_compile(item) for item in node.elts]
        return lambda context: tuple(item(context) for item in items)
    if isinstance(node, ast.Call):
        return _compile_call(node)
    return _compile_reference(node)


def _compile_reference(node: ast.expr) -> Evaluate:
    if isinstance(node, ast.Name) and node.id.isupper():
        name = node.id
        if name not in DERIVED:
            raise ValueError(f"unknown derived name {name}")
        return lambda context: context.derived(name)
    path = path_of(node)
    if path is None:
        raise ValueError(f"not allowed in a rule: {ast.unparse(node)}")
    space, _, rest = path.partition(".")
    if space == "env":
        return lambda context: context.env(rest)
    if space == "given":
        return lambda context: context.given.get(rest, UNKNOWN)
    if space == "saved":
        return lambda context: context.saved.get(rest, UNKNOWN)
    return lambda context: context.values.get(path, UNKNOWN)


def _compile_bool(node: ast.BoolOp) -> Evaluate:
    parts = [_compile(part) for part in node.values]
    decisive = isinstance(node.op, ast.Or)

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


def _compile_unary(node: ast.UnaryOp) -> Evaluate:
    inner = _compile(node.operand)
    if isinstance(node.op, ast.Not):

        def negate(context: Context) -> Any:
            value = inner(context)
            return UNKNOWN if value is UNKNOWN else not value

        return negate
    if isinstance(node.op, ast.USub):
        return lambda context: -inner(context)
    raise ValueError(f"not allowed in a rule: {ast.unparse(node)}")


def _compile_compare(node: ast.Compare) -> Evaluate:
    if len(node.ops) == 1:
        return _compile_single(node)
    operands = [_compile(item) for item in (node.left, *node.comparators)]
    tests = [_comparison(op) for op in node.ops]

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


def _compile_single(node: ast.Compare) -> Evaluate:
    left, right = _compile(node.left), _compile(node.comparators[0])
    op = node.ops[0]
    test = _comparison(op)

    def evaluate(context: Context) -> Any:
        first = left(context)
        if first is UNKNOWN:
            return UNKNOWN
        second = right(context)
        if isinstance(first, AtLeast):
            return _against_bound(first, second, op)
        return UNKNOWN if second is UNKNOWN else test(first, second)

    return evaluate


def _against_bound(bound: AtLeast, other: Any, op: ast.cmpop) -> Any:
    """Compare a lower bound: decided where it is high enough, `UNKNOWN` elsewhere."""
    if not isinstance(other, tuple) or not bound.is_at_least(other):
        return UNKNOWN
    return {ast.GtE: True, ast.Lt: False}.get(type(op), UNKNOWN)


def _comparison(op: ast.cmpop) -> Callable[[Any, Any], bool]:
    if isinstance(op, ast.Eq):
        return lambda left, right: bool(left == right)
    if isinstance(op, ast.NotEq):
        return lambda left, right: bool(left != right)
    if isinstance(op, ast.In):
        return _contained
    if isinstance(op, ast.NotIn):
        return lambda left, right: not _contained(left, right)
    compare = ORDER[type(op)]

    def ordered(left: Any, right: Any) -> bool:
        try:
            return bool(compare(left, right))
        except TypeError:
            return False

    return ordered


def _contained(item: Any, container: Any) -> bool:
    try:
        return item in container
    except TypeError:
        return False


def _compile_arithmetic(node: ast.BinOp) -> Evaluate:
    left, right = _compile(node.left), _compile(node.right)
    apply = ARITHMETIC[type(node.op)]

    def evaluate(context: Context) -> Any:
        first, second = left(context), right(context)
        if first is UNKNOWN or second is UNKNOWN or first is None or second is None:
            return UNKNOWN
        try:
            return apply(first, second)
        except (TypeError, ZeroDivisionError):
            return UNKNOWN

    return evaluate


def _items(value: Any) -> tuple[str, ...]:
    if value in (None, "", (), []):
        return ()
    return tuple(plain_name(item) for item in (value if isinstance(value, list | tuple | set) else [value]))


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "isset": lambda value: value is not None,
    "unset": lambda value: value is None,
    "empty": lambda value: value in (None, "", (), [], {}),
    "has": lambda value, *names: any(name in _items(value) for name in names),
    "within": lambda value, allowed: set(_items(value)) <= set(allowed),
    "count": lambda value: len(value) if isinstance(value, list | tuple | set | dict | str) else 0,
    "islist": lambda value: isinstance(value, list | tuple),
    "istext": lambda value: isinstance(value, str),
    "isnumber": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "name": lambda value: None if value is None else plain_name(value),
    "dtype": lambda value: None if value is None else dtype_name(value),
    "lower": lambda value: "" if value is None else str(value).lower(),
    "product": lambda value: math.prod(value) if isinstance(value, list | tuple) else value,
    "version": lambda text: _release(text),
    "contains": lambda value, text: text in str(value) if value is not None else False,
    "lcm": lambda *values: math.lcm(*(value for value in values if isinstance(value, int))),
}
"""Functions over values; an unknown argument makes the result unknown."""


def _compile_call(node: ast.Call) -> Evaluate:
    if not isinstance(node.func, ast.Name):
        raise ValueError(f"not allowed in a rule: {ast.unparse(node)}")
    arguments = [_compile(argument) for argument in node.args]
    if node.func.id == "found":
        target = arguments[0]

        def look(context: Context) -> Any:
            path = target(context)
            return path if path is None or path is UNKNOWN else context.found.get(str(path), UNKNOWN)

        return look
    if node.func.id == "get":
        inner = arguments[0]

        def known(context: Context) -> Any:
            value = inner(context)
            return None if value is UNKNOWN else value

        return known
    if node.func.id == "on":
        target = arguments[0]

        def is_on(context: Context) -> Any:
            value = target(context)
            return False if value is UNKNOWN else bool(value)

        return is_on
    function = FUNCTIONS[node.func.id]
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
