"""Which commands of a script run: conditions are decided while the variables grow.

A branch that cannot be decided is left out and its options are reported; so are those of a branch that is only skipped
because a variable was taken as unset. Programs are taken to succeed, except in conditions, where nothing is known of them.
Start reading at `Flow`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence

from autorecipe.record import dataclass
from autorecipe.translate.shell.arithmetic import evaluate
from autorecipe.translate.shell.conditions import Operand, decide
from autorecipe.translate.shell.expand import expand_text, expand_word
from autorecipe.translate.shell.grammar import Branches, Case, Chain, Function, Group, Loop, Node, Pipeline, Simple
from autorecipe.translate.shell.lexer import ARITHMETIC_COMMAND, Word
from autorecipe.translate.shell.state import Piece, State, render_word

_MOST_TURNS = 64
"""Turns of a `for` loop that are followed."""

_DEEPEST_CALL = 16
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


@dataclass(frozen=True)
class Status:
    """What a command ends with: success, failure or None for unknown; and whether a variable taken as unset decided it."""

    value: bool | None
    assumed: bool = False


_SUCCESS, _UNKNOWN = Status(True), Status(None)


class Flow:
    """Runs through nodes and hands every command that runs for certain to a function.

    Args:
        state: what is known; the function may change it.
        run: called with each command, in order.
    """

    def __init__(self, state: State, run: Callable[[Simple], None]) -> None:
        self.state = state
        self.run = run
        self.functions: dict[str, tuple[Node, ...]] = {}
        self.called: set[str] = set()
        self._calls = 0

    def follow(self, nodes: Sequence[Node], *, in_condition: bool = False) -> Status:
        """Follow a list of nodes; the last one's status is the list's."""
        status = _SUCCESS
        for node in nodes:
            status = self._follow(node, in_condition=in_condition)
        return status

    def follow_uncalled(self) -> None:
        """Follow the functions that nothing called, as a script that is sourced offers them."""
        for name in [name for name in self.functions if name not in self.called]:
            self.called.add(name)
            self.follow(self.functions[name])

    def _follow(self, node: Node, *, in_condition: bool) -> Status:
        if isinstance(node, Simple):
            return self._simple(node, in_condition=in_condition)
        if isinstance(node, Chain):
            return self._chain(node, in_condition=in_condition)
        if isinstance(node, Pipeline):
            return self._pipeline(node, in_condition=in_condition)
        if isinstance(node, Branches):
            return self._branches(node)
        if isinstance(node, Case):
            return self._case(node)
        if isinstance(node, Loop):
            return self._loop(node)
        if isinstance(node, Function):
            self.functions[node.name] = node.body
            return _SUCCESS
        return self.follow(node.body, in_condition=in_condition)

    def _simple(self, node: Simple, *, in_condition: bool) -> Status:
        if not node.words:
            return _SUCCESS
        head = node.words[0].plain()
        if head in ("true", ":", "false"):
            return Status(head != "false")
        if head in ("[", "[[", "test") or is_arithmetic(node):
            return self._test(node)
        if head in self.functions and self._calls < _DEEPEST_CALL:
            return self._call(head, node)
        if in_condition and not _is_assignment(node):
            return _UNKNOWN
        self.run(node)
        return _SUCCESS

    def _call(self, name: str, node: Simple) -> Status:
        """Follow a function with its arguments in place of the script's own."""
        before = self.state.set_arguments([piece for word in node.words[1:] for piece in expand_word(word, self.state)])
        self.called.add(name)
        self._calls += 1
        try:
            return self.follow(self.functions[name])
        finally:
            self._calls -= 1
            self.state.restore(before)

    def _chain(self, node: Chain, *, in_condition: bool) -> Status:
        status = _SUCCESS
        for joint, item in node.items:
            if not joint:
                status = self._follow(item, in_condition=in_condition)
            elif status.value is None:
                if not in_condition:
                    self._report(node.items[0][1])
                    self._report_content([item])
                else:
                    status = _combine(status, joint, self._follow(item, in_condition=True))
            elif status.value is (joint == "&&"):
                following = self._follow(item, in_condition=in_condition)
                status = Status(following.value, following.assumed or status.assumed)
            elif status.assumed and not in_condition:
                self._report_content([item], assumed=True)
        return status

    def _pipeline(self, node: Pipeline, *, in_condition: bool) -> Status:
        status = _SUCCESS
        for item in node.items:
            status = self._follow(item, in_condition=in_condition)
        if node.negated:
            return Status(None if status.value is None else not status.value, status.assumed)
        return status if len(node.items) == 1 or not in_condition else _UNKNOWN

    def _branches(self, node: Branches) -> Status:
        so_far: bool | None = False
        assumed = False
        status = _SUCCESS
        for condition, body in node.branches:
            decided = Status(True)
            if so_far is False and condition is not None:
                decided = self.follow(condition, in_condition=True)
                assumed = assumed or decided.assumed
                if decided.value is None:
                    self._report_line(node.line if condition is node.branches[0][0] else _line_of(condition), "if", condition)
            value = False if so_far is True else None if so_far is None else decided.value
            if value is True:
                status = self.follow(body)
            elif value is None or assumed:
                self._report_content(body, assumed=value is False)
            so_far = True if value is True else None if value is None or so_far is None else so_far
        return status

    def _case(self, node: Case) -> Status:
        subject, known = expand_text(node.subject, self.state, report=False)
        if not known:
            self._report_text(node.line, f"case {render_word(node.subject)}")
        so_far: bool | None = False
        status = _SUCCESS
        for patterns, body in node.branches:
            value: bool | None = None
            if known:
                matches = [self._matches(subject, word) for word in patterns]
                value = True if True in matches else None if None in matches else False
            if so_far is True:
                value = False
            elif so_far is None and value is not False:
                value = None
            if value is True:
                status = self.follow(body)
            elif value is None:
                self._report_content(body)
            so_far = True if value is True else None if value is None else so_far
        return status

    def _matches(self, subject: str, word: Word) -> bool | None:
        pattern, known = expand_text(word, self.state, report=False)
        return fnmatch.fnmatchcase(subject, pattern) if known else None

    def _loop(self, node: Loop) -> Status:
        values = None
        if node.kind == "for" and node.words is not None and node.name.isidentifier():
            expanded = [piece for word in node.words for piece in expand_word(word, self.state, report=False)]
            values = None if any("$" in piece.text or "`" in piece.text for piece in expanded) else expanded
        if values is None or len(values) > _MOST_TURNS:
            self._report_text(node.line, f"{node.kind} {node.name}".strip())
            self._report_content(node.body)
            return _UNKNOWN
        for piece in values:
            self.state.variables[node.name] = [piece]
            self.follow(node.body)
        return _SUCCESS

    # -- tests

    def _test(self, node: Simple) -> Status:
        if is_arithmetic(node):
            number = evaluate(node.words[0].segments[0].text, self.state.number)
            return Status(None if number is None else number != 0)
        operands = [self._operand(word) for word in node.words]
        value = decide(operands)
        unset = [item.unset for item in operands if item.unset]
        for name in unset if value is not None else ():
            self.state.assumed_unset[name] = None
        return Status(value, value is not None and bool(unset))

    def _operand(self, word: Word) -> Operand:
        text, known = expand_text(word, self.state, report=False)
        name = word.segments[0].text if len(word.segments) == 1 and word.segments[0].kind == "variable" else ""
        is_unset = bool(re.fullmatch(r"[A-Za-z_]\w*", name)) and self.state.pieces_of(name) is None
        return Operand(text, known=known, unset=name if is_unset else "")

    # -- reports

    def _report(self, node: Node) -> None:
        if isinstance(node, Simple):
            self._report_text(node.line, " ".join(render_word(word) for word in node.words))

    def _report_line(self, line: int, keyword: str, condition: Sequence[Node]) -> None:
        words = [word for node in condition for word in words_of(node)]
        self._report_text(line, f"{keyword} {' '.join(render_word(word) for word in words)}")

    def _report_text(self, line: int, text: str) -> None:
        self.state.report(f"line {line}: `{text}` cannot be decided without running it")

    def _report_content(self, nodes: Sequence[Node], *, assumed: bool = False) -> None:
        """Note the options of nodes that are left out; unless an assumption left them out, what they assign is uncertain."""
        for node in nodes:
            for word in words_of(node):
                name = assigned_name(word)
                if name and not assumed:
                    if name in self.state.variables:
                        self.state.report(f"line {word.line} may give {name} another value")
                    else:
                        self.state.uncertain.add(name)
                for inner in (word, *(word.array or ())):
                    found = _OPTION.findall(render_word(inner))
                    self.state.conditional += [Piece(text, inner.line) for text in found]


def is_arithmetic(node: Simple) -> bool:
    """Return whether a command is `(( ... ))`."""
    return len(node.words) == 1 and [segment.kind for segment in node.words[0].segments] == [ARITHMETIC_COMMAND]


def assigned_name(word: Word) -> str:
    """Return the name that a word gives a value to, or nothing."""
    found = re.match(r"([A-Za-z_]\w*)\+?=", word.start())
    return found[1] if found else ""


def _is_assignment(node: Simple) -> bool:
    return all(assigned_name(word) for word in node.words)


def _combine(one: Status, joint: str, other: Status) -> Status:
    if joint == "&&":
        value = False if one.value is False or other.value is False else None if None in (one.value, other.value) else True
    else:
        value = True if one.value or other.value else None if None in (one.value, other.value) else False
    return Status(value, one.assumed or other.assumed)


def words_of(node: Node) -> list[Word]:
    """Return all words below a node, in order."""
    if isinstance(node, Simple):
        return list(node.words)
    if isinstance(node, Chain):
        return [word for _, item in node.items for word in words_of(item)]
    if isinstance(node, Pipeline):
        return [word for item in node.items for word in words_of(item)]
    if isinstance(node, Branches):
        parts = [part for condition, body in node.branches for part in (*(condition or ()), *body)]
        return [word for part in parts for word in words_of(part)]
    if isinstance(node, Case):
        return [word for _, body in node.branches for part in body for word in words_of(part)]
    assert isinstance(node, Loop | Group | Function)
    return [word for part in node.body for word in words_of(part)]


def _line_of(nodes: Sequence[Node]) -> int:
    return next((word.line for node in nodes for word in words_of(node)), 0)
