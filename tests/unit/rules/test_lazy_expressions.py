"""Predicates are compiled part by part, when first needed: what is skipped must not change what is found."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Callable, Iterator

import pytest

from autorecipe.rules import declare
from autorecipe.rules.context import Context
from autorecipe.rules.expression import Expression, compile_node, split_conjunction
from autorecipe.rules.registry import FAMILIES, all_rules
from autorecipe.rules.situation import read_situation
from autorecipe.schema.value import UNKNOWN

MODULES = [module for modules in FAMILIES.values() for module in modules]


@pytest.fixture(scope="module")
def expressions() -> Iterator[list[Expression]]:
    """Every predicate of every rule, as written."""
    found: list[Expression] = []

    def record(text: str) -> Expression:
        found.append(Expression(text))
        return found[-1]

    patch = pytest.MonkeyPatch()
    patch.setattr(declare, "compile_expression", record)
    for module in MODULES:
        runpy.run_module(f"autorecipe.rules.families.{module}")
    patch.undo()
    yield found


def test_every_predicate_is_in_the_language(expressions: list[Expression]) -> None:
    assert len(expressions) > len(all_rules())
    for expression in expressions:
        assert isinstance(expression.node, ast.expr), expression.text


def test_the_split_agrees_with_the_parser(expressions: list[Expression]) -> None:
    split = 0
    for expression in expressions:
        parts = split_conjunction(expression.text)
        node = expression.node
        if len(parts) == 1:
            assert parts == (expression.text,)
            continue
        split += 1
        assert isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And), expression.text
        assert [ast.dump(ast.parse(part, mode="eval").body) for part in parts] == [ast.dump(value) for value in node.values]
    assert split > 100


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a", ("a",)),
        ("a and b", ("a", "b")),
        ("not a and b > 1 and c", ("not a", "b > 1", "c")),
        ("(a and b) and c", ("(a and b)", "c")),
        ("a and (b or c)", ("a", "(b or c)")),
        ("a and b or c", ("a and b or c",)),
        ("a or b and c", ("a or b and c",)),
        ("has(x, 'p and q') and b", ("has(x, 'p and q')", "b")),
        ("has(x, 'p (and q') and b", ("has(x, 'p (and q') and b",)),
    ],
)
def test_only_a_plain_conjunction_is_split(text: str, parts: tuple[str, ...]) -> None:
    assert split_conjunction(text) == parts


def test_lazy_and_whole_evaluation_agree(expressions: list[Expression]) -> None:
    for rule in all_rules()[::9]:
        situation = read_situation(rule.bad)
        for expression in expressions[::3]:
            lazy = outcome(expression.evaluate, situation.context())
            assert lazy == outcome(compile_node(expression.node), situation.context()), expression.text


def outcome(evaluate: Callable[[Context], object], context: Context) -> object:
    """Return what an evaluation gives; rules guard some parts by others, so out of place a part may fail."""
    try:
        value = evaluate(context)
    except (TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
        return type(error)
    return ("unknown",) if value is UNKNOWN else value
