"""Options of upstream's programs that do nothing here, or are refused by name with what to do instead.

An option is refused where leaving it out would start another run than the one that was asked for, or would put a secret on a
command line. Source of the names: Megatron-Bridge scripts/performance/argument_parser.py, scripts/training/setup_experiment.py
and run_recipe.py (2026-08). Evidence: enforced-upstream.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from autorecipe.errors import Problem, UsageError, near_misses
from autorecipe.record import dataclass


@dataclass(frozen=True, kw_only=True)
class Aside:
    """One option that does not act.

    Attributes:
        names: every spelling.
        text: for an idle option why it does nothing, for a refused one what to do instead.
        takes_value: whether a value follows.
    """

    names: tuple[str, ...]
    text: str
    takes_value: bool = True


def aside(names: str, text: str, *, takes_value: bool = True) -> Aside:
    """Build an `Aside` from its spellings, separated by spaces."""
    return Aside(names=tuple(names.split()), text=text, takes_value=takes_value)


def secret(names: str, variable: str) -> Aside:
    """Build the refusal of an option that takes a secret."""
    return aside(names, f"a secret must not appear on a command line: export {variable}, then pass --env {variable}")


class Parser(argparse.ArgumentParser):
    """A parser that raises its errors, and knows options that are idle or refused."""

    def __init__(self, *, idle: Iterable[Aside] = (), refused: Iterable[Aside] = (), **options: Any) -> None:
        """Prepare; `options` are those of `argparse.ArgumentParser`."""
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        self.idle = tuple(idle)
        self.refused = tuple(refused)

    def add_asides(self) -> None:
        """Add the idle and the refused options, after the ones that act."""
        for title, asides in (("no effect here", self.idle), ("refused here", self.refused)):
            group = self.add_argument_group(title)
            for item in asides:
                count: dict[str, Any] = {} if item.takes_value else {"nargs": 0}
                group.add_argument(*item.names, dest=item.names[-1], action=_Note, metavar="VALUE", help=item.text, **count)

    def error(self, message: str) -> NoReturn:
        """Raise a usage error."""
        raise UsageError(Problem(code="usage", message=message, hint="--help lists the options"))

    def check_asides(self, given: argparse.Namespace) -> tuple[str, ...]:
        """Return a note for each idle option that was given.

        Raises:
            UsageError: a refused one, each with what to do instead; no value is repeated.
        """
        seen: Mapping[str, str] = getattr(given, _Note.SEEN, {})
        refused = [item for item in self.refused if item.names[-1] in seen]
        if refused:
            raise UsageError(
                [
                    Problem(code="refused-option", path=seen[item.names[-1]], message="is not taken here", hint=item.text)
                    for item in refused
                ]
            )
        return tuple(
            f"note: {seen[item.names[-1]]} has no effect here: {item.text}" for item in self.idle if item.names[-1] in seen
        )

    @property
    def names(self) -> list[str]:
        """Every spelling of every option."""
        return [name for action in self._actions for name in action.option_strings]

    def unknown(self, words: Sequence[str], *, besides: Parser | None = None) -> list[Problem]:
        """Describe words that are neither options nor KEY=VALUE, with the nearest options, also of another program."""
        known = [*self.names, *(besides.names if besides is not None else ())]
        problems = []
        for word in words:
            name = word.partition("=")[0]
            if not word.startswith("-"):
                problems.append(Problem(code="usage", path=word, message="is neither an option nor KEY=VALUE"))
                continue
            close = near_misses(name, known)
            meant = f"did you mean {', or '.join(close)}?" if close else "--help lists the options"
            problems.append(Problem(code="usage", path=name, message="is no option", hint=meant))
        return problems


class _Note(argparse.Action):
    """Remembers the spelling under which an option was given, and not its value."""

    SEEN = "options_seen"

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        """Remember the option."""
        setattr(namespace, self.SEEN, {**getattr(namespace, self.SEEN, {}), self.dest: option_string})
