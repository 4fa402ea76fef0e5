"""Splitting shell text into commands and words. Nothing is executed or expanded here.

Covers what launch scripts use: quotes, escapes, comments, line continuations, arrays, here-documents (skipped), substitutions
(kept as segments). Start reading at `split_shell`.
"""

from __future__ import annotations

import re

from autorecipe.record import dataclass, field

_OPERATORS = ("&&", "||", ";;", ">>", "<<", ">&", "<&", "&>", "|&", "|", "&", ";", ">", "<", "(", ")")
_ASSIGN_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=$")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?!$-]")


@dataclass(frozen=True)
class Segment:
    """A piece of a word.

    Attributes:
        kind: `text`, `variable` (the text inside `${}` or after `$`), `command` (inside `$()` or backquotes), `arithmetic`.
        text: its text.
        quoted: whether it stands in quotes, so that it is not split at blanks.
    """

    kind: str
    text: str
    quoted: bool


@dataclass
class Word:
    """A word: its segments, the line it starts on, and, for `NAME=(...)`, the array's words."""

    line: int
    segments: list[Segment] = field(default_factory=list)
    array: list[Word] | None = None

    def plain(self) -> str:
        """Return the text where the word is one unquoted piece of text, else an empty text."""
        if self.array is None and len(self.segments) == 1 and self.segments[0].kind == "text" and not self.segments[0].quoted:
            return self.segments[0].text
        return ""

    def start(self) -> str:
        """Return the leading unquoted text."""
        first = self.segments[0] if self.segments else None
        return first.text if first is not None and first.kind == "text" and not first.quoted else ""


@dataclass
class Command:
    """One simple command and the operator that ends it."""

    words: list[Word]
    line: int
    ends_with: str = "\n"


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.line = 1
        self.heredocs: list[str] = []

    def peek(self, ahead: int = 0) -> str:
        place = self.position + ahead
        return self.text[place] if place < len(self.text) else ""

    def take(self) -> str:
        char = self.peek()
        self.position += 1
        if char == "\n":
            self.line += 1
        return char

    def skip_blanks(self) -> None:
        while self.peek():
            if self.peek() in " \t":
                self.take()
            elif self.peek() == "\\" and self.peek(1) == "\n":
                self.take()
                self.take()
            elif self.peek() == "\\" and self.text[self.position + 1 : self.position + 3] == "\r\n":
                self.position += 1
                self.take()
                self.take()
            else:
                return

    def operator(self) -> str:
        for text in _OPERATORS:
            if self.text.startswith(text, self.position):
                return text
        return ""

    def commands(self) -> list[Command]:
        result: list[Command] = []
        words: list[Word] = []
        line = self.line

        def finish(end: str) -> None:
            nonlocal words, line
            if words:
                result.append(Command(words=words, line=line, ends_with=end))
            words, line = [], self.line

        while True:
            self.skip_blanks()
            char = self.peek()
            if not char:
                finish("\n")
                return result
            if char == "#":
                while self.peek() and self.peek() != "\n":
                    self.take()
                continue
            if char in "\r\n":
                self.take()
                finish("\n")
                self._skip_heredocs()
                line = self.line
                continue
            operator = self.operator()
            if operator in (">", ">>", "<", ">&", "<&", "&>"):
                self.position += len(operator)
                self.skip_blanks()
                if self.peek() not in "\n":
                    self.word()
                continue
            if operator == "<<":
                self.position += 2 + (self.peek(2) == "-")
                self.skip_blanks()
                self.heredocs.append("".join(segment.text for segment in self.word().segments))
                continue
            if operator:
                self.position += len(operator)
                finish(operator)
                continue
            if not words:
                line = self.line
            words.append(self.word())

    def _skip_heredocs(self) -> None:
        for end in self.heredocs:
            while self.peek():
                stop = self.text.find("\n", self.position)
                row = self.text[self.position :] if stop < 0 else self.text[self.position : stop]
                self.position = len(self.text) if stop < 0 else stop + 1
                self.line += 1
                if row.strip() == end:
                    break
        self.heredocs = []

    def word(self) -> Word:
        word = Word(line=self.line)
        buffer = ""

        def flush() -> None:
            nonlocal buffer
            if buffer:
                word.segments.append(Segment("text", buffer, quoted=False))
            buffer = ""

        while True:
            char = self.peek()
            if not char or char in " \t\r\n":
                break
            if char == "(" and not word.segments and _ASSIGN_ARRAY.fullmatch(buffer):
                flush()
                self.take()
                word.array = self._array()
                break
            if self.operator() and not (char in "<>" and buffer.isdigit()):
                break
            if char in "<>" and buffer.isdigit():  # a redirection such as 2>&1 is no word
                buffer = ""
                break
            if char == "\\":
                self.take()
                following = self.take()
                if following != "\n" and following:
                    flush()
                    word.segments.append(Segment("text", following, quoted=True))
                elif following == "\n" and not buffer and not word.segments:
                    break
                continue
            if char == "'":
                flush()
                self.take()
                word.segments.append(Segment("text", self._until("'"), quoted=True))
                continue
            if char == '"':
                flush()
                self.take()
                self._double_quoted(word)
                continue
            if char in "$`":
                flush()
                word.segments.append(self._substitution(quoted=False))
                continue
            buffer += self.take()
        flush()
        return word

    def _array(self) -> list[Word]:
        words: list[Word] = []
        while self.peek():
            self.skip_blanks()
            if self.peek() == "#":
                while self.peek() and self.peek() != "\n":
                    self.take()
            elif self.peek() in ("\n", "\r"):
                self.take()
            elif self.peek() == ")":
                self.take()
                break
            elif self.operator():
                self.take()
            else:
                words.append(self.word())
        return words

    def _until(self, end: str) -> str:
        text = ""
        while self.peek() and self.peek() != end:
            text += self.take()
        self.take()
        return text

    def _double_quoted(self, word: Word) -> None:
        buffer = ""
        started = len(word.segments)
        while self.peek() and self.peek() != '"':
            char = self.peek()
            if char == "\\" and self.peek(1) in '"\\$`\n':
                self.take()
                following = self.take()
                buffer += "" if following == "\n" else following
            elif char in "$`":
                if buffer:
                    word.segments.append(Segment("text", buffer, quoted=True))
                buffer = ""
                word.segments.append(self._substitution(quoted=True))
            else:
                buffer += self.take()
        self.take()
        if buffer or len(word.segments) == started:
            word.segments.append(Segment("text", buffer, quoted=True))

    def _substitution(self, *, quoted: bool) -> Segment:
        if self.peek() == "`":
            self.take()
            return Segment("command", self._until("`"), quoted)
        self.take()
        if self.text.startswith("((", self.position):
            self.position += 2
            inner = self._balanced("(", ")")
            if self.peek() == ")":
                self.take()
            return Segment("arithmetic", inner, quoted)
        if self.peek() == "(":
            self.take()
            return Segment("command", self._balanced("(", ")"), quoted)
        if self.peek() == "{":
            self.take()
            return Segment("variable", self._balanced("{", "}"), quoted)
        name = _NAME.match(self.text, self.position)
        if name is None:
            return Segment("text", "$", quoted)
        self.position = name.end()
        return Segment("variable", name[0], quoted)

    def _balanced(self, opening: str, closing: str) -> str:
        depth, text = 1, ""
        while self.peek():
            char = self.take()
            depth += (char == opening) - (char == closing)
            if depth == 0:
                return text
            text += char
        return text


def split_shell(text: str) -> list[Command]:
    """Split shell text into simple commands, in order of appearance."""
    return _Lexer(text).commands()
