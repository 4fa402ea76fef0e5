"""Running a parity experiment: two sides, each with any engine."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import autorecipe
from autorecipe.api.parity import compare_log_files
from autorecipe.api.parity_design import ResolvedSide, design_parity, resolve_side
from autorecipe.api.translate import DEFAULT_RECIPE, load_mlm_mapping, to_mlm
from autorecipe.api.upstream import bridge_program, find_place, look_up_place, megatron_lm_program
from autorecipe.config.views import view_layout
from autorecipe.errors import EnvironmentProblem, NegativeAnswer, Problem, UsageError
from autorecipe.parity.compare import CompareOptions
from autorecipe.parity.experiment import SideRun, run_side
from autorecipe.parity.sides import parse_side
from autorecipe.record import dataclass
from autorecipe.schema.parity import ParityReport, RunOutcome, SideKind
from autorecipe.schema.run import RunConfig
from autorecipe.translate.render import override_texts
from autorecipe.translate.to_mlm import mlm_words

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """Two sides to run.

    Attributes:
        a: first side, as `parity design` takes it.
        b: second side.
        engine_a: `core`, `bridge`, `mlm`, or empty: `mlm` for Megatron-LM options where it is found, else `core`.
        engine_b: the same for the second side.
        output: folder for runs and logs.
        megatron_lm: checkout of Megatron-LM or folder with its packages; None looks at the usual places. Never changed.
        bridge: the same for Megatron Bridge.
        gpus: processes; what the sides say, or the smallest world of their layouts, by default.
        release: Bridge release.
        timeout_s: seconds for each run; None waits.
        match: whether the second side is corrected first, as `parity design` corrects it.
        match_execution: whether fields that only drift are corrected as well.
        options: how to compare.
    """

    a: str
    b: str
    engine_a: str = ""
    engine_b: str = ""
    output: Path
    megatron_lm: Path | None = None
    bridge: Path | None = None
    gpus: int | None = None
    release: str | None = None
    timeout_s: float | None = None
    match: bool = False
    match_execution: bool = False
    options: CompareOptions | None = None


def run_parity(request: RunRequest, *, say: Say) -> tuple[tuple[RunOutcome, RunOutcome], ParityReport]:
    """Run both sides one after the other and compare their logs.

    Raises:
        UsageError: a side that cannot be read.
        EnvironmentProblem: an upstream program is not here.
        NegativeAnswer: a run fails.
    """
    second_side = _corrected(request, say=say) if request.match or request.match_execution else request.b
    specs = [parse_side(text, default_recipe=DEFAULT_RECIPE) for text in (request.a, second_side)]
    recipe = next((spec.recipe for spec in specs if spec.kind is SideKind.BRIDGE), DEFAULT_RECIPE)
    sides = [resolve_side(spec, recipe=recipe, release=request.release, gpus=request.gpus) for spec in specs]
    processes = request.gpus or max(view_layout(side.config).minimum_world_size for side in sides)
    engines = [request.engine_a or _usual_engine(sides[0], request), request.engine_b or _usual_engine(sides[1], request)]
    for side in sides:
        if side.translation is not None and (side.translation.lost or side.translation.problems):
            problems = [Problem(code="unmapped", path=item.name, message=item.note) for item in side.translation.lost]
            raise NegativeAnswer([*problems, *side.translation.problems])
    unlike = _unlike_start(*(side.config for side in sides))
    if unlike:
        say(unlike)
    runs = [
        _side_run(f"{label}-{engine}", engine, side, recipe, request, processes=processes, say=say)
        for label, side, engine in zip("ab", sides, engines, strict=True)
    ]
    first, second = (run_side(run, request.output, say=say, timeout_s=request.timeout_s) for run in runs)
    (report,) = compare_log_files([Path(first.log), Path(second.log)], options=request.options)
    return (first, second), report


def _unlike_start(a: RunConfig, b: RunConfig) -> str:
    """Say what makes two sides draw other initial weights from the same seed; empty where nothing does.

    Source: a rank draws its own part of the weights, and what the fused-kernel warm-up draws before depends on tp, cp and the
    micro batch (`set_jit_fusion_options`, megatron/training/initialize.py @ core 0.19.2); measured: TP 2, micro batch 2 for 4.
    """
    if any(config.get("checkpoint.pretrained_checkpoint", None) for config in (a, b)):
        return ""
    one, other = view_layout(a), view_layout(b)
    moved = [
        f"{axis.upper()} {getattr(one, axis)} / {getattr(other, axis)}"
        for axis in ("tp", "pp", "vp", "cp", "ep", "etp")
        if getattr(one, axis) != getattr(other, axis)
    ]
    sizes = [config.get("train.micro_batch_size", None) for config in (a, b)]
    if sizes[0] != sizes[1]:
        moved.append(f"micro batch {sizes[0]} / {sizes[1]}")
    if not moved:
        return ""
    return (
        f"A and B ({', '.join(moved)}) may draw other initial weights from the same seed, and so differ from the first iteration "
        "on: give both one checkpoint.pretrained_checkpoint, or compare layouts with `autorecipe parity layouts`"
    )


def _corrected(request: RunRequest, *, say: Say) -> str:
    """Return the second side with what `parity design` corrects in it.

    Raises:
        NegativeAnswer: a difference remains that nothing can express.
    """
    design = design_parity(
        request.a, request.b, release=request.release, gpus=request.gpus, match_execution=request.match_execution
    )
    if not design.comparable:
        problems = [Problem(code="cannot-match", path=text.partition(":")[0], message=text) for text in design.lost]
        raise NegativeAnswer(problems or [Problem(code="cannot-match", path="B", message=text) for text in design.notes])
    if not design.fixes:
        say("B needs no correction")
        return request.b
    say(f"B corrected: {' '.join(design.fixes)}")
    side = design.sides[1]
    own = parse_side(request.b, default_recipe=DEFAULT_RECIPE).engine_options
    return shlex.join([*([side.recipe] if side.kind is SideKind.BRIDGE else []), *side.corrected, *own])


def _usual_engine(side: ResolvedSide, request: RunRequest) -> str:
    if side.spec.kind is SideKind.MEGATRON_LM and look_up_place("mlm", request.megatron_lm) is not None:
        return "mlm"
    return "core"


def training_script() -> Path:
    """Return this project's training program.

    Raises:
        EnvironmentProblem: the package is installed without the repository's scripts.
    """
    script = Path(autorecipe.__file__).resolve().parents[2] / "scripts" / "training" / "run_recipe.py"
    if not script.is_file():
        raise EnvironmentProblem(
            Problem(
                code="no-training-script",
                path=str(script),
                message="is missing: the package runs without its repository",
                hint="run from a checkout of autorecipe",
            )
        )
    return script


def _side_run(
    name: str, engine: str, side: ResolvedSide, recipe: str, request: RunRequest, *, processes: int, say: Say
) -> SideRun:
    overrides = side.words if side.translation is None else tuple(override_texts(side.translation))
    target = side.spec.recipe or recipe
    own = side.spec.engine_options
    if engine == "core":
        words = core_words(target, (*overrides, *own), mock=is_mock(side.config))
        return SideRun(name=name, program=words, processes=processes)
    if own:
        say(f"{name}: only engine core understands {' '.join(own)}; left out")
    if engine == "bridge":
        core = look_up_place("mlm", request.megatron_lm)
        program = bridge_program(
            find_place("bridge", request.bridge),
            target,
            overrides,
            dataset="mock" if is_mock(side.config) else None,
            core=core.path if core is not None else None,
        )
        header: tuple[str, ...] = (f"Megatron Bridge, run_recipe.py --recipe {target}", f"overrides: {shlex.join(overrides)}")
    elif engine == "mlm":
        options = list(side.words)
        if side.translation is None:
            wanted = to_mlm(target, overrides, release=request.release, gpus=request.gpus)
            options = mlm_words(wanted, load_mlm_mapping(request.release))
        program = megatron_lm_program(find_place("mlm", request.megatron_lm), options)
        header = (f"Megatron-LM, pretrain_gpt.py; args: {shlex.join(options)}",)
    else:
        raise UsageError(f"unknown engine {engine!r}; use core, bridge or mlm")
    for note in program.notes:
        say(note)
    return SideRun(name=name, program=program.words, processes=processes, environment=program.environment, header=header)


def core_words(recipe: str, overrides: Sequence[str], *, mock: bool) -> tuple[str, ...]:
    """Return the words that train on this project's engine.

    Args:
        recipe: recipe name.
        overrides: `KEY=VALUE` texts.
        mock: whether the data are made up.

    Raises:
        EnvironmentProblem: the package is installed without the repository's scripts.
    """
    dataset = ("--dataset", "mock") if mock else ()
    return (str(training_script()), "--recipe", recipe, *dataset, *overrides)


def is_mock(config: RunConfig) -> bool:
    """Return whether a configuration names no data, so that made-up ones are used."""
    return not any(config.get(path, None) for path in ("dataset.data_path", "dataset.blend", "dataset.blend_per_split"))
