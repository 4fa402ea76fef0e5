"""Predicates are read as Python reads them, and part by part when first needed: what is skipped changes nothing."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autorecipe.rules import syntax
from autorecipe.rules.context import Context
from autorecipe.rules.declare import Adjustment, Requirement
from autorecipe.rules.expression import compile_node, evaluate, split_conjunction
from autorecipe.rules.registry import all_rules
from autorecipe.rules.situation import read_situation
from autorecipe.schema.value import UNKNOWN

PREDICATES = sorted({text for rule in all_rules() if isinstance(rule, Requirement | Adjustment) for text in rule.predicates})
SIGNS = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}


def from_python(node: ast.expr) -> syntax.Node:
    """Turn Python's tree into ours."""
    match node:
        case ast.BoolOp(op=op, values=values):
            return syntax.Join("or" if isinstance(op, ast.Or) else "and", tuple(map(from_python, values)))
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return syntax.Not(from_python(inner))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return syntax.Negative(from_python(inner))
        case ast.Compare(left=left, ops=ops, comparators=rights):
            return syntax.Compare(from_python(left), tuple(SIGNS[type(op)] for op in ops), tuple(map(from_python, rights)))
        case ast.BinOp(left=left, op=op, right=right):
            return syntax.Arithmetic(SIGNS[type(op)], from_python(left), from_python(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return syntax.Call(name, tuple(map(from_python, arguments)))
        case ast.Tuple(elts=items):
            return syntax.Items(tuple(map(from_python, items)))
        case ast.Constant(value=value):
            return syntax.Constant(value)
        case ast.Name() | ast.Attribute():
            return syntax.Name(ast.unparse(node))
    raise TypeError(ast.dump(node))


def read_by_python(text: str) -> syntax.Node:
    return from_python(ast.parse(text, mode="eval").body)


def test_every_predicate_is_read_as_python_reads_it() -> None:
    assert len(PREDICATES) > 700
    for text in PREDICATES:
        assert syntax.parse(text) == read_by_python(text), text
        compile_node(syntax.parse(text))


names = st.sampled_from(["a", "model.x", "ddp.overlap_grad_reduce", "TP", "env.NAME"])
atoms = names | st.sampled_from(
    ["0", "12", "1.5", "'text'", "'a and (b'", "True", "None", "()", "('x',)", "(1, 2)", "has(a, 'x', 'y')", "f()"]
)
texts = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from([*SIGNS.values(), "and", "or"]), inner),
        st.builds("({})".format, inner),
        st.builds("not {}".format, inner),
        st.builds("-{}".format, inner),
        st.builds("isset({})".format, inner),
        st.builds("on(get({}))".format, names),
    ),
    max_leaves=6,
)


@given(texts)
def test_any_text_of_the_language_is_read_as_python_reads_it(text: str) -> None:
    try:
        expected = read_by_python(text)
    except SyntaxError:  # such as `1 + not a`
        with pytest.raises(ValueError, match="not a predicate"):
            syntax.parse(text)
        return
    assert syntax.parse(text) == expected


REFUSED = ["", "a b", "a ==", "(a", "a)", "a and", "f(a", "a = 1", "a; b", "a.", "a..b", "x[0]", '"a"', "f(a b)", "f(a.)", "(a.)"]


@pytest.mark.parametrize("text", [*REFUSED, "lambda: 1", "a.1", "1a", "not", "and a"])
def test_what_is_not_in_the_language_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a predicate"):
        syntax.parse(text)


@pytest.mark.parametrize(("text", "says"), [("nothing(a)", "unknown function"), ("WIDTH > 1", "unknown derived name")])
def test_unknown_words_are_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        compile_node(syntax.parse(text))


def test_the_split_agrees_with_the_parser() -> None:
    split = 0
    for text in PREDICATES:
        parts = split_conjunction(text)
        if len(parts) == 1:
            assert parts == (text,)
            continue
        split += 1
        assert syntax.parse(text) == syntax.Join("and", tuple(syntax.parse(part) for part in parts))
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


def test_lazy_and_whole_evaluation_agree() -> None:
    for rule in all_rules()[::9]:
        situation = read_situation(rule.bad)
        for text in PREDICATES[::3]:
            lazy = outcome(lambda context, text=text: evaluate(text, context), situation.context())
            assert lazy == outcome(compile_node(syntax.parse(text)), situation.context()), text


def outcome(judge: Callable[[Context], object], context: Context) -> object:
    """Return what an evaluation gives; rules guard some parts by others, so out of place a part may fail."""
    try:
        value = judge(context)
    except (TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
        return type(error)
    return ("unknown",) if value is UNKNOWN else value
