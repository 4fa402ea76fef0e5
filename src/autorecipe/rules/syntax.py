"""The predicate language of rules as text and as a tree. Start reading at `parse`.

    alternative := conjunction ("or" conjunction)*        value   := term (("+" | "-") term)*
    conjunction := negation ("and" negation)*             term    := factor (("*" | "/" | "//" | "%") factor)*
    negation    := "not" negation | comparison            factor  := "-" factor | atom
    comparison  := value (("==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not in") value)*
    atom        := NAME | NUMBER | 'TEXT' | True | False | None | NAME "(" items ")" | "(" items ")"

It is a part of Python's grammar and reads as Python does (a test compares the trees of all rules). Python's own parser is not
used because importing its node types takes longer than judging a configuration. Leaves out what a predicate means (`expression`).
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">=", "in", "not in"))

_TOKENS = re.compile(r"[A-Za-z_][\w.]*|\d+(?:\.\d+)?(?:e-?\d+)?|'[^']*'|[=!<>]=|//|[-+*/%<>(),]")
_CONSTANTS = {"True": True, "False": False, "None": None}
_RESERVED = frozenset((*_CONSTANTS, "and", "or", "not", "in"))
_END = ""


class Node:
    """A part of a predicate; two of the same kind with equal parts are equal."""

    __slots__: tuple[str, ...] = ()

    def _parts(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((type(self), self._parts()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self._parts()!r}"


class Constant(Node):
    """A number, a text, True, False or None."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def _parts(self) -> tuple[Any, ...]:
        return (type(self.value), self.value)


class Name(Node):
    """A path or a derived name, as written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Items(Node):
    """Values in parentheses."""

    __slots__ = ("items",)

    def __init__(self, items: tuple[Node, ...]) -> None:
        self.items = items


class Join(Node):
    """Parts of which all (`and`) or one (`or`) must hold."""

    __slots__ = ("parts", "word")

    def __init__(self, word: str, parts: tuple[Node, ...]) -> None:
        self.word = word
        self.parts = parts


class Not(Node):
    """What must not hold."""

    __slots__ = ("inner",)

    def __init__(self, inner: Node) -> None:
        self.inner = inner


class Negative(Node):
    """A number below zero."""

    __slots__ = ("inner",)

    def __init__(self, inner: Node) -> None:
        self.inner = inner


class Compare(Node):
    """A chain of comparisons: left, then an operator and a right side for each."""

    __slots__ = ("left", "operators", "rights")

    def __init__(self, left: Node, operators: tuple[str, ...], rights: tuple[Node, ...]) -> None:
        self.left = left
        self.operators = operators
        self.rights = rights


class Arithmetic(Node):
    """Two values and what is between them."""

    __slots__ = ("left", "operator", "right")

    def __init__(self, operator: str, left: Node, right: Node) -> None:
        self.operator = operator
        self.left = left
        self.right = right


class Call(Node):
    """A function of values."""

    __slots__ = ("arguments", "name")

    def __init__(self, name: str, arguments: tuple[Node, ...]) -> None:
        self.name = name
        self.arguments = arguments


def parse(text: str) -> Node:
    """Parse a predicate.

    Raises:
        ValueError: the text is not in the language.
    """
    if " " not in text:
        simple = _parse_simple(text)
        if simple is not None:
            return simple
    return _Parser(text).parse()


def _parse_simple(text: str) -> Node | None:
    """Read a name, or a call of a name (`isset(get(model.x))`), which most predicates are; None for anything else."""
    if "(" not in text:
        return Name(text) if _is_name(text) else None
    head, bracket, rest = text.partition("(")
    if not bracket or not rest.endswith(")") or not head.isidentifier():
        return None
    inner = _parse_simple(rest[:-1])
    return None if inner is None else Call(head, (inner,))


def _is_name(text: str) -> bool:
    return text not in _RESERVED and all(part.isidentifier() for part in text.split("."))


def plain_value(node: Node) -> Any:
    """Return the value of a constant, or of items that all are.

    Raises:
        ValueError: the node is not constant.
    """
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, Items):
        return tuple(plain_value(item) for item in node.items)
    if isinstance(node, Negative):
        return -plain_value(node.inner)
    raise ValueError(f"not a constant: {node!r}")


class _Parser:
    """Recursive descent, one method for each line of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _TOKENS.findall(text)
        if "".join(self.tokens).replace(" ", "") != "".join(text.split()):
            self._refuse()
        self.tokens.append(_END)
        self.at = 0

    def parse(self) -> Node:
        """Parse the whole text."""
        node = self._join("or")
        if self.tokens[self.at] != _END:
            self._refuse()
        return node

    def _refuse(self) -> NoReturn:
        raise ValueError(f"not a predicate: {self.text!r}")

    def _take(self, token: str) -> bool:
        if self.tokens[self.at] != token:
            return False
        self.at += 1
        return True

    def _join(self, word: str) -> Node:
        parse = self._conjunction if word == "or" else self._negation
        first = parse()
        if self.tokens[self.at] != word:
            return first
        parts = [first]
        while self._take(word):
            parts.append(parse())
        return Join(word, tuple(parts))

    def _conjunction(self) -> Node:
        return self._join("and")

    def _negation(self) -> Node:
        return Not(self._negation()) if self._take("not") else self._comparison()

    def _comparison(self) -> Node:
        left = self._value()
        operators: list[str] = []
        rights: list[Node] = []
        while True:
            token = self.tokens[self.at]
            if token == "not" and self.tokens[self.at + 1] == "in":
                self.at += 1
                token = "not in"
            if token not in COMPARISONS:
                return Compare(left, tuple(operators), tuple(rights)) if operators else left
            self.at += 1
            operators.append(token)
            rights.append(self._value())

    def _value(self) -> Node:
        left = self._term()
        while (token := self.tokens[self.at]) in ("+", "-"):
            self.at += 1
            left = Arithmetic(token, left, self._term())
        return left

    def _term(self) -> Node:
        left = self._factor()
        while (token := self.tokens[self.at]) in ("*", "/", "//", "%"):
            self.at += 1
            left = Arithmetic(token, left, self._factor())
        return left

    def _factor(self) -> Node:
        return Negative(self._factor()) if self._take("-") else self._atom()

    def _atom(self) -> Node:
        token = self.tokens[self.at]
        self.at += 1
        if token in _CONSTANTS:
            return Constant(_CONSTANTS[token])
        first = token[:1]
        if first == "'":
            return Constant(token[1:-1])
        if first.isdigit():
            return Constant(int(token) if token.isdigit() else float(token))
        if token == "(":
            items, is_single = self._items()
            return items[0] if is_single else Items(items)
        if not _is_name(token):
            self._refuse()
        if self._take("("):
            return Call(token, self._items()[0])
        return Name(token)

    def _items(self) -> tuple[tuple[Node, ...], bool]:
        """Parse up to the closing bracket; also say whether it is one value in plain brackets."""
        items: list[Node] = []
        comma = False
        while not self._take(")"):
            if items and not comma:
                self._refuse()
            items.append(self._join("or"))
            comma = self._take(",")
        return tuple(items), len(items) == 1 and not comma
