"""Predicates in words: `not on(ddp.overlap_grad_reduce)` reads `ddp.overlap_grad_reduce off`.

Start reading at `render_condition`.
"""

from __future__ import annotations

import ast

from autorecipe.rules.expression import TRANSPARENT

OPERATORS: dict[type[ast.AST], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "x",
    ast.FloorDiv: "/",
    ast.Div: "/",
    ast.Mod: "%",
}


def render_condition(node: ast.expr) -> str:
    """Render a predicate; alternatives that only cover an unset field are left out."""
    if isinstance(node, ast.BoolOp):
        parts = list(node.values)
        if isinstance(node.op, ast.Or):
            kept = [part for part in parts if not _is_unset(part)] or parts
            return " or ".join(_grouped(part, ast.And) for part in kept)
        return " and ".join(_grouped(part, ast.Or) for part in parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _negated(node.operand)
    if isinstance(node, ast.Compare):
        return _comparison(node)
    if isinstance(node, ast.Call):
        return _call(node)
    return render_value_of(node)


def render_value_of(node: ast.expr) -> str:
    """Render a value: a path, a number, an arithmetic term."""
    if isinstance(node, ast.Constant):
        return "unset" if node.value is None else str(node.value).lower() if isinstance(node.value, bool) else str(node.value)
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return ", ".join(render_value_of(item) for item in node.elts)
    if isinstance(node, ast.BinOp):
        return f"{_term(node.left)} {OPERATORS[type(node.op)]} {_term(node.right)}"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return f"-{render_value_of(node.operand)}"
    if isinstance(node, ast.Call):
        return _call(node)
    return ast.unparse(node)


def _term(node: ast.expr) -> str:
    text = render_value_of(node)
    if isinstance(node, ast.Call) and " " in text:
        return f"({text})"
    return f"({text})" if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) else text


def _grouped(node: ast.expr, kind: type[ast.boolop]) -> str:
    text = render_condition(node)
    return f"({text})" if isinstance(node, ast.BoolOp) and isinstance(node.op, kind) and " " in text else text


def _is_unset(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "unset"


def _negated(node: ast.expr) -> str:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        subject = render_value_of(node.args[0]) if node.args else ""
        if node.func.id == "on":
            return f"{subject} off"
        if node.func.id == "has":
            return f"no {_choices(node.args[1:])} in {subject}"
        if node.func.id == "contains":
            return f"no {render_value_of(node.args[1])} in {subject}"
        if node.func.id == "isset":
            return f"{subject} unset"
        if node.func.id == "empty":
            return f"{subject} given"
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return "not both " + " and ".join(_grouped(part, ast.Or) for part in node.values)
    if isinstance(node, ast.BoolOp):
        return " and ".join(_negated(part) for part in node.values)
    if isinstance(node, ast.Name | ast.Attribute):
        return f"{ast.unparse(node)} off"
    return f"not ({render_condition(node)})"


def _comparison(node: ast.Compare) -> str:
    left = render_value_of(node.left)
    text = left
    for op, right in zip(node.ops, node.comparators, strict=True):
        value = render_value_of(right)
        if isinstance(op, ast.In | ast.NotIn):
            text += (
                (" is one of " if isinstance(op, ast.In) else " is none of ") + value
                if isinstance(right, ast.Tuple)
                else (f" in {value}" if isinstance(op, ast.In) else f" not in {value}")
            )
        elif isinstance(right, ast.Constant) and right.value is None:
            text += " is unset" if isinstance(op, ast.Eq) else " is set"
        else:
            text += f" {OPERATORS[type(op)]} {value}"
    return text


def _call(node: ast.Call) -> str:
    assert isinstance(node.func, ast.Name)
    name, arguments = node.func.id, node.args
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


def _choices(nodes: list[ast.expr]) -> str:
    return " or ".join(render_value_of(item) for item in nodes)
