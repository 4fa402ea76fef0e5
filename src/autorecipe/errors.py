"""The one exception tree.

    AutorecipeError
    ├── UsageError           exit 2   what was typed or given cannot be understood
    ├── NegativeAnswer       exit 1   understood, and the answer is no
    ├── EnvironmentProblem   exit 3   this machine or a file on it lacks something
    └── InternalError        exit 70  our bug

Every error carries all problems found at once, each saying what, the value, what is legal, and one hint that can be run.
Start reading at `Problem`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autorecipe.record import dataclass

SHARED_CODES = {
    "ambiguous-question": "a question whose parts, or whose options, say two things of one kind",
    "bad-config": "a model's config.json that makes no sense",
    "bad-value": "a value that is none of the legal ones",
    "base-missing": "the weights under an adapter are not there",
    "checkpoint-damaged": "files of a checkpoint are missing or cannot be read",
    "contradiction": "two settings that exclude each other",
    "data-exhausted": "no sample is left to read",
    "data-missing": "training data that is not there",
    "data-too-small": "fewer samples than one step takes",
    "data-unreadable": "training data that cannot be read",
    "engine-unsupported": "a setting of upstream's that this engine does not have",
    "exists": "the output is there already",
    "hf-unsupported": "a Hugging Face model or field that is not converted",
    "missing-package": "an optional package is not installed",
    "missing-value": "a value that nothing else gives",
    "no-release": "no facts of such a release",
    "no-such-file": "a path that leads nowhere",
    "other-model": "weights or a checkpoint of another model",
    "override-syntax": "a KEY=VALUE that cannot be parsed",
    "own-recipe": "FILE.py:FUNCTION that cannot be evaluated",
    "recipe-fails": "a recipe that upstream's code or the function itself does not build",
    "refused-option": "an option of upstream's that is not taken here",
    "unknown-key": "a configuration path that does not exist",
    "unreadable": "a file that cannot be read as what it should be",
    "unsupported": "a data format or tokenizer that this engine does not have",
    "usage": "a command line that cannot be understood",
    "wrong-type": "a value of another type than the field's",
    "unwritable": "a folder that nothing can be written to",
}
"""Errors that several modules find, and what each means everywhere."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        message: what is wrong, with the value in it.
        code: a rule's id such as `PAR003`, which `explain` shows, or the error's own name in small letters, such as
            `launch-mount`: one name, one meaning, one module, those of `SHARED_CODES` apart. Empty where none applies.
        path: configuration path, flag or file the problem is about; empty where none applies.
        hint: one thing to do next, runnable where possible; empty where there is none.
    """

    message: str
    code: str = ""
    path: str = ""
    hint: str = ""

    def render(self, *, error: str = "error", hint: str = "hint") -> str:
        """Render as `error[CODE]: path: message` with the hint on its own line; the two words can be another language's."""
        head = f"{error}[{self.code}]" if self.code else error
        where = f"{self.path}: " if self.path else ""
        hint = f"\n{hint}: {self.hint}" if self.hint else ""
        return f"{head}: {where}{self.message}{hint}"


class AutorecipeError(Exception):
    """Base of every error that autorecipe raises on purpose."""

    exit_code = 70

    def __init__(self, problems: str | Problem | Iterable[Problem], *, hint: str = "") -> None:
        if isinstance(problems, str):
            problems = Problem(message=problems, hint=hint)
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(problem.render() for problem in self.problems))

    def __reduce__(self) -> tuple[type[AutorecipeError], tuple[tuple[Problem, ...]]]:
        """Let another process raise it with its problems, not with their text."""
        return type(self), (self.problems,)


class UsageError(AutorecipeError):
    """What was typed or given cannot be understood (exit 2)."""

    exit_code = 2


class NegativeAnswer(AutorecipeError):
    """The question was understood and the answer is no (exit 1)."""

    exit_code = 1


class EnvironmentProblem(AutorecipeError):
    """This machine, or a file on it, lacks something (exit 3)."""

    exit_code = 3


class InternalError(AutorecipeError):
    """A bug in autorecipe (exit 70)."""

    exit_code = 70


def near_misses(name: str, known: Sequence[str], *, limit: int = 3) -> list[str]:
    """Return the known names closest to a mistyped one, best first."""
    import difflib  # only a mistake needs it

    by_folded = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), list(by_folded), n=limit, cutoff=0.6)
    return [by_folded[match] for match in found]


def unknown_name(kind: str, name: str, known: Sequence[str], *, hint: str = "") -> Problem:
    """Describe a name that does not exist, with its near misses."""
    close = near_misses(name, known)
    text = f"unknown {kind} {name!r}"
    if close:
        text += f"; did you mean {', '.join(repr(candidate) for candidate in close)}?"
    return Problem(code=f"unknown-{kind.replace(' ', '-')}", message=text, hint=hint)
