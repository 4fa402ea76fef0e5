"""Builds the catalog of one release, and verifies one by building it again.

A release directory appears whole or not at all: it is written beside its place and then moved there.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autorecipe.catalog.assembly import Inputs, write_release
from autorecipe.catalog.configs import ConfigSet, gather_configs
from autorecipe.catalog.source import open_bridge, open_core
from autorecipe.catalog.worker import Progress, Request, evaluate
from autorecipe.datafiles import read_json
from autorecipe.errors import EnvironmentProblem, NegativeAnswer, Problem, UsageError
from autorecipe.record import dataclass

DEFAULT_SECONDS = 30.0
"""Time limit for one call of a recipe function; the slowest shipped one takes 0.3 seconds."""


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """What a build made.

    Attributes:
        directory: the release directory.
        meta: content of its `release.json`.
        seconds: wall time.
    """

    directory: Path
    meta: Mapping[str, Any]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """How to build.

    Attributes:
        bridge: wheel or checkout of Megatron Bridge.
        core: wheel or checkout of Megatron-Core; None takes a checkout's submodule or the installed package.
        hf_configs: directory of Hugging Face configurations that win over the shipped ones.
        use_cache: whether the Hugging Face cache is looked at.
        seconds: time limit per call of a recipe function.
        jobs: subprocesses.
        only: recipe names; empty for all.
    """

    bridge: Path
    core: Path | None = None
    hf_configs: Path | None = None
    use_cache: bool = True
    seconds: float = DEFAULT_SECONDS
    jobs: int = 2
    only: tuple[str, ...] = ()


def build_catalog(options: BuildOptions, out: Path, *, progress: Progress | None = None) -> BuildReport:
    """Evaluate a Bridge tree and put its catalog at `out/RELEASE`, replacing an older one only when complete.

    Raises:
        UsageError: no such wheel or checkout; `only` names a recipe that the tree does not export.
        EnvironmentProblem: damaged, not a Megatron Bridge, not importable, nothing to evaluate, or `out` cannot be written.
    """
    started = time.monotonic()
    try:
        out.mkdir(parents=True, exist_ok=True)
        building = tempfile.TemporaryDirectory(prefix=".building-", dir=out)
    except OSError as error:
        why = f"no catalog can be written there: {error.strerror}"
        raise EnvironmentProblem(
            Problem(code="unwritable", path=str(out), message=why, hint="--out DIR takes any folder")
        ) from None
    with building as temporary:
        directory, meta = _build(options, Path(temporary), progress)
        target = out / str(meta["release"])
        with _replacing(target):
            directory.rename(target)
    return BuildReport(directory=target, meta=meta, seconds=time.monotonic() - started)


def verify_catalog(options: BuildOptions, directory: Path | None, *, progress: Progress | None = None) -> BuildReport:
    """Build again and compare with a release directory, file by file; with `only`, those recipes value by value.

    Args:
        options: how to build.
        directory: what to compare with; None for the release at hand of the same name.
        progress: called after each recipe.

    Raises:
        NegativeAnswer: naming every file that differs, with the first differing line, or every recipe and value.
        UsageError: `directory` holds no release, or was evaluated with another Megatron-Core than the one given.
        (others): as `build_catalog`.
    """
    started = time.monotonic()
    with open_bridge(options.bridge) as bridge, open_core(options.core, bridge=options.bridge) as core:
        directory = _at_hand(bridge.release) if directory is None else directory
        _check_same_core(directory, core.release)
    with tempfile.TemporaryDirectory(prefix="autorecipe-verify-") as temporary:
        fresh, meta = _build(options, Path(temporary), progress)
        differences = compare_recipes(directory, fresh) if options.only else compare_directories(directory, fresh)
        problems = [Problem(code="catalog-differs", path=str(name), message=text) for name, text in differences]
    if problems:
        raise NegativeAnswer(problems)
    return BuildReport(directory=directory, meta=meta, seconds=time.monotonic() - started)


def _at_hand(release: str) -> Path:
    from autorecipe.catalog.store import open_catalog

    return open_catalog(release).directory


def _check_same_core(directory: Path, given: str) -> None:
    """Refuse to compare values that another Megatron-Core gave: its defaults differ in every file."""
    path = directory / "release.json"
    if not path.is_file():
        raise UsageError(
            Problem(code="no-release", path=str(directory), message="holds no release.json", hint="give OUT/RELEASE of a build")
        )
    stored = read_json(path)["core_release"]
    if stored != given:
        why = f"was evaluated with Megatron-Core {stored}, and {given} would be used now; values and defaults of both differ"
        raise UsageError(
            Problem(code="other-core", path=str(directory), message=why, hint=f"--core megatron_core-{stored}-*.whl")
        )


def compare_recipes(old: Path, new: Path) -> Iterator[tuple[str, str]]:
    """Yield each recipe of `new` and a value in which `old` differs."""
    from autorecipe.catalog.store import Catalog

    before, after = Catalog(old), Catalog(new)
    for name in after.names():
        if name not in before.names():
            yield name, "is new"
            continue
        left, right = before.load(name), after.load(name)
        if (left.status, left.error) != (right.status, right.error):
            yield name, f"was {left.error or left.status!r} and is {right.error or right.status!r}"
        for path in sorted(left.fields.keys() | right.fields.keys()):
            absent = "(absent)"
            if left.fields.get(path, absent) != right.fields.get(path, absent):
                yield name, f"{path}: {left.fields.get(path, absent)!r} is now {right.fields.get(path, absent)!r}"


def compare_directories(old: Path, new: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file that differs and how: missing on a side, or the first differing line.

    The versions of Python and of torch that evaluated a catalog are not part of it.
    """
    names = {path.relative_to(root) for root in (old, new) for path in root.rglob("*") if path.is_file()}
    for name in sorted(names):
        if not (old / name).is_file():
            yield name, "is new"
        elif not (new / name).is_file():
            yield name, "is gone"
        else:
            before = (old / name).read_text(encoding="utf-8").splitlines()
            after = (new / name).read_text(encoding="utf-8").splitlines()
            if name.name == "release.json":
                before, after = _without_tools(before), _without_tools(after)
            if before != after:
                yield name, _first_difference(before, after)


def _without_tools(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.strip().startswith(('"python":', '"torch":', '"transformers":'))]


def _first_difference(before: list[str], after: list[str]) -> str:
    for number, (left, right) in enumerate(zip(before, after, strict=False), start=1):
        if left != right:
            start = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), 0)
            start = max(0, start - 60)
            return f"line {number}: {left[start : start + 160]!r} is now {right[start : start + 160]!r}"
    return f"{len(before)} lines are now {len(after)}"


def _build(options: BuildOptions, temporary: Path, progress: Progress | None) -> tuple[Path, Mapping[str, Any]]:
    configs = gather_configs(directory=options.hf_configs, use_cache=options.use_cache)
    with open_bridge(options.bridge) as bridge, open_core(options.core, bridge=options.bridge) as core:
        request = Request(
            bridge=bridge,
            core=core,
            configs=configs.configs,
            tokenizer_lengths=configs.tokenizer_lengths,
            seconds=options.seconds,
            jobs=options.jobs,
            only=options.only,
        )
        evaluation = evaluate(request, progress=progress)
        if not evaluation.records:
            raise EnvironmentProblem(Problem(code="no-recipes", path=bridge.origin, message="no recipe function was found"))
        directory = temporary / bridge.release
        directory.mkdir()
        inputs = Inputs(
            release=bridge.release,
            core_release=core.release,
            bridge_digest=bridge.digest,
            core_digest=core.digest,
            config_digests=configs.digests(),
            config_origins=_used_origins(configs, evaluation.records),
            only=options.only,
        )
        meta = write_release(directory, evaluation, inputs)
    return directory, meta


def _used_origins(configs: ConfigSet, records: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    used = {hf_id for record in records.values() for hf_id in record.get("hub", {}).get("model_ids", ())}
    return {hf_id: path for hf_id, path in configs.origins.items() if hf_id in used}


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[None]:
    """Move an old directory aside while a new one takes its place; put it back if that fails."""
    if not target.exists():
        yield
        return
    with tempfile.TemporaryDirectory(prefix=".replaced-", dir=target.parent) as aside:
        old = Path(aside) / target.name
        target.rename(old)
        try:
            yield
        except BaseException:
            if not target.exists():
                old.rename(target)
            raise
