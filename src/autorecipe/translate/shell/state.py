"""What is known at a point of a script: variables, what was exported, what could not be followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autorecipe.record import dataclass, field
from autorecipe.translate.shell.lexer import Word

_MOST_ARGUMENTS = 64


@dataclass(frozen=True)
class Piece:
    """A word with the line it was written on."""

    text: str
    line: int


@dataclass
class State:
    """The reader's memory.

    Attributes:
        variables: name -> its words; a plain variable has one, an array any number.
        arrays: names of arrays.
        exported: names handed on to programs.
        unresolved: what could not be followed, in words, in order.
        conditional: options inside conditions that cannot be decided.
        own_names: names that the script assigns somewhere; where none of that has run, they are empty.
        uncertain: names that only a condition gives a value to that cannot be decided.
        assumed_unset: variables that a condition asks for and nothing sets; taken as unset, and reported.
    """

    variables: dict[str, list[Piece]] = field(default_factory=dict)
    arrays: set[str] = field(default_factory=set)
    exported: set[str] = field(default_factory=set)
    unresolved: dict[str, None] = field(default_factory=dict)
    conditional: list[Piece] = field(default_factory=list)
    own_names: frozenset[str] = frozenset()
    uncertain: set[str] = field(default_factory=set)
    assumed_unset: dict[str, None] = field(default_factory=dict)

    def set_arguments(self, values: Sequence[Piece]) -> dict[str, list[Piece] | None]:
        """Set the positional parameters; those that are not given are empty. Returns what they were."""
        given: dict[str, list[Piece]] = {str(number): [value] for number, value in enumerate(values, start=1)}
        given["@"] = list(values)
        given["*"] = [Piece(" ".join(value.text for value in values), 0)]
        given["#"] = [Piece(str(len(values)), 0)]
        before = {name: self.variables.get(name) for name in (*given, *map(str, range(1, _MOST_ARGUMENTS)))}
        self.variables.update({str(number): [] for number in range(1, _MOST_ARGUMENTS)})
        self.variables.update(given)
        return before

    def restore(self, before: Mapping[str, list[Piece] | None]) -> None:
        """Give variables the values that they had."""
        for name, pieces in before.items():
            if pieces is None:
                self.variables.pop(name, None)
            else:
                self.variables[name] = pieces

    def report(self, text: str) -> None:
        """Note what could not be followed, once."""
        self.unresolved[text] = None

    def pieces_of(self, name: str) -> list[Piece] | None:
        """Return a variable's words; None for one that comes from outside."""
        pieces = self.variables.get(name)
        return [] if pieces is None and name in self.own_names and name not in self.uncertain else pieces

    def number(self, name: str) -> int | None:
        """Return a variable's value where it is a whole number."""
        pieces = self.variables.get(name)
        text = pieces[0].text.strip() if pieces else ""
        return int(text) if text.removeprefix("-").isdigit() else None


def render_word(word: Word) -> str:
    """Return a word as it was written, as far as its value goes."""
    marks = {"text": "{}", "variable": "${{{}}}", "command": "$({})", "arithmetic": "$(({}))"}
    return "".join(marks[segment.kind].format(segment.text) for segment in word.segments)
