"""Splitting shell text into commands and words. Nothing is executed or expanded here.

Covers what launch scripts use: quotes, escapes, comments, line continuations, arrays, here-documents (skipped), substitutions
(kept as segments). Start reading at `split_tokens`.
"""

from __future__ import annotations

import re

from autorecipe.record import dataclass, field

_OPERATORS = ("&&", "||", ";;", ">>", "<<", ">&", "<&", "&>", "|&", "|", "&", ";", ">", "<", "(", ")")
_ASSIGN_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=$")
ARITHMETIC_COMMAND = "arithmetic-command"
"""Kind of the one segment of `(( ... ))`."""

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


@dataclass(frozen=True)
class Operator:
    """What stands between words: a separator, a pipe, a parenthesis."""

    text: str
    line: int


@dataclass
class Command:
    """One simple command and the operator that ends it."""

    words: list[Word]
    line: int
    ends_with: str = "\n"


class _Lexer:
    def __init__(self, text: str, *, line: int | None = None) -> None:
        self.text = text
        self.position = 0
        self.fixed_line = line
        self.line = 1 if line is None else line
        self.heredocs: list[str] = []

    def peek(self, ahead: int = 0) -> str:
        place = self.position + ahead
        return self.text[place] if place < len(self.text) else ""

    def take(self) -> str:
        char = self.peek()
        self.position += 1
        if char == "\n" and self.fixed_line is None:
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

    def tokens(self) -> list[Word | Operator]:
        result: list[Word | Operator] = []
        in_test = False  # inside `[[ ]]`, where `<` and `>` compare
        while True:
            self.skip_blanks()
            char = self.peek()
            if not char:
                return result
            if char == "#":
                while self.peek() and self.peek() != "\n":
                    self.take()
                continue
            if char in "\r\n":
                line = self.line
                self.take()
                if char == "\n":
                    result.append(Operator("\n", line))
                    self._skip_heredocs()
                continue
            if self.text.startswith("((", self.position) and _starts_command(result):
                result.append(self._arithmetic_command())
                continue
            operator = self.operator()
            if in_test and operator in ("<", ">"):
                self.position += 1
                result.append(Operator(operator, self.line))
                continue
            if operator in (">", ">>", "<", ">&", "<&", "&>"):
                self.position += len(operator)
                self.skip_blanks()
                if self.peek() not in "\n":
                    self.word()
                continue
            if operator == "<<":
                here_string = self.text.startswith("<<<", self.position)
                self.position += 3 if here_string else 2 + (self.peek(2) == "-")
                self.skip_blanks()
                text = "".join(segment.text for segment in self.word().segments)
                if not here_string:
                    self.heredocs.append(text)
                continue
            if operator:
                self.position += len(operator)
                result.append(Operator(operator, self.line))
                continue
            word = self.word()
            in_test = (in_test or word.plain() == "[[") and word.plain() != "]]"
            result.append(word)

    def _arithmetic_command(self) -> Word:
        word = Word(line=self.line)
        self.position += 2
        inner = self._balanced("(", ")")
        if self.peek() == ")":
            self.take()
        word.segments.append(Segment(ARITHMETIC_COMMAND, inner, quoted=True))
        return word

    def _skip_heredocs(self) -> None:
        for end in self.heredocs:
            while self.peek():
                stop = self.text.find("\n", self.position)
                row = self.text[self.position :] if stop < 0 else self.text[self.position : stop]
                self.position = len(self.text) if stop < 0 else stop + 1
                self.line += self.fixed_line is None
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


def _starts_command(tokens: list[Word | Operator]) -> bool:
    """Return whether the next token is the first of a command."""
    last = tokens[-1] if tokens else None
    if not isinstance(last, Word):
        return last is None or last.text != ")"
    return last.plain() in ("if", "elif", "while", "until", "then", "do", "else", "!", "{")


def split_tokens(text: str, *, line: int | None = None) -> list[Word | Operator]:
    """Split shell text into words and operators, in order of appearance.

    Args:
        text: a script, or a value that is run as one.
        line: line of all tokens, where the text is a value; None counts.
    """
    return _Lexer(text, line=line).tokens()


def split_shell(text: str) -> list[Command]:
    """Split shell text into simple commands, in order of appearance; constructs are not told apart."""
    result: list[Command] = []
    words: list[Word] = []
    for token in [*split_tokens(text), Operator("\n", 0)]:
        if isinstance(token, Word):
            words.append(token)
        elif words:
            result.append(Command(words=words, line=words[0].line, ends_with=token.text))
            words = []
    return result
