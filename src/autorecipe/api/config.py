"""Use cases around one or two configurations: show, compare, look up a field. Joins catalog and config."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from autorecipe.api.resolve import resolve_run
from autorecipe.config.cohort import CohortReport, check_cohort
from autorecipe.config.contract import Contract, parse_contract
from autorecipe.config.diff import DiffVerdict, diff_configs, judge_changes
from autorecipe.config.documents import parse_document, undeclared_keys
from autorecipe.config.explain import FieldPage, list_fields
from autorecipe.errors import EnvironmentProblem, Problem, UsageError, unknown_name
from autorecipe.record import dataclass, replace
from autorecipe.schema.change import Change
from autorecipe.schema.field import ConfigSchema
from autorecipe.schema.layer import Layer
from autorecipe.schema.run import RunConfig

MODES = ("pretrain", "sft", "lora", "dora")
"""Modes of the launcher; only `dora` makes another configuration of a recipe."""

DOCUMENT_SUFFIXES = (".json", ".yaml", ".yml")


@dataclass(frozen=True, kw_only=True)
class ConfigDiff:
    """Result of comparing two sides.

    Attributes:
        a: what the first side was, as typed.
        b: what the second side was, as typed.
        changes: every difference, acting ones first.
        verdict: what they mean.
        notes: messages of both resolutions, each once.
    """

    a: str
    b: str
    changes: tuple[Change, ...]
    verdict: DiffVerdict
    notes: tuple[str, ...]


def load_schema(release: str | None = None) -> ConfigSchema:
    """Return the configuration schema of a release (the newest shipped one by default)."""
    from autorecipe.catalog.store import open_catalog

    return open_catalog(release).schema()


def load_side(text: str, *, release: str | None = None, world_size: int | None = None) -> RunConfig:
    """Resolve one side of a comparison.

    Args:
        text: a recipe name, a recipe with overrides and `--mode MODE` in one quoted text, or a path of a YAML or JSON file
            (overrides may follow a recipe only).
        release: Bridge release of the catalog.
        world_size: number of GPUs.

    Raises:
        UsageError: an empty text, an unknown recipe, wrong overrides, or a file that is no configuration.
        EnvironmentProblem: a file that cannot be read.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(Problem(code="override-syntax", path=text, message=str(error))) from None
    if not words:
        raise UsageError(Problem(code="empty", message="one side is empty", hint="name a recipe or a file"))
    if words[0].endswith(DOCUMENT_SUFFIXES) or Path(words[0]).is_file():
        return _load_file(words, release=release, world_size=world_size)
    overrides, mode = _split_mode(words[1:])
    return resolve_run(words[0], overrides, release=release, world_size=world_size, mode=mode)


def _split_mode(words: Sequence[str]) -> tuple[list[str], str | None]:
    """Split overrides and the launcher's mode: `--mode dora` or `--mode=dora`, anywhere among them."""
    overrides: list[str] = []
    mode: str | None = None
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name != "--mode":
            overrides.append(word)
        elif (mode := value if equals else next(rest, "")) not in MODES:
            raise UsageError(unknown_name("mode", mode, MODES, hint=f"one of {', '.join(MODES)}"))
    return overrides, mode


def _load_file(words: Sequence[str], *, release: str | None, world_size: int | None) -> RunConfig:
    path = Path(words[0])
    if len(words) > 1:
        hint = f"edit {path}, or start from a recipe: 'RECIPE {' '.join(words[1:])}'"
        raise UsageError(Problem(code="usage", path=words[0], message="overrides follow a recipe, not a file", hint=hint))
    text = _read(path)
    schema = load_schema(release)
    config = parse_document(text, name=path.name, schema=schema, world_size=world_size)
    unknown = undeclared_keys(config, schema)
    if not unknown:
        return config
    shown = ", ".join(unknown[:5]) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
    note = f"{path.name} has keys that release {schema.release} does not declare, treated like convergence: {shown}"
    return replace(config, notes=(*config.notes, note))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        hint = "name a recipe, or write a file with `autorecipe config show RECIPE --format json`"
        raise EnvironmentProblem(Problem(code="unreadable", path=str(path), message=reason, hint=hint)) from None


def show_config(
    name: str,
    overrides: Sequence[str] = (),
    *,
    release: str | None = None,
    world_size: int | None = None,
    mode: str | None = None,
) -> RunConfig:
    """Resolve a recipe with overrides in a mode of the launcher, or a file."""
    words = [name, *(["--mode", mode] if mode else []), *overrides]
    return load_side(shlex.join(words), release=release, world_size=world_size)


def diff_sides(a: str, b: str, *, release: str | None = None, world_size: int | None = None) -> ConfigDiff:
    """Compare two sides (see `load_side`) by their effective values."""
    first = load_side(a, release=release, world_size=world_size)
    second = load_side(b, release=release, world_size=world_size)
    changes = diff_configs(first, second, load_schema(release))
    notes = tuple(dict.fromkeys((*first.notes, *second.notes)))
    return ConfigDiff(a=a, b=b, changes=changes, verdict=judge_changes(changes), notes=notes)


def describe_fields(prefix: str = "", *, layer: Layer | None = None, release: str | None = None) -> tuple[FieldPage, ...]:
    """Return the pages of the fields below a prefix, or of one field.

    Raises:
        UsageError: nothing is named so, with near misses.
    """
    return list_fields(prefix, load_schema(release), layer=layer)


@dataclass(frozen=True, kw_only=True)
class CohortCheck:
    """Result of a cohort check, and of the check after alignment.

    Attributes:
        report: what the members are as given.
        aligned_report: what they are with the aligning overrides; None where nothing is to align.
        notes: messages of the resolutions, each once.
    """

    report: CohortReport
    aligned_report: CohortReport | None
    notes: tuple[str, ...]


def check_recipes(
    members: Sequence[str],
    *,
    contract_file: Path | None = None,
    release: str | None = None,
    world_size: int | None = None,
) -> CohortCheck:
    """Check that model-verification runs share one convergence contract.

    Args:
        members: each as in `load_side`; the first is the reference.
        contract_file: YAML contract; the first member's own values by default.
        release: Bridge release of the catalog.
        world_size: number of GPUs.

    Raises:
        UsageError: fewer than two members, or one given twice, or a wrong contract.
        EnvironmentProblem: a file that cannot be read.
    """
    twice = sorted({name for name in members if list(members).count(name) > 1})
    if len(members) < 2 or twice:
        what = f"{twice[0]!r} is given twice" if twice else "a cohort has at least two members"
        raise UsageError(Problem(code="usage", message=what, hint="autorecipe config cohort RECIPE RECIPE ..."))
    contract = Contract()
    if contract_file is not None:
        contract = parse_contract(_read(contract_file), load_schema(release), name=contract_file.name)
    configs = {name: load_side(name, release=release, world_size=world_size) for name in members}
    report = check_cohort(configs, contract)
    notes = tuple(dict.fromkeys(note for config in configs.values() for note in config.notes))
    if not any(member.overrides for member in report.members):
        return CohortCheck(report=report, aligned_report=None, notes=notes)
    aligned = {
        member.name: load_side(shlex.join([*shlex.split(member.name), *member.overrides]), release=release, world_size=world_size)
        for member in report.members
    }
    return CohortCheck(report=report, aligned_report=check_cohort(aligned, contract), notes=notes)
