"""Deciding `[ ... ]`, `[[ ... ]]`, `test` and `(( ... ))` over known values; None where they cannot be decided."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

from autorecipe.record import dataclass


@dataclass(frozen=True)
class Operand:
    """One word of a test.

    Attributes:
        text: its value.
        known: whether all of it is known.
        unset: name of the variable that it is and that nothing sets; empty otherwise.
    """

    text: str
    known: bool = True
    unset: str = ""


_COMPARED = {
    "-eq": lambda one, other: one == other,
    "-ne": lambda one, other: one != other,
    "-gt": lambda one, other: one > other,
    "-lt": lambda one, other: one < other,
    "-ge": lambda one, other: one >= other,
    "-le": lambda one, other: one <= other,
}
_OF_NAMES = ("-z", "-n", "-v")


def decide_test(fields: Sequence[str]) -> bool | None:
    """Decide a test over plain texts; texts with `$` or backquotes in them are not known."""
    return decide([Operand(text, known="$" not in text and "`" not in text) for text in fields])


def decide(operands: Sequence[Operand]) -> bool | None:
    """Decide a test.

    Args:
        operands: the words from `[`, `[[` or `test` on, the closing one included.
    """
    if not operands or operands[0].text not in ("[", "[[", "test"):
        return None
    inner = list(operands[1:])
    if operands[0].text != "test":
        if not inner or inner[-1].text != {"[": "]", "[[": "]]"}[operands[0].text]:
            return None
        inner = inner[:-1]
    return _Test(inner, patterns=operands[0].text == "[[").decide()


class _Test:
    """A recursive reading of one test: `or`, then `and`, then `!`, then one primary."""

    def __init__(self, words: list[Operand], *, patterns: bool) -> None:
        self.words = words
        self.patterns = patterns
        self.position = 0

    def decide(self) -> bool | None:
        value = self._either()
        return value if self.position == len(self.words) else None

    def _peek(self, ahead: int = 0) -> str:
        place = self.position + ahead
        return self.words[place].text if place < len(self.words) else ""

    def _either(self) -> bool | None:
        value = self._both()
        while self._peek() in ("||", "-o"):
            self.position += 1
            other = self._both()
            value = True if value or other else None if None in (value, other) else False
        return value

    def _both(self) -> bool | None:
        value = self._not()
        while self._peek() in ("&&", "-a"):
            self.position += 1
            other = self._not()
            value = False if value is False or other is False else None if None in (value, other) else True
        return value

    def _not(self) -> bool | None:
        if self._peek() == "!" and self.position + 1 < len(self.words):
            self.position += 1
            value = self._not()
            return None if value is None else not value
        if self._peek() == "(" and self.patterns:
            self.position += 1
            value = self._either()
            if self._peek() != ")":
                self.position = len(self.words) + 1
            self.position += 1
            return value
        return self._primary()

    def _primary(self) -> bool | None:
        left = self.words[self.position : self.position + 3]
        if not left:
            self.position += 1
            return None
        if len(left) == 3 and (left[1].text in _COMPARED or left[1].text in ("=", "==", "!=", "=~", "<", ">")):
            self.position += 3
            return self._compare(left[0], left[1].text, left[2])
        if left[0].text.startswith("-") and len(left[0].text) == 2 and len(left) >= 2 and left[1].text not in ("&&", "||"):
            self.position += 2
            return self._ask(left[0].text, left[1])
        self.position += 1
        return bool(left[0].text) if left[0].known else False if left[0].unset else None

    def _ask(self, question: str, operand: Operand) -> bool | None:
        if question not in _OF_NAMES or question == "-v":
            return None
        if operand.unset:
            return question == "-z"
        if not operand.known:
            return None
        return (operand.text == "") == (question == "-z")

    def _compare(self, left: Operand, operator: str, right: Operand) -> bool | None:
        if operator in _COMPARED:
            numbers = [item.text for item in (left, right) if item.known and re.fullmatch(r"\s*-?\d+\s*", item.text)]
            return _COMPARED[operator](int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None
        texts = ["" if item.unset else item.text for item in (left, right)]
        if not all(item.known or item.unset for item in (left, right)) or operator == "=~":
            return None
        if operator in ("<", ">"):
            return texts[0] < texts[1] if operator == "<" else texts[0] > texts[1]
        if self.patterns:
            same = fnmatch.fnmatchcase(texts[0], texts[1])
        else:
            same = texts[0] == texts[1]
        return same if operator in ("=", "==") else not same
