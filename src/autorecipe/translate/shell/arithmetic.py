"""Integer arithmetic of `$(( ))` and `(( ))`: the operators of C that launch scripts use, without assignments."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+)|(?P<name>\$?\{?[A-Za-z_]\w*\}?)|(?P<operator>\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>!~?:()&|^]))"
)
_BINARY: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {"<": lambda a, b: int(a < b), ">": lambda a, b: int(a > b), "<=": lambda a, b: int(a <= b), ">=": lambda a, b: int(a >= b)},
    {"<<": operator.lshift, ">>": operator.rshift},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": lambda a, b: _divide(a, b), "%": lambda a, b: a - b * _divide(a, b)},
)
"""Binary operators from the loosest to the tightest."""

_LARGEST_SHIFT = 62
_LARGEST_POWER = 62


class _Undecided(Exception):
    """A value is not known, or the expression is outside what is understood."""


def evaluate(text: str, lookup: Callable[[str], int | None]) -> int | None:
    """Return an expression's value, or None where a part of it is not known or not understood.

    Args:
        text: what stands between the parentheses; variables as `NAME`, `$NAME` or `${NAME}`.
        lookup: value of a variable, or None.
    """
    tokens: list[str] = []
    position = 0
    while position < len(text.rstrip()):
        found = _TOKEN.match(text, position)
        if found is None:
            return None
        tokens.append(found[0].strip())
        position = found.end()
    parser = _Parser(tokens, lookup)
    try:
        value = parser.conditional()
    except (_Undecided, ZeroDivisionError, RecursionError):
        return None
    return value if parser.position == len(tokens) else None


def _divide(a: int, b: int) -> int:
    """Divide towards zero, as the shell does."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


class _Parser:
    def __init__(self, tokens: list[str], lookup: Callable[[str], int | None]) -> None:
        self.tokens = tokens
        self.lookup = lookup
        self.position = 0

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if not token or (expected is not None and token != expected):
            raise _Undecided
        self.position += 1
        return token

    def conditional(self) -> int:
        value = self.binary(0)
        if self.peek() != "?":
            return value
        self.take("?")
        yes = self.conditional()
        self.take(":")
        no = self.conditional()
        return yes if value else no

    def binary(self, level: int) -> int:
        if level == len(_BINARY):
            return self.power()
        value = self.binary(level + 1)
        while (token := self.peek()) in _BINARY[level]:
            self.take()
            right = self.binary(level + 1)
            if token in ("<<", ">>") and not 0 <= right <= _LARGEST_SHIFT:
                raise _Undecided
            value = _BINARY[level][token](value, right)
        return value

    def power(self) -> int:
        value = self.unary()
        if self.peek() != "**":
            return value
        self.take()
        exponent = self.power()
        if not 0 <= exponent <= _LARGEST_POWER:
            raise _Undecided
        return int(value**exponent)

    def unary(self) -> int:
        token = self.take()
        if token == "-":
            return -self.unary()
        if token == "+":
            return self.unary()
        if token == "!":
            return int(not self.unary())
        if token == "~":
            return ~self.unary()
        if token == "(":
            value = self.conditional()
            self.take(")")
            return value
        if token.isdigit():
            return int(token, 8) if len(token) > 1 and token.startswith("0") and set(token) <= set("01234567") else int(token)
        if re.fullmatch(r"\$?\{?[A-Za-z_]\w*\}?", token):
            known = self.lookup(token.strip("${}"))
            if known is None:
                raise _Undecided
            return known
        raise _Undecided
