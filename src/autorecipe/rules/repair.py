"""Ways out of a broken predicate, derived from its own text.

A failing requirement is met by its smallest change (`not a` -> a=false, `a == 1` -> a=1), or the condition that calls for
it is switched off. Proposals are only candidates: `check.py` keeps those that hold when checked again.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

from autorecipe.rules.context import Context
from autorecipe.rules.derived import AXIS_PATHS
from autorecipe.rules.expression import compile_node, path_of
from autorecipe.rules.syntax import Arithmetic, Call, Compare, Join, Name, Node, Not, plain_value
from autorecipe.schema import Fix
from autorecipe.schema.value import UNKNOWN

ARCHITECTURE = r"^model\.\w*(num_(?!layers_in)|_dim$|_rank$|hidden_size|_heads|_groups$)"
"""Sizes of the model: a rule is never silenced by unsetting one."""

UNFIXABLE = ("gpu", "package.", "given.", "saved.", "dataset._class", "model._class")
DTYPE_VALUES = {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16"}
LIMIT = 4
ESSENTIAL = frozenset(
    {
        "gpus",
        "train.global_batch_size",
        "train.micro_batch_size",
        "dataset.seq_length",
        "model.num_layers",
        "model.hidden_size",
        "model.num_attention_heads",
        "model.num_query_groups",
        "model.num_moe_experts",
        "model.params_dtype",
    }
)
"""What a run is about: never unset, and never switched on, to silence a rule."""

Change = dict[str, Any]


def propose_fixes(when: Node | None, needs: list[Node], context: Context) -> tuple[Fix, ...]:
    """Return candidate fixes: meet all failing needs at once, or switch the condition off."""
    options = [list(itertools.islice(meet(need, context), LIMIT)) for need in needs]
    changes: list[Change] = []
    if options and all(options):
        for combination in itertools.islice(itertools.product(*options), LIMIT):
            merged: Change = {}
            for change in combination:
                merged |= change
            changes.append(merged)
    if when is not None:
        changes += itertools.islice(deny(when, context), LIMIT)
    unique: list[Change] = []
    for change in changes:
        if change and change not in unique and not any(path.startswith(UNFIXABLE) and path != "gpus" for path in change):
            unique.append(change)
    return tuple(Fix(overrides=change) for change in unique)


def meet(node: Node, context: Context) -> Iterator[Change]:
    """Yield changes that make an expression true."""
    if isinstance(node, Join):
        parts = [part for part in node.parts if compile_node(part)(context) is not True]
        if node.word == "or":
            for part in parts:
                yield from meet(part, context)
            return
        options = [list(itertools.islice(meet(part, context), 2)) for part in parts]
        for combination in itertools.product(*options):
            merged: Change = {}
            for change in combination:
                merged |= change
            yield merged
        return
    if isinstance(node, Not):
        yield from deny(node.inner, context)
        return
    if isinstance(node, Compare) and len(node.operators) == 1:
        yield from _meet_comparison(node, context)
        return
    if isinstance(node, Call) and node.arguments:
        path = path_of(node.arguments[0])
        if path in ESSENTIAL:
            return
        if path and node.name == "unset":
            yield {path: None}
        elif path and node.name == "empty":
            yield {path: [] if isinstance(context.get(path), list | tuple) else None}
        elif path and node.name == "on":
            yield {path: True}
        return
    path = path_of(node)
    if path and path not in ESSENTIAL and isinstance(context.get(path, False), bool):
        yield {path: True}


def deny(node: Node, context: Context) -> Iterator[Change]:
    """Yield changes that make an expression false."""
    if isinstance(node, Join):
        if node.word == "and":
            for part in reversed(node.parts):
                yield from deny(part, context)
            return
        merged: Change = {}
        for part in node.parts:
            if compile_node(part)(context) is UNKNOWN or not compile_node(part)(context):
                continue
            first = next(deny(part, context), None)
            if first is None:
                return
            merged |= first
        yield merged
        return
    if isinstance(node, Not):
        yield from meet(node.inner, context)
        return
    if isinstance(node, Compare) and len(node.operators) == 1:
        path, value = _operands(node)
        if path and path not in ESSENTIAL and node.operators[0] == ">" and isinstance(value, int) and value >= 1:
            yield {path: (None if path.endswith("virtual_pipeline_model_parallel_size") else value)}
        return
    if isinstance(node, Call) and node.arguments:
        path = path_of(node.arguments[0])
        if path in ESSENTIAL or (path and re.search(ARCHITECTURE, path)):
            return
        if path and node.name in ("isset", "on"):
            current = context.get(path)
            yield {path: False if isinstance(current, bool) and node.name == "on" else None}
        elif path and node.name == "has":
            current = context.get(path)
            names = {plain_value(item) for item in node.arguments[1:]}
            if isinstance(current, list | tuple):
                yield {path: [item for item in current if str(item).rsplit(".", 1)[-1].lower() not in names]}
        return
    path = path_of(node)
    if path and isinstance(context.get(path), bool):
        yield {path: False}
    elif path and path not in ESSENTIAL and path not in AXIS_PATHS.values() and isinstance(node, Name):
        yield {path: None}


def _meet_division(node: Arithmetic, context: Context) -> Iterator[Change]:
    """Yield divisors of the left side nearest to the right one, for each size that the right side is made of."""
    number, size = compile_node(node.left)(context), compile_node(node.right)(context)
    if not isinstance(number, int) or not isinstance(size, int) or number < 1 or size < 1:
        return
    for factor in _factors(node.right):
        path, now = path_of(factor), compile_node(factor)(context)
        if path is None or path in ESSENTIAL or not isinstance(now, int) or size % now:
            continue
        rest = size // now
        fitting = [
            candidate for candidate in range(1, min(2 * now, 4096) + 1) if candidate != now and number % (candidate * rest) == 0
        ]
        for candidate in sorted(fitting, key=lambda candidate: (abs(candidate - now), candidate))[:2]:
            yield {path: candidate}


def _factors(node: Node) -> list[Node]:
    if isinstance(node, Arithmetic) and node.operator == "*":
        return [*_factors(node.left), *_factors(node.right)]
    return [node]


def _operands(node: Compare) -> tuple[str | None, Any]:
    left = node.left
    wrapped = ""
    if isinstance(left, Call) and left.name in ("name", "dtype", "lower"):
        wrapped, left = left.name, left.arguments[0]
    path = path_of(left)
    try:
        value = plain_value(node.rights[0])
    except ValueError:
        return None, None
    if wrapped == "dtype" and isinstance(value, str):
        value = DTYPE_VALUES.get(value, value)
    return path, value


def _meet_comparison(node: Compare, context: Context) -> Iterator[Change]:
    path, value = _operands(node)
    sign = node.operators[0]
    if path == "gpus":
        return
    if sign == "==" and value == 0 and isinstance(node.left, Arithmetic) and node.left.operator == "%":
        yield from _meet_division(node.left, context)
        return
    if path is None:
        own = path_of(node.left)
        if own and isinstance(node.left, Name | Call) and sign in ("==", ">=", "<="):
            wanted = compile_node(node.rights[0])(context)
            if isinstance(wanted, str | int | float | bool) and own not in ESSENTIAL:
                yield {own: wanted}
        return
    if sign == "in" and isinstance(value, tuple | list | set):
        for item in value:
            yield {path: item}
    elif sign in ("==", ">=", "<="):
        yield {path: value}
    elif sign == ">" and isinstance(value, int):
        yield {path: value + 1}
