"""Finding the training command of a launch script, with what it assigns before. Start reading at `read_script`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from autorecipe.record import dataclass
from autorecipe.translate.shell.expand import expand_text, expand_word
from autorecipe.translate.shell.flow import Flow, assigned_name, words_of
from autorecipe.translate.shell.grammar import Node, Simple, parse_script
from autorecipe.translate.shell.lexer import Segment, Word
from autorecipe.translate.shell.state import Piece, State, render_word

_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<append>\+?)=(?P<value>.*)", re.DOTALL)
_PREFIX_WORDS = ("export", "declare", "local", "readonly", "typeset")
_SHELLS = ("bash", "sh", "zsh")
_DEEPEST_TEXT = 8


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


def read_script(
    text: str, *, variables: Mapping[str, str] | None = None, arguments: Sequence[str] | None = None
) -> ScriptReading:
    """Find the training command of a shell script.

    Args:
        text: the script.
        variables: values for what the script takes from outside; they win over the script's own assignments.
        arguments: words after the script's name (`$1` and so on); None where they are not known.

    Returns:
        the words of the command with the most `--options` among those that name a Python file or end in options; empty words
        where no such command is found.
    """
    nodes = parse_script(text)
    state = State(own_names=_assigned_names(nodes))
    fixed = dict(variables or {})
    for name, value in fixed.items():
        state.variables[name] = [Piece(value, 0)]
    if arguments is not None:
        state.set_arguments([Piece(value, 0) for value in arguments])
    best: list[Piece] = []
    count = depth = 0

    def run(command: Simple) -> None:
        nonlocal best, count, depth
        if _assign(command, state, fixed):
            return
        _note_sourced(command, state)
        pieces = [piece for word in command.words for piece in expand_word(word, state)]
        inner = _text_to_run(pieces)
        if inner is not None and depth < _DEEPEST_TEXT:
            text, line = inner
            depth += 1
            flow.follow(parse_script(text, line=line))
            depth -= 1
            return
        options = sum(piece.text.startswith("--") for piece in pieces)
        names_script = any(piece.text.endswith(".py") for piece in pieces)
        if options and (names_script or options >= 3):
            count += 1
            if options > sum(piece.text.startswith("--") for piece in best):
                best = pieces

    flow = Flow(state, run)
    flow.follow(nodes)
    if not best:
        flow.follow_uncalled()
    for name in state.assumed_unset:
        state.report(f"{name} is set by nothing in the script and was taken as unset; --var {name}=VALUE sets it")
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


def _assigned_names(nodes: Sequence[Node]) -> frozenset[str]:
    """Return the names that a script gives a value to, on whatever path."""
    return frozenset(name for node in nodes for word in words_of(node) if (name := assigned_name(word)))


def _assign(command: Simple, state: State, fixed: Mapping[str, str]) -> bool:
    """Follow a command that only assigns; False for any other."""
    words = list(command.words)
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
            pieces = [piece for inner in word.array for piece in expand_word(inner, state)]
            state.arrays.add(name)
        else:
            rest = Word(word.line, [Segment("text", found["value"], quoted=True), *word.segments[1:]])
            text, _ = expand_text(rest, state)
            pieces = [Piece(text, word.line)]
        if found["append"] and name in state.variables:
            old = state.variables[name]
            if word.array is None and name not in state.arrays:
                pieces = [Piece("".join(piece.text for piece in (*old, *pieces)), old[0].line if old else word.line)]
            else:
                pieces = [*old, *pieces]
        state.variables[name] = pieces
    return True


def _text_to_run(pieces: Sequence[Piece]) -> tuple[str, int] | None:
    """Return the text that a command runs as commands, with its line: `eval TEXT`, `bash -c TEXT`, whatever stands in front."""
    for position, piece in enumerate(pieces):
        if piece.text == "eval" and position == 0 and len(pieces) > 1:
            return " ".join(item.text for item in pieces[1:]), pieces[1].line
        if piece.text.rsplit("/", 1)[-1] in _SHELLS:
            for option, text in itertools.pairwise(pieces[position + 1 :]):
                if re.fullmatch(r"-\w*c", option.text):
                    return text.text, text.line
                if not option.text.startswith("-"):
                    break
    return None


def _note_sourced(command: Simple, state: State) -> None:
    """Say which other file a script reads: what it sets is not known."""
    if command.words[0].plain() in ("source", ".") and len(command.words) > 1:
        state.report(
            f"line {command.line}: reads {render_word(command.words[1])}, which is not followed; --var NAME=VALUE gives values"
        )
