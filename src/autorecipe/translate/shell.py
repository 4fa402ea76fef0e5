"""Reading a launch script without running it.

Follows assignments (variables, arrays, `+=`, `${NAME:-default}`, arithmetic) from top to bottom and finds the command that
starts training. What only a shell could know (command substitution, positional parameters, conditions on unknown values)
stays in the words as it is written, and is reported. Start reading at `read_script`.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping

from autorecipe.record import dataclass, field
from autorecipe.translate.shell_lexer import Command, Segment, Word, split_shell

_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<append>\+?)=(?P<value>.*)", re.DOTALL)
_PREFIX_WORDS = ("export", "declare", "local", "readonly", "typeset")
_OPENERS = {"if": "fi", "for": "done", "while": "done", "until": "done", "case": "esac"}
_RUNNERS = ("eval", "bash", "sh", "exec")


@dataclass(frozen=True)
class Piece:
    """A word with the line it was written on."""

    text: str
    line: int


@dataclass(frozen=True, kw_only=True)
class ScriptReading:
    """What a script would start.

    Attributes:
        words: words of the training command, launcher included.
        lines: line of each word.
        unresolved: what could not be followed, in words, with its line.
        environment: variables that the script exports, as far as they are known.
        num_commands: how many commands look like a training command.
        conditional: options inside conditions that cannot be decided.
    """

    words: tuple[str, ...]
    lines: tuple[int, ...]
    unresolved: tuple[str, ...]
    environment: Mapping[str, str]
    num_commands: int
    conditional: tuple[Piece, ...] = ()


@dataclass
class _State:
    variables: dict[str, list[Piece]] = field(default_factory=dict)
    arrays: set[str] = field(default_factory=set)
    exported: set[str] = field(default_factory=set)
    unresolved: dict[str, None] = field(default_factory=dict)
    conditional: list[Piece] = field(default_factory=list)


def read_script(text: str, *, variables: Mapping[str, str] | None = None) -> ScriptReading:
    """Find the training command of a shell script.

    Args:
        text: the script.
        variables: values for what the script takes from outside; they win over the script's own assignments.

    Returns:
        the words of the command with the most `--options` among those that name a Python file or end in options; empty words
        where no such command is found.
    """
    state = _State()
    fixed = dict(variables or {})
    for name, value in fixed.items():
        state.variables[name] = [Piece(value, 0)]
    best: list[Piece] = []
    count = 0
    for command in _taken_branches(split_shell(text), state):
        if _assign(command, state, fixed):
            continue
        pieces = _expand_command(command, state)
        options = sum(piece.text.startswith("--") for piece in pieces)
        names_script = any(piece.text.endswith(".py") for piece in pieces)
        if options and (names_script or options >= 3):
            count += 1
            if options > sum(piece.text.startswith("--") for piece in best):
                best = pieces
    environment = {
        name: " ".join(piece.text for piece in state.variables[name])
        for name in sorted(state.exported)
        if name in state.variables
    }
    return ScriptReading(
        words=tuple(piece.text for piece in best),
        lines=tuple(piece.line for piece in best),
        unresolved=tuple(state.unresolved),
        environment=environment,
        num_commands=count,
        conditional=tuple(state.conditional),
    )


def _taken_branches(commands: list[Command], state: _State) -> list[Command]:
    """Return commands lazily in order, with undecidable branches left out and reported."""
    return _Branches(commands, state)  # type: ignore[return-value]


class _Branches:
    """Iterates over the commands that run for certain, deciding `if` conditions while the state grows."""

    def __init__(self, commands: list[Command], state: _State) -> None:
        self.commands = commands
        self.state = state

    def __iter__(self):  # type: ignore[no-untyped-def]
        stack: list[list[object]] = []  # [closing word, branch taken (True/False/None), any branch taken so far]
        for command in self.commands:
            head = command.words[0].plain() if command.words else ""
            if head in ("then", "do", "{") and len(command.words) > 1:
                command = Command(words=command.words[1:], line=command.line, ends_with=command.ends_with)
                head = command.words[0].plain()
            if head in ("then", "do", "{", "}"):
                continue
            if head in _OPENERS:
                outer = all(frame[1] is True for frame in stack)
                taken = self._decide(command) if head == "if" and outer else None
                if taken is None and outer:
                    self._report(command, head)
                stack.append([_OPENERS[head], taken, taken])
                continue
            if stack and head in ("else", "elif"):
                self._next_branch(stack[-1], command, head)
                if head == "else" and len(command.words) > 1:
                    command = Command(words=command.words[1:], line=command.line, ends_with=command.ends_with)
                else:
                    continue
            if stack and head == stack[-1][0]:
                stack.pop()
                continue
            if all(frame[1] is True for frame in stack):
                yield command
            elif any(frame[1] is None for frame in stack):
                self._report_content(command)

    def _next_branch(self, frame: list[object], command: Command, head: str) -> None:
        so_far = frame[2]
        if so_far is True:
            frame[1] = False
        elif so_far is None:
            frame[1] = None
        else:
            frame[1] = True if head == "else" else self._decide(command)
            frame[2] = frame[1]

    def _decide(self, command: Command) -> bool | None:
        fields = [piece.text for word in command.words[1:] for piece in _expand_word(word, self.state, report=False)]
        return decide_test(fields)

    def _report(self, command: Command, head: str) -> None:
        text = " ".join(_raw(word) for word in command.words)
        self.state.unresolved[f"line {command.line}: `{text}` cannot be decided without running it"] = None

    def _report_content(self, command: Command) -> None:
        words = [*command.words, *(inner for word in command.words for inner in word.array or ())]
        options = [text for word in words for text in re.findall(r"--[a-z][\w-]*", _raw(word))]
        self.state.conditional += [Piece(text, command.line) for text in options]


def decide_test(fields: list[str]) -> bool | None:
    """Decide a `[ ... ]` test over known texts; None where it cannot be decided."""
    if not fields or fields[0] not in ("[", "[[", "test") or any("$" in text or "`" in text for text in fields):
        return None
    inner = fields[1:-1] if fields[0] != "test" else fields[1:]
    negate = bool(inner) and inner[0] == "!"
    inner = inner[1:] if negate else inner
    result = _decide_plain(inner)
    return None if result is None else result != negate


def _decide_plain(inner: list[str]) -> bool | None:
    if len(inner) == 2 and inner[0] in ("-z", "-n"):
        return (inner[1] == "") == (inner[0] == "-z")
    if len(inner) != 3:
        return None
    left, operator, right = inner
    if operator in ("=", "=="):
        return None if set(right) & set("*?[") else left == right
    if operator == "!=":
        return None if set(right) & set("*?[") else left != right
    if re.fullmatch(r"-?\d+", left) and re.fullmatch(r"-?\d+", right):
        one, other = int(left), int(right)
        tests = {
            "-eq": one == other,
            "-ne": one != other,
            "-gt": one > other,
            "-lt": one < other,
            "-ge": one >= other,
            "-le": one <= other,
        }
        return tests.get(operator)
    return None


def _assign(command: Command, state: _State, fixed: Mapping[str, str]) -> bool:
    """Follow a command that only assigns; False for any other."""
    words = command.words
    exported = words[0].plain() == "export"
    if words[0].plain() in _PREFIX_WORDS:
        words = [word for word in words[1:] if not word.plain().startswith("-")]
    if not words or not all(_ASSIGNMENT.match(word.start()) or word.plain().isidentifier() for word in words):
        return False
    if not exported and not all(_ASSIGNMENT.match(word.start()) for word in words):
        return False
    for word in words:
        found = _ASSIGNMENT.match(word.start())
        if found is None:
            state.exported.add(word.plain())
            continue
        name = found["name"]
        if exported:
            state.exported.add(name)
        if name in fixed:
            continue
        if word.array is not None:
            pieces = [piece for inner in word.array for piece in _expand_word(inner, state)]
            state.arrays.add(name)
        else:
            rest = Word(word.line, [Segment("text", found["value"], quoted=True), *word.segments[1:]])
            text = "".join(_expand_segment(segment, state, report=True)[0] for segment in rest.segments)
            pieces = [Piece(text, word.line)]
        if found["append"] and name in state.variables:
            old = state.variables[name]
            if word.array is None and name not in state.arrays:
                pieces = [Piece("".join(piece.text for piece in (*old, *pieces)), old[0].line if old else word.line)]
            else:
                pieces = [*old, *pieces]
        state.variables[name] = pieces
    return True


def _expand_command(command: Command, state: _State) -> list[Piece]:
    pieces = [piece for word in command.words for piece in _expand_word(word, state)]
    if pieces and pieces[0].text in _RUNNERS and any(" --" in piece.text for piece in pieces):
        return [Piece(text, piece.line) for piece in pieces for text in _split_again(piece.text)]
    return pieces


def _split_again(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _expand_word(word: Word, state: _State, *, report: bool = True) -> list[Piece]:
    """Expand a word into fields: unquoted values are split at blanks, `"${NAME[@]}"` gives the array's fields."""
    fields: list[Piece] = []
    current: str | None = None
    for segment in word.segments:
        name = segment.text
        if segment.kind == "variable" and re.fullmatch(r"\w+\[[@*]\]", name) and name.split("[")[0] in state.variables:
            pieces = state.variables[name.split("[")[0]]
            if not segment.quoted:
                pieces = [Piece(text, piece.line) for piece in pieces for text in piece.text.split()]
            if current:
                fields.append(Piece(current, word.line))
            current = None
            fields += pieces
            continue
        text, known = _expand_segment(segment, state, report=report)
        if segment.quoted or segment.kind == "text" or not known:
            current = (current or "") + text
            continue
        parts = text.split()
        if text[:1].isspace() and current:
            fields.append(Piece(current, word.line))
            current = None
        for position, part in enumerate(parts):
            if position:
                fields.append(Piece(current or "", word.line))
                current = None
            current = (current or "") + part
        if text[-1:].isspace() and current is not None:
            fields.append(Piece(current, word.line))
            current = None
    if current is not None:
        fields.append(Piece(current, word.line))
    return fields


def _expand_segment(segment: Segment, state: _State, *, report: bool) -> tuple[str, bool]:
    """Return the text of a segment and whether it is fully known."""
    if segment.kind == "text":
        return segment.text, True
    if segment.kind == "arithmetic":
        value = _arithmetic(segment.text, state)
        if value is not None:
            return str(value), True
        return _keep(f"$(({segment.text}))", state, report)
    if segment.kind == "command":
        return _keep(f"$({segment.text})", state, report)
    return _expand_variable(segment.text, state, report=report)


def _keep(text: str, state: _State, report: bool) -> tuple[str, bool]:
    if report:
        state.unresolved[f"{text} is known only when the script runs"] = None
    return text, False


_VARIABLE = re.compile(
    r"(?P<name>\w+|[@*#?!])(?:\[(?P<index>[@*]|\d+)\])?(?:(?P<operator>:?[-=+?]|%%?|##?)(?P<word>.*))?", re.DOTALL
)


def _expand_variable(text: str, state: _State, *, report: bool) -> tuple[str, bool]:
    found = _VARIABLE.fullmatch(text)
    if found is None:
        return _keep(f"${{{text}}}", state, report)
    pieces = state.variables.get(found["name"])
    operator, word = found["operator"], found["word"]
    value = None
    if pieces is not None:
        index = found["index"]
        if index is not None and index.isdigit():
            value = pieces[int(index)].text if int(index) < len(pieces) else ""
        elif index is not None or found["name"] not in state.arrays:
            value = " ".join(piece.text for piece in pieces)
        else:
            value = pieces[0].text if pieces else ""
    if operator in (":-", "-", ":=", "="):
        if value is None or (operator.startswith(":") and value == ""):
            inner = split_shell(word) if word else []
            words = [
                piece.text for command in inner for item in command.words for piece in _expand_word(item, state, report=report)
            ]
            value = " ".join(words)
            if operator.endswith("="):
                state.variables[found["name"]] = [Piece(value, 0)]
        return value, "$" not in value
    if operator in (":+", "+"):
        return (word, True) if value else ("", pieces is not None)
    if operator and value is not None and operator[0] in "%#":
        return _keep(f"${{{text}}}", state, report)
    if value is None:
        return _keep(f"${{{text}}}", state, report)
    return value, "$" not in value


def _arithmetic(text: str, state: _State) -> int | None:
    def lookup(match: re.Match[str]) -> str:
        pieces = state.variables.get(match[1])
        return pieces[0].text if pieces and re.fullmatch(r"-?\d+", pieces[0].text) else "?"

    plain = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lookup, text)
    if not re.fullmatch(r"[\d\s()+\-*/%]+", plain):
        return None
    try:
        return _fold(ast.parse(plain.strip().replace("/", "//"), mode="eval").body)
    except (SyntaxError, ZeroDivisionError):
        return None


def _fold(node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _fold(node.operand)
        return -inner if inner is not None else None
    if isinstance(node, ast.BinOp):
        left, right = _fold(node.left), _fold(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.FloorDiv):
            return left // right
        if isinstance(node.op, ast.Mod):
            return left % right
    return None


def _raw(word: Word) -> str:
    marks = {"text": "{}", "variable": "${{{}}}", "command": "$({})", "arithmetic": "$(({}))"}
    return "".join(marks[segment.kind].format(segment.text) for segment in word.segments)
