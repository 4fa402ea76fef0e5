"""Which environment variables travel to the training processes.

Values never appear in a script: a job gets names, Slurm takes the values from the submitting shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from autorecipe.errors import Problem

ALWAYS_EXPORTED = ("PATH", "HOME", "USER", "LANG")
"""What a batch shell needs to find programs and a home directory."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_forwarded(names: Iterable[str], environment: Mapping[str, str]) -> tuple[tuple[str, ...], list[Problem]]:
    """Check the names given with `--env`.

    Args:
        names: as typed, in order; repeated names count once.
        environment: of the submitting shell.

    Returns:
        the names, and what is wrong with them.
    """
    kept: list[str] = []
    problems: list[Problem] = []
    for text in names:
        name, equals, _ = text.partition("=")
        if equals:
            problems.append(
                Problem(
                    code="launch-env-value",
                    path="--env",
                    message=f"takes a NAME only, not {name}=...: values must not appear in arguments or scripts",
                    hint=f"export {name} in this shell first, then pass --env {name}",
                )
            )
        elif not _NAME.fullmatch(name):
            problems.append(
                Problem(
                    code="launch-env-name",
                    path="--env",
                    message=f"{text!r} is not the name of a variable",
                    hint="use letters, digits and _",
                )
            )
        elif name not in environment:
            problems.append(
                Problem(
                    code="launch-env-unset",
                    path="--env",
                    message=f"{name} is not set in this shell, so the job would not get it",
                    hint=f"export {name}=... first",
                )
            )
        elif name not in kept:
            kept.append(name)
    return tuple(kept), problems


def parse_mounts(texts: Iterable[str]) -> tuple[tuple[str, ...], list[Problem]]:
    """Bring `HOST` and `HOST:CONTAINER[:OPTIONS]` mounts into the second form."""
    kept: list[str] = []
    problems: list[Problem] = []
    for text in texts:
        host, colon, container = text.partition(":")
        if not host or (colon and not container):
            problems.append(
                Problem(
                    code="launch-mount",
                    path="--mount",
                    message=f"{text!r} is not HOST or HOST:CONTAINER",
                    hint="such as --mount /data:/data",
                )
            )
            continue
        mount = f"{host}:{container or host}"
        if mount not in kept:
            kept.append(mount)
    return tuple(kept), problems


def merge_environment(carried: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the processes will have: a variable that the shell has set wins over the recipe's."""
    return {name: environment.get(name, value) for name, value in carried.items()}


def shadowed(carried: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return variables where the shell's value replaces a different one of the recipe: name -> (recipe, shell)."""
    return {
        name: (value, environment[name]) for name, value in carried.items() if name in environment and environment[name] != value
    }
