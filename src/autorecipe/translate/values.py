"""Values of Megatron-LM options: from text, to text, and when two are equal."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import Any

from autorecipe.schema.option import MlmOption
from autorecipe.schema.value import FieldValue

_DTYPES = {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16", "fp8": "torch.uint8"}
_MAX_LIST = 100_000


class ValueProblem(ValueError):
    """A text that an option does not accept; the message says why."""


def is_flag(option: MlmOption) -> bool:
    """Return whether an option takes no value."""
    return (
        option.type.startswith("flag(") or option.type == "BooleanOptionalAction" or (option.type == "bool" and _has_pair(option))
    )


def _has_pair(option: MlmOption) -> bool:
    return any(name.startswith("--no-") for name in option.flag.split()[1:])


def takes_many(option: MlmOption) -> bool:
    """Return whether an option takes several values."""
    return option.nargs in ("+", "*") or option.nargs.isdigit()


def parse_flag(option: MlmOption, name: str) -> bool:
    """Return the value that a flag without a value stores.

    Args:
        option: a flag.
        name: flag as given; `--no-NAME` of a pair stores False.
    """
    if option.type == "flag(store_false)":
        return False
    if option.type == "flag(store_true)":
        return True
    return not (name.startswith("--no-") and name != option.flag.split()[0])


def parse_values(option: MlmOption, texts: Sequence[str]) -> FieldValue:
    """Parse the values of an option.

    Args:
        option: an option that takes values.
        texts: as given; one for most options.

    Raises:
        ValueProblem: a wrong type, number of values, or choice.
    """
    if option.nargs.isdigit() and len(texts) != int(option.nargs):
        raise ValueProblem(f"takes {option.nargs} values, not {len(texts)}")
    if option.nargs != "*" and not texts:
        raise ValueProblem("needs a value")
    if takes_many(option):
        return [_parse_one(option, text) for text in texts]
    return _parse_one(option, texts[0])


def _parse_one(option: MlmOption, text: str) -> FieldValue:
    value = _convert(option.type, text)
    choices = [str(enum_member(choice)) if option.type == "enum_type_handler" else choice for choice in option.choices]
    if choices and text not in choices:
        raise ValueProblem(f"{text!r} is not one of {', '.join(choices)}")
    return value


def _convert(kind: str, text: str) -> FieldValue:
    try:
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
        if kind == "bool":
            return bool(text)
        if kind in ("moe_freq_type", "la_freq_type", "no_rope_freq_type", "tuple_type"):
            return evaluate_pattern(text)
    except ValueError as error:
        raise ValueProblem(f"{text!r} is not {_NAMES.get(kind, kind)}" if kind in _NAMES else str(error)) from error
    return text


_NAMES = {"int": "a whole number", "float": "a number"}


def evaluate_pattern(text: str) -> FieldValue:
    """Evaluate a list pattern such as `([0]*3+[1]*58)`: whole numbers, lists, tuples, `+` and `*`, nothing else.

    Raises:
        ValueProblem: anything else.
    """
    try:
        return _evaluate(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError) as error:
        raise ValueProblem(f"{text!r} is neither a whole number nor a list pattern such as ([0]*3+[1]*58)") from error


def _evaluate(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _evaluate(node.operand)
        if isinstance(inner, int):
            return -inner
    if isinstance(node, ast.List | ast.Tuple):
        return [_evaluate(item) for item in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _evaluate(node.left), _evaluate(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, list) == isinstance(right, list):
            return left + right
        if isinstance(node.op, ast.Mult) and not (isinstance(left, list) and isinstance(right, list)):
            size = len(left) * right if isinstance(left, list) else len(right) * left if isinstance(right, list) else 0
            if size > _MAX_LIST:
                raise ValueProblem(f"makes a list of {size} entries")
            return left * right
    raise ValueProblem("only whole numbers, lists, + and * may stand in a list pattern")


def to_dtype(text: FieldValue) -> FieldValue:
    """Turn Megatron-LM's dtype name into the catalog's; `auto` is unset."""
    if text is None or text == "auto":
        return None
    return _DTYPES.get(str(text), text)


def from_dtype(value: FieldValue) -> FieldValue:
    """Undo `to_dtype`."""
    if value is None:
        return "auto"
    return next((name for name, dtype in _DTYPES.items() if dtype == value), value)


def enum_member(value: FieldValue) -> FieldValue:
    """Return the member name of an enum in any spelling: `<AttnBackend.auto: 5>`, `AttnBackend.auto`, `auto`."""
    if not isinstance(value, str):
        return value
    return value.strip("<>").split(":")[0].rsplit(".", 1)[-1].strip()


def same_value(left: FieldValue, right: FieldValue) -> bool:
    """Equality across spellings: 1 and 1.0, tuples and lists, enum members and callables by their last name."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(same_value(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, str) and isinstance(right, str):
        return left == right or (
            last_name(left) == last_name(right) and ("." in left or ":" in left) != ("." in right or ":" in right)
        )
    return bool(left == right)


def last_name(text: str) -> str:
    """Return what follows the last `.` or `:` of a dotted name."""
    return text.rsplit(":", 1)[-1].rsplit(".", 1)[-1]


def render_value_text(value: FieldValue) -> str:
    """Render a value as Megatron-LM's command line takes it."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple):
        return " ".join(render_value_text(item) for item in value)
    return str(value)


def render_pattern(value: FieldValue) -> str:
    """Render a whole number or a list as a list pattern, runs shortened: `([0]*3+[1]*58)`."""
    if not isinstance(value, list | tuple):
        return str(value)
    runs: list[tuple[Any, int]] = []
    for item in value:
        if runs and runs[-1][0] == item:
            runs[-1] = (item, runs[-1][1] + 1)
        else:
            runs.append((item, 1))
    return "(" + "+".join(f"[{item}]*{count}" for item, count in runs) + ")" if runs else "[]"
