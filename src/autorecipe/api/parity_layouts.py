"""One recipe under several layouts, from one start: the sentinels of a change that must touch execution only.

Layouts draw other initial weights from the same seed (a pipeline stage or a tensor-parallel rank draws its own part), so the
weights come from one run of the reference layout that updates nothing, and every layout loads them. Start reading at
`run_layouts`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autorecipe.api.mode import choose_mode
from autorecipe.api.parity import compare_log_files
from autorecipe.api.parity_run import Say, core_words, is_mock
from autorecipe.api.train import TrainRequest, prepare_training
from autorecipe.catalog.store import open_catalog
from autorecipe.config.resolve import resolve_config
from autorecipe.config.shrink import LAYOUT_PATHS, shrink_overrides
from autorecipe.errors import AutorecipeError, EnvironmentProblem, NegativeAnswer, Problem, UsageError
from autorecipe.parity.compare import CompareOptions, apply_settings
from autorecipe.parity.design import find_unmatched
from autorecipe.parity.experiment import SideRun, run_side, set_aside
from autorecipe.parity.layouts import RESET, LayoutVariant, find_random_draws, propose_layouts
from autorecipe.parity.sides import is_engine_option
from autorecipe.record import dataclass, replace
from autorecipe.schema.parity import FactDifference, LayoutSentinel, ParityReport, RunOutcome
from autorecipe.schema.run import RunConfig

START = "start"
WEIGHTS = "start-weights"
GIVEN_START = ("checkpoint.pretrained_checkpoint", "checkpoint.load")

Runner = Callable[..., RunOutcome]


@dataclass(frozen=True, kw_only=True)
class LayoutRequest:
    """A recipe to run under several layouts.

    Attributes:
        recipe: recipe name.
        overrides: overrides of all runs; layout fields in them are replaced.
        gpus: processes of each run.
        output: folder for runs and logs.
        only: names of layouts to run (the reference always runs); empty runs all.
        shrink: whether the recipe is shrunk to a toy of its structure first.
        release: Bridge release.
        timeout_s: seconds for each run.
        options: how to compare.
    """

    recipe: str
    overrides: tuple[str, ...] = ()
    gpus: int
    output: Path
    only: tuple[str, ...] = ()
    shrink: bool = False
    release: str | None = None
    timeout_s: float | None = None
    options: CompareOptions | None = None


@dataclass(frozen=True, kw_only=True)
class _Recipe:
    """What every run of a request has in common: overrides, the engine's own options, extra words, resolved configuration."""

    common: tuple[str, ...]
    own: tuple[str, ...]
    config: RunConfig
    is_finetuning: bool


def run_layouts(request: LayoutRequest, *, say: Say, run: Runner = run_side) -> tuple[LayoutSentinel, ...]:
    """Run one recipe under several layouts on this project's engine, and compare each with the first.

    Losses decide. Settings decide as well, those that make the layout apart: a layout changes nothing else.

    Args:
        request: what to run.
        say: receives lines for people.
        run: starts one run, as `run_side` does.

    Raises:
        UsageError: an unknown recipe, override or layout name, or settings under which no two layouts have the same loss.
        EnvironmentProblem: this machine cannot hold the runs.
        NegativeAnswer: no layout fits, or the start or the reference fails.
    """
    recipe = _prepare(request)
    variants = propose_layouts(recipe.config, request.gpus)
    _check_names(request.only, variants)
    problems = find_random_draws(recipe.config)
    if problems:
        raise UsageError(problems)
    reference = next((variant for variant in variants if not variant.obstacle), None)
    if reference is None:
        raise NegativeAnswer([Problem(code="no-layout", path=item.name, message=item.obstacle) for item in variants])
    wanted = _checked(reference, recipe, request)
    weights = _common_start(reference, recipe, request, say=say, run=run)
    sentinels: list[LayoutSentinel] = []
    first: RunOutcome | None = None
    for variant in variants:
        known = LayoutSentinel(name=variant.name, overrides=variant.overrides, notes=variant.notes)
        skipped = "" if variant is reference else _why_not(variant, request)
        if skipped:
            sentinels.append(replace(known, skipped=skipped))
            continue
        try:
            config = _checked(variant, recipe, request)
        except AutorecipeError as error:
            sentinels.append(replace(known, skipped=error.problems[0].message))
            continue
        try:
            done = run(_side(variant, recipe, request, weights), request.output, say=say, timeout_s=request.timeout_s)
        except NegativeAnswer as error:
            if first is None:
                raise
            sentinels.append(replace(known, failed=error.problems[0].message))
            continue
        report = None
        if first is not None:
            (report,) = compare_log_files([Path(first.log), Path(done.log)], options=request.options, use_settings=False)
            report = _judge_settings(report, wanted, config, {*_paths(variant.overrides), *_paths(reference.overrides)}, request)
        first = first or done
        sentinels.append(replace(known, report=report))
    return tuple(sentinels)


def _prepare(request: LayoutRequest) -> _Recipe:
    catalog = open_catalog(request.release)
    target, schema = catalog.load(request.recipe), catalog.schema()
    own = tuple(text for text in request.overrides if is_engine_option(text))
    typed = tuple(text for text in request.overrides if not is_engine_option(text))
    config = resolve_config(target, schema, typed, world_size=request.gpus)
    # Nothing of an earlier run may come in, and a toy need not be kept: neither is resumed or saved unless asked for.
    common = tuple(text for text in ("checkpoint.save=null", "checkpoint.load=null") if _path(text) not in _paths(typed)) + typed
    if request.shrink:
        smaller = _shrunk(config, request.gpus)
        own = (*(text for text in smaller if is_engine_option(text) and _path(text) not in _paths(own)), *own)
        common = (*(text for text in smaller if not is_engine_option(text) and _path(text) not in _paths(typed)), *common)
    config = resolve_config(target, schema, common, world_size=request.gpus)
    mode = choose_mode(config, request.recipe, None).mode
    has_start = any(config.get(path, None) for path in GIVEN_START)
    if mode in ("lora", "dora", "peft") and not has_start:
        raise UsageError(
            Problem(
                code="no-common-start",
                path="checkpoint.pretrained_checkpoint",
                message="is not set: adapters need weights that every layout starts from",
                hint="add checkpoint.pretrained_checkpoint=FOLDER",
            )
        )
    return _Recipe(common=common, own=own, config=config, is_finetuning=mode != "pretrain")


def _shrunk(config: RunConfig, gpus: int) -> tuple[str, ...]:
    """Return overrides of a toy that every axis can split: two layers a stage, two micro batches of two samples a rank."""
    wide = {"model.pipeline_model_parallel_size": gpus, "model.virtual_pipeline_model_parallel_size": 2}
    texts = shrink_overrides(replace(config, values={**config.values, **RESET, **wide}), world_size=gpus)
    batch = ("train.micro_batch_size", "train.global_batch_size", "validation.eval_iters")
    left_out = {*LAYOUT_PATHS.values(), *RESET, *batch, "validation.eval_global_batch_size", "validation.eval_micro_batch_size"}
    sizes = tuple(f"{path}={value}" for path, value in zip(batch, (2, 4 * gpus, 0), strict=True))
    return (*(text for text in texts if _path(text) not in left_out), *sizes)


def _check_names(only: tuple[str, ...], variants: tuple[LayoutVariant, ...]) -> None:
    known = [variant.name for variant in variants]
    unknown = [name for name in only if name not in known]
    if unknown:
        raise UsageError(f"unknown layout {', '.join(unknown)}; known: {', '.join(known)}")


def _why_not(variant: LayoutVariant, request: LayoutRequest) -> str:
    """Return why a layout is not run; empty where it is. One that trains otherwise by design has to be asked for."""
    if variant.obstacle:
        return variant.obstacle
    if request.only:
        return "" if variant.name in request.only else "not asked for"
    return f"another training, slightly: {'; '.join(variant.notes)} (--only {variant.name} runs it)" if variant.notes else ""


def _words(variant: LayoutVariant, recipe: _Recipe, extra: tuple[str, ...] = ()) -> tuple[str, ...]:
    moved = _paths((*variant.overrides, *extra))
    return (*(text for text in recipe.common if _path(text) not in moved), *variant.overrides, *extra)


def _checked(variant: LayoutVariant, recipe: _Recipe, request: LayoutRequest) -> RunConfig:
    """Check a layout as its run will, and return its configuration."""
    return prepare_training(
        TrainRequest(
            recipe=request.recipe,
            overrides=(*_words(variant, recipe), *recipe.own),
            dataset="mock" if is_mock(recipe.config) and not recipe.is_finetuning else None,
            from_scratch=recipe.is_finetuning,
            world_size=request.gpus,
            local_world_size=request.gpus,
        )
    ).run


def _common_start(reference: LayoutVariant, recipe: _Recipe, request: LayoutRequest, *, say: Say, run: Runner) -> tuple[str, ...]:
    """Return the overrides that make a layout start from the common weights, which are drawn first where none are given.

    Raises:
        NegativeAnswer: the run that draws them fails.
    """
    given = next((path for path in GIVEN_START if recipe.config.get(path, None)), None)
    if given is not None:
        say(f"every layout starts from {given}={recipe.config.get(given)}")
        return ()
    folder = (request.output / WEIGHTS).absolute()
    set_aside(folder, say=say, why="every layout would have started from it")
    still = {
        "train.train_iters": 1,
        "optimizer.lr": 0,
        "optimizer.min_lr": 0,
        "scheduler.lr_warmup_iters": 0,
        "scheduler.lr_decay_iters": 1,
        "validation.eval_iters": 0,
        "checkpoint.save": folder,
        "checkpoint.save_interval": 1,
    }
    side = _side(reference, recipe, request, tuple(f"{path}={value}" for path, value in still.items()))
    run(replace(side, name=START), request.output, say=say, timeout_s=request.timeout_s)
    if not folder.is_dir():
        raise EnvironmentProblem(
            Problem(code="no-start", path=str(folder), message="was not written by the run that draws the common weights")
        )
    return (f"checkpoint.pretrained_checkpoint={folder}",)


def _side(variant: LayoutVariant, recipe: _Recipe, request: LayoutRequest, extra: tuple[str, ...]) -> SideRun:
    words = core_words(
        request.recipe,
        (*_words(variant, recipe, extra), *recipe.own),
        mock=is_mock(recipe.config) and not recipe.is_finetuning,
    )
    from_scratch = ("--from-scratch",) if recipe.is_finetuning and not any("pretrained" in text for text in words) else ()
    return SideRun(name=variant.name, program=(*words, *from_scratch), processes=request.gpus)


def _judge_settings(
    report: ParityReport, reference: RunConfig, config: RunConfig, moved: set[str], request: LayoutRequest
) -> ParityReport:
    """Count the settings that decide the training and that no layout has a reason to change."""
    convergence, _ = find_unmatched(reference, config, open_catalog(request.release).schema())
    found = [
        FactDifference(name=item.path, reference=str(item.before), candidate=str(item.after), layer="convergence")
        for item in convergence
        if item.path not in moved
    ]
    return apply_settings(report, found)


def _path(text: str) -> str:
    return text.partition("=")[0].lstrip("+~")


def _paths(texts: tuple[str, ...]) -> set[str]:
    return {_path(text) for text in texts}
