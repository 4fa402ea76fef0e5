"""Arithmetic list expressions such as `([0]*3+[1]*58)`, read with Python's parser and evaluated without executing code."""

from __future__ import annotations

import ast
from typing import Any


def evaluate(text: str) -> Any:
    """Evaluate lists, integers, `+` and `*`.

    Raises:
        SyntaxError, ValueError, TypeError, RecursionError, MemoryError: anything else.
    """
    return _evaluate(ast.parse(text, mode="eval").body)


def _evaluate(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.List):
        return [_evaluate(item) for item in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _evaluate(node.left), _evaluate(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        size = (len(left) if isinstance(left, list) else left) * (len(right) if isinstance(right, list) else right)
        if size > 100_000:
            raise ValueError("more than 100,000 elements")
        return left * right
    raise ValueError(f"{ast.unparse(node)!r} is not allowed")
