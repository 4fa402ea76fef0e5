"""The structure of a script: lists of commands joined by `&&` and `||`, pipes, `if`, `case`, loops, groups, functions.

Pure: tokens in, nodes out; nothing is expanded or decided. What is outside this grammar is read as plain commands. Start
reading at `parse_script`.
"""

from __future__ import annotations

import re

from autorecipe.record import dataclass
from autorecipe.translate.shell.lexer import Operator, Segment, Word, split_tokens

_SEPARATORS = ("\n", ";", "&")
_LOOPS = ("for", "while", "until", "select")
_DEEPEST = 200


@dataclass(frozen=True)
class Simple:
    """A command of words: assignments, a test, a program."""

    words: tuple[Word, ...]
    line: int


@dataclass(frozen=True)
class Chain:
    """Nodes joined by `&&` and `||`, the first by nothing."""

    items: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class Pipeline:
    """Commands joined by pipes; one alone with `!` before it is one too."""

    items: tuple[Node, ...]
    negated: bool


@dataclass(frozen=True)
class Branches:
    """`if`: conditions with what they lead to; the last one may have none."""

    branches: tuple[tuple[tuple[Node, ...] | None, tuple[Node, ...]], ...]
    line: int


@dataclass(frozen=True)
class Case:
    """`case`: a subject, and patterns with what they lead to."""

    subject: Word
    branches: tuple[tuple[tuple[Word, ...], tuple[Node, ...]], ...]
    line: int


@dataclass(frozen=True)
class Loop:
    """A loop; `words` are what a `for` goes through, None for other loops or its positional parameters."""

    kind: str
    name: str
    words: tuple[Word, ...] | None
    body: tuple[Node, ...]
    line: int


@dataclass(frozen=True)
class Group:
    """`{ ... }` or `( ... )`."""

    body: tuple[Node, ...]


@dataclass(frozen=True)
class Function:
    """A function's definition."""

    name: str
    body: tuple[Node, ...]


Node = Simple | Chain | Pipeline | Branches | Case | Loop | Group | Function


def parse_script(text: str, *, line: int | None = None) -> tuple[Node, ...]:
    """Parse shell text; `line` is the line of all of it, where it is a value that is run."""
    parser = _Parser(split_tokens(text, line=line))
    nodes: list[Node] = []
    while parser.peek() is not None:
        nodes += parser.sequence(())
        if parser.peek() is not None:
            parser.position += 1  # a closing word without its opening one
    return tuple(nodes)


class _Parser:
    def __init__(self, tokens: list[Word | Operator]) -> None:
        self.tokens = tokens
        self.position = 0
        self.depth = 0

    def peek(self, ahead: int = 0) -> Word | Operator | None:
        place = self.position + ahead
        return self.tokens[place] if place < len(self.tokens) else None

    def operator(self, ahead: int = 0) -> str:
        token = self.peek(ahead)
        return token.text if isinstance(token, Operator) else ""

    def keyword(self) -> str:
        token = self.peek()
        return token.plain() if isinstance(token, Word) else ""

    def skip_separators(self) -> None:
        while self.operator() in _SEPARATORS:
            self.position += 1

    def skip_lines(self) -> None:
        while self.operator() == "\n":
            self.position += 1

    def sequence(self, stops: tuple[str, ...]) -> tuple[Node, ...]:
        """Read nodes up to a closing word or operator, which is left in place."""
        nodes: list[Node] = []
        while True:
            self.skip_separators()
            token = self.peek()
            if token is None or self.keyword() in stops or (isinstance(token, Operator) and token.text in (";;", ")")):
                return tuple(nodes)
            if isinstance(token, Operator) and token.text != "(":
                self.position += 1  # an operator with nothing before it
                continue
            nodes.append(self.chain())

    def chain(self) -> Node:
        items: list[tuple[str, Node]] = [("", self.pipeline())]
        while self.operator() in ("&&", "||"):
            joint = self.operator()
            self.position += 1
            self.skip_lines()
            if self.peek() is None:
                break
            items.append((joint, self.pipeline()))
        return items[0][1] if len(items) == 1 else Chain(tuple(items))

    def pipeline(self) -> Node:
        negated = False
        while self.keyword() == "!":
            negated = not negated
            self.position += 1
        items = [self.command()]
        while self.operator() in ("|", "|&"):
            self.position += 1
            self.skip_lines()
            if self.peek() is None:
                break
            items.append(self.command())
        return items[0] if len(items) == 1 and not negated else Pipeline(tuple(items), negated)

    def command(self) -> Node:
        self.depth += 1
        try:
            return self._command()
        finally:
            self.depth -= 1

    def _command(self) -> Node:
        token = self.peek()
        line = token.line if token is not None else 0
        keyword = self.keyword()
        if self.depth > _DEEPEST:
            return self.simple()
        if keyword == "if":
            return self.branches(line)
        if keyword == "case":
            return self.case(line)
        if keyword in _LOOPS:
            return self.loop(keyword, line)
        if keyword == "{":
            self.position += 1
            return Group(self.enclosed("}"))
        if self.operator() == "(":
            self.position += 1
            body = self.sequence(())
            if self.operator() == ")":
                self.position += 1
            return Group(body)
        if keyword == "[[":
            return self.double_bracket(line)
        if keyword == "function" or (re.fullmatch(r"[\w:.-]+", keyword) and self.operator(1) == "(" and self.operator(2) == ")"):
            return self.function()
        return self.simple()

    def enclosed(self, closer: str) -> tuple[Node, ...]:
        body = self.sequence((closer,))
        if self.keyword() == closer:
            self.position += 1
        return body

    def simple(self) -> Node:
        words: list[Word] = []
        while isinstance(token := self.peek(), Word):
            words.append(token)
            self.position += 1
        if not words:
            self.position += 1
            return Simple((), 0)
        return Simple(tuple(words), words[0].line)

    def double_bracket(self, line: int) -> Node:
        """Read `[[ ... ]]`, in which `&&`, `||` and parentheses belong to the test."""
        words: list[Word] = []
        while (token := self.peek()) is not None:
            if isinstance(token, Operator) and token.text in ("\n", ";"):
                break
            self.position += 1
            if isinstance(token, Operator):
                words.append(Word(token.line, [Segment("text", token.text, quoted=False)]))
                continue
            words.append(token)
            if token.plain() == "]]":
                break
        return Simple(tuple(words), line)

    def branches(self, line: int) -> Node:
        found: list[tuple[tuple[Node, ...] | None, tuple[Node, ...]]] = []
        while self.keyword() in ("if", "elif"):
            self.position += 1
            condition = self.sequence(("then", "fi"))
            if self.keyword() == "then":
                self.position += 1
            found.append((condition, self.sequence(("elif", "else", "fi"))))
        if self.keyword() == "else":
            self.position += 1
            found.append((None, self.sequence(("fi",))))
        if self.keyword() == "fi":
            self.position += 1
        return Branches(tuple(found), line)

    def case(self, line: int) -> Node:
        self.position += 1
        token = self.peek()
        subject = token if isinstance(token, Word) else Word(line)
        self.position += 1
        self.skip_lines()
        if self.keyword() == "in":
            self.position += 1
        found: list[tuple[tuple[Word, ...], tuple[Node, ...]]] = []
        while True:
            self.skip_separators()
            if self.peek() is None:
                break
            if self.keyword() == "esac":
                self.position += 1
                break
            patterns: list[Word] = []
            while (token := self.peek()) is not None and self.operator() != ")":
                if isinstance(token, Word):
                    patterns.append(token)
                self.position += 1
            self.position += 1
            found.append((tuple(patterns), self.sequence(("esac",))))
            if self.operator() in (";;", ")"):
                self.position += 1
        return Case(subject, tuple(found), line)

    def loop(self, kind: str, line: int) -> Node:
        self.position += 1
        name, words = "", None
        if kind in ("for", "select"):
            token = self.peek()
            name = token.plain() if isinstance(token, Word) else ""
            self.position += 1
            self.skip_lines()
            if self.keyword() == "in":
                self.position += 1
                listed: list[Word] = []
                while isinstance(item := self.peek(), Word):
                    listed.append(item)
                    self.position += 1
                words = tuple(listed)
            self.skip_separators()
        else:
            self.sequence(("do",))
        if self.keyword() in ("do", "{"):
            closer = "done" if self.keyword() == "do" else "}"
            self.position += 1
            return Loop(kind, name, words, self.enclosed(closer), line)
        return Loop(kind, name, words, (), line)

    def function(self) -> Node:
        if self.keyword() == "function":
            self.position += 1
        name = self.keyword()
        self.position += 1
        if self.operator() == "(":
            self.position += 2
        self.skip_lines()
        body = self.command()
        return Function(name, body.body if isinstance(body, Group) else (body,))
