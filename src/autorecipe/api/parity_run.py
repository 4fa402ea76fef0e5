"""Running parity experiments: two sides with any engine, or one recipe under several layouts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import autorecipe
from autorecipe.api.parity import compare_log_files
from autorecipe.api.parity_design import ResolvedSide, resolve_side
from autorecipe.api.translate import DEFAULT_RECIPE, load_mlm_mapping, to_mlm
from autorecipe.catalog.store import open_catalog
from autorecipe.config.resolve import resolve_config
from autorecipe.config.views import view_layout
from autorecipe.errors import EnvironmentProblem, NegativeAnswer, Problem, UsageError
from autorecipe.parity.compare import CompareOptions
from autorecipe.parity.experiment import SideRun, core_program, run_side, upstream_program
from autorecipe.parity.layouts import propose_layouts
from autorecipe.parity.sides import parse_side
from autorecipe.record import dataclass
from autorecipe.schema.parity import LayoutSentinel, ParityReport, RunOutcome, SideKind
from autorecipe.schema.run import RunConfig
from autorecipe.translate.render import override_texts
from autorecipe.translate.to_mlm import mlm_words

Say = Callable[[str], None]

MLM_ON_HOST = (
    "--transformer-impl",
    "local",
    "--no-gradient-accumulation-fusion",
    "--no-masked-softmax-fusion",
    "--no-bias-gelu-fusion",
    "--no-bias-swiglu-fusion",
    "--no-bias-dropout-fusion",
    "--no-rope-fusion",
    "--no-persist-layer-norm",
)
"""What Megatron-LM needs without CUDA; fusions and layer implementation only, so rounding may drift."""

BRIDGE_ON_HOST = (
    "model.transformer_impl=local",
    "model.masked_softmax_fusion=false",
    "model.gradient_accumulation_fusion=false",
    "checkpoint.save=null",
)
"""The same for Megatron Bridge."""


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """Two sides to run.

    Attributes:
        a: first side, as `parity design` takes it.
        b: second side.
        engine_a: `core`, `bridge`, `mlm`, or empty: `mlm` for Megatron-LM options where a checkout is there, else `core`.
        engine_b: the same for the second side.
        output: folder for runs and logs.
        megatron_lm: Megatron-LM checkout; never changed.
        bridge: Megatron Bridge checkout; never changed.
        gpus: processes; what the sides say, or the smallest world of their layouts, by default.
        release: Bridge release.
        timeout_s: seconds for each run; None waits.
        options: how to compare.
    """

    a: str
    b: str
    engine_a: str = ""
    engine_b: str = ""
    output: Path
    megatron_lm: Path = Path("3rdparty/Megatron-LM")
    bridge: Path = Path("3rdparty/Megatron-Bridge")
    gpus: int | None = None
    release: str | None = None
    timeout_s: float | None = None
    options: CompareOptions | None = None


def run_parity(request: RunRequest, *, say: Say) -> tuple[tuple[RunOutcome, RunOutcome], ParityReport]:
    """Run both sides one after the other and compare their logs.

    Raises:
        UsageError: a side that cannot be read.
        EnvironmentProblem: an engine's checkout is missing.
        NegativeAnswer: a run fails.
    """
    specs = [parse_side(text, default_recipe=DEFAULT_RECIPE) for text in (request.a, request.b)]
    recipe = next((spec.recipe for spec in specs if spec.kind is SideKind.BRIDGE), DEFAULT_RECIPE)
    sides = [resolve_side(spec, recipe=recipe, release=request.release, gpus=request.gpus) for spec in specs]
    processes = request.gpus or max(view_layout(side.config).minimum_world_size for side in sides)
    engines = [request.engine_a or _usual_engine(sides[0], request), request.engine_b or _usual_engine(sides[1], request)]
    for side in sides:
        if side.translation is not None and (side.translation.lost or side.translation.problems):
            problems = [Problem(code="unmapped", path=item.name, message=item.note) for item in side.translation.lost]
            raise NegativeAnswer([*problems, *side.translation.problems])
    runs = [
        SideRun(
            name=f"{label}-{engine}",
            program=_program(engine, side, recipe, request, say=say),
            processes=processes,
            environment={"MEGATRON_LM": str(request.megatron_lm)} if engine == "mlm" else {},
        )
        for label, side, engine in zip("ab", sides, engines, strict=True)
    ]
    first, second = (run_side(run, request.output, say=say, timeout_s=request.timeout_s) for run in runs)
    (report,) = compare_log_files([Path(first.log), Path(second.log)], options=request.options)
    return (first, second), report


def has_cuda() -> bool:
    """Return whether this machine shows an NVIDIA device, without importing torch."""
    return Path("/dev/nvidia0").exists() or shutil.which("nvidia-smi") is not None


def _usual_engine(side: ResolvedSide, request: RunRequest) -> str:
    if side.spec.kind is SideKind.MEGATRON_LM and (request.megatron_lm / "pretrain_gpt.py").is_file():
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


def _program(engine: str, side: ResolvedSide, recipe: str, request: RunRequest, *, say: Say) -> tuple[str, ...]:
    overrides = side.words if side.translation is None else tuple(override_texts(side.translation))
    target = side.spec.recipe or recipe
    if engine == "core":
        return core_program(training_script(), target, overrides, mock=_is_mock(side.config))
    if engine == "bridge":
        extra = () if has_cuda() else BRIDGE_ON_HOST
        _check_checkout(request.bridge / "scripts" / "training" / "run_recipe.py", "bridge")
        if extra:
            say(f"no CUDA: added for Megatron Bridge: {' '.join(extra)}")
        dataset = ("--dataset", "mock") if _is_mock(side.config) else ()
        return upstream_program("bridge", request.bridge, ("--recipe", target, *dataset, *overrides, *extra))
    if engine == "mlm":
        _check_checkout(request.megatron_lm / "pretrain_gpt.py", "mlm")
        words = list(side.words)
        if side.translation is None:
            wanted = to_mlm(target, overrides, release=request.release, gpus=request.gpus)
            words = mlm_words(wanted, load_mlm_mapping(request.release))
        added = () if has_cuda() else MLM_ON_HOST
        if added:
            say(f"no CUDA: added for Megatron-LM: {' '.join(added)}")
        return upstream_program("mlm", request.megatron_lm, (*words, *added))
    raise UsageError(f"unknown engine {engine!r}; use core, bridge or mlm")


def _check_checkout(script: Path, engine: str) -> None:
    if script.is_file():
        return
    option = "--megatron-lm" if engine == "mlm" else "--bridge"
    raise EnvironmentProblem(
        Problem(
            code="no-checkout",
            path=str(script),
            message=f"engine {engine} needs an upstream checkout, and there is none",
            hint=f"name one with {option} PATH, or use engine core",
        )
    )


def _is_mock(config: RunConfig) -> bool:
    return not any(config.get(path, None) for path in ("dataset.data_path", "dataset.blend", "dataset.blend_per_split"))


def run_layouts(
    recipe: str,
    overrides: tuple[str, ...],
    *,
    gpus: int,
    output: Path,
    only: tuple[str, ...] = (),
    release: str | None = None,
    timeout_s: float | None = None,
    options: CompareOptions | None = None,
    say: Say,
) -> tuple[LayoutSentinel, ...]:
    """Run one recipe under several layouts on this project's engine, and compare each with the first.

    Args:
        recipe: recipe name.
        overrides: overrides of all runs; layout fields in them are replaced.
        gpus: processes of each run.
        output: folder for runs and logs.
        only: names of layouts to run (the reference always runs); empty runs all.
        release: Bridge release.
        timeout_s: seconds for each run.
        options: how to compare.
        say: receives lines for people.

    Raises:
        UsageError: an unknown recipe, override or layout name.
        NegativeAnswer: a run fails.
    """
    catalog = open_catalog(release)
    target, schema = catalog.load(recipe), catalog.schema()
    # Weights drawn on the host from one generator are the same in every layout.
    common = (*overrides, "model.use_cpu_initialization=true")
    config = resolve_config(target, schema, common, world_size=gpus)
    variants = propose_layouts(config, gpus)
    known = [variant.name for variant in variants]
    unknown = [name for name in only if name not in known]
    if unknown:
        raise UsageError(f"unknown layout {', '.join(unknown)}; known: {', '.join(known)}")
    reference = next((variant for variant in variants if not variant.obstacle), None)
    if reference is None:
        raise NegativeAnswer([Problem(code="no-layout", path=item.name, message=item.obstacle) for item in variants])
    sentinels: list[LayoutSentinel] = []
    first: RunOutcome | None = None
    for variant in variants:
        chosen = variant is reference or not only or variant.name in only
        if variant.obstacle or not chosen:
            sentinels.append(
                LayoutSentinel(name=variant.name, overrides=variant.overrides, skipped=variant.obstacle or "not asked for")
            )
            continue
        moved = {text.partition("=")[0] for text in variant.overrides}
        words = tuple(text for text in common if text.partition("=")[0] not in moved) + variant.overrides
        program = core_program(training_script(), recipe, words, mock=_is_mock(config))
        done = run_side(SideRun(name=variant.name, program=program, processes=gpus), output, say=say, timeout_s=timeout_s)
        report = None
        if first is not None:
            (report,) = compare_log_files([Path(first.log), Path(done.log)], options=options)
        first = first or done
        sentinels.append(LayoutSentinel(name=variant.name, overrides=variant.overrides, report=report))
    return tuple(sentinels)
