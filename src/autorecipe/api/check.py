"""Check a recipe or a file: joins catalog, configuration and rules.

`check_run` is the use case; `read_target` finds out what is to be checked. A fix is verified by resolving the run again with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autorecipe.api.configfile import read_config_file
from autorecipe.config.grammar import render_value
from autorecipe.config.layers import layer_of
from autorecipe.errors import AutorecipeError, Problem, UsageError
from autorecipe.record import dataclass, field, replace
from autorecipe.rules.check import judge
from autorecipe.rules.release import is_release
from autorecipe.rules.situation import Situation
from autorecipe.schema import Cluster, ConfigSchema, Finding, Fix, Layer, RecipeKind, RunConfig, Severity
from autorecipe.schema.finding import CheckReport, CorrectedRun, FixStep

MAX_STEPS = 12
LAYER_COST = {Layer.IO: 0, Layer.EXECUTION: 0, Layer.BENCHMARK_ONLY: 1, Layer.FINGERPRINT: 1, Layer.CONVERGENCE: 2}


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """What to check, and where it would run.

    Attributes:
        target: recipe name, or path of a YAML or JSON file.
        overrides: texts in the override grammar.
        gpus: number of GPUs; the count in the recipe's name by default.
        gpu: GPU type; the one in the recipe's name by default.
        gpus_per_node: GPUs of a host; the usual number of the type by default.
        framework: `bridge` or `megatron-lm`.
        release: Bridge release; the newest shipped one by default.
        core_release: Megatron-Core release; the one that goes with the Bridge release by default.
        environment: complete process environment, or None where not known.
        packages: releases of installed packages.
        given: what the launch says beside the configuration, such as `dataset` and `mode`.
        saved: configuration of the checkpoint to resume from, by path.
        here: whether the run will start on this machine: paths and the environment are then looked at.
    """

    target: str
    overrides: Sequence[str] = ()
    gpus: int | None = None
    gpu: str | None = None
    gpus_per_node: int | None = None
    framework: str = "bridge"
    release: str | None = None
    core_release: str | None = None
    environment: Mapping[str, str] | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    saved: Mapping[str, Any] = field(default_factory=dict)
    here: bool = False


@dataclass(frozen=True, kw_only=True)
class Target:
    """A run that can be resolved again with more overrides.

    Attributes:
        schema: schema of the release.
        resolve: (overrides, world size) -> resolved configuration.
        gpus: GPU count in the recipe's name, or None.
        gpu: GPU type in the recipe's name, or None.
        launch: where it would run, as far as a file says.
    """

    schema: ConfigSchema
    resolve: Callable[[Sequence[str], int | None], RunConfig]
    gpus: int | None = None
    gpu: str | None = None
    launch: Mapping[str, Any] = field(default_factory=dict)


def check_run(request: CheckRequest, *, correct: bool = False) -> CheckReport:
    """Check a run.

    Args:
        request: what to check, and where it would run.
        correct: whether to look for overrides that make it pass as well.

    Returns:
        findings whose fixes carry the layers of change they touch.

    Raises:
        UsageError: unknown recipe, GPU, release, or overrides that upstream would refuse.
        NegativeAnswer: a recipe that fails in upstream itself.
    """
    target = read_target(request)
    request = merge_launch(request, target.launch)
    situation = build_situation(request, target)
    findings = judge(situation, change=_changer(request, target))
    labelled = tuple(_label(finding, target.schema) for finding in findings)
    return CheckReport(
        subject=request.target,
        framework=request.framework,
        release=situation.config.release,
        core_release=situation.context().core,
        gpu=situation.cluster.gpu.name if situation.cluster else None,
        gpus=situation.cluster.num_gpus if situation.cluster else None,
        findings=labelled,
        notes=situation.config.notes,
        corrected=correct_run(request, target) if correct else None,
    )


def read_target(request: CheckRequest) -> Target:
    """Find out whether the target is a recipe or a file, and how to resolve it."""
    from autorecipe.catalog.store import open_catalog
    from autorecipe.config.resolve import resolve_config

    catalog = open_catalog(request.release)
    schema = catalog.schema()
    if _is_file(request.target):
        base = read_config_file(Path(request.target), catalog, framework=request.framework)
        if base.recipe:
            inner = read_target(replace(request, target=base.recipe))
            return replace(
                inner,
                resolve=lambda overrides, world: inner.resolve([*base.overrides, *overrides], world),
                launch=base.launch,
            )
        return Target(schema=schema, resolve=lambda overrides, world: base.with_overrides(overrides, schema), launch=base.launch)
    recipe = catalog.load(request.target)
    # A benchmark recipe has a fixed adapter: a rule says so, with the way out.
    mode = str(request.given.get("mode", "")) if recipe.kind is RecipeKind.LIBRARY else None
    dataset = request.given.get("dataset")

    def resolve(overrides: Sequence[str], world: int | None) -> RunConfig:
        return resolve_config(recipe, schema, overrides, world_size=world, mode=mode, dataset=dataset)

    return Target(
        schema=schema,
        resolve=resolve,
        gpus=recipe.gpus,
        gpu=recipe.gpu_type,
    )


def merge_launch(request: CheckRequest, launch: Mapping[str, Any]) -> CheckRequest:
    """Return the request with what a file says about the launch, where the request itself says nothing."""
    environment = launch.get("environment")
    if request.environment is None and isinstance(environment, Mapping):
        known = {str(name): str(value) for name, value in environment.items() if value is not None}
        request = replace(request, environment=known)
    core = launch.get("core")
    return replace(
        request,
        gpus=request.gpus if request.gpus is not None else launch.get("gpus"),
        gpu=request.gpu or launch.get("gpu"),
        gpus_per_node=request.gpus_per_node or launch.get("gpus_per_node"),
        core_release=request.core_release or (str(core) if core is not None else None),
        packages={**{str(name): str(value) for name, value in (launch.get("packages") or {}).items()}, **request.packages},
        given={**(launch.get("given") or {}), **request.given},
        saved={**(launch.get("saved") or {}), **request.saved},
    )


def build_situation(request: CheckRequest, target: Target) -> Situation:
    """Resolve the run and describe where it would run."""
    from autorecipe.api.surroundings import look_at_paths, process_environment

    cluster = build_cluster(request, target)
    config = target.resolve(request.overrides, cluster.num_gpus if cluster else None)
    given = dict(request.given)
    if request.gpus is not None and target.gpus is not None:
        given.setdefault("canonical_gpus", target.gpus)
    typed = {text.lstrip("+~").partition("=")[0] for text in request.overrides}
    given.setdefault("overrides", sorted(typed))
    environment = request.environment
    if not is_release(request.core_release or ""):
        message = f"{request.core_release!r} is no release of Megatron-Core"
        raise UsageError(Problem(code="bad-value", path="--core", message=message, hint="give one such as 0.16.1, or main"))
    if request.here:
        environment = {**process_environment(), **(environment or {})}
    return Situation(
        config=config,
        cluster=cluster,
        framework=request.framework,
        core_release=request.core_release or "",
        environment=environment,
        packages=request.packages,
        given=given,
        saved=request.saved,
        found=look_at_paths(config) if request.here else {},
    )


def build_cluster(request: CheckRequest, target: Target) -> Cluster | None:
    """Return the GPUs of a run: as asked for, else those in the recipe's name, else none."""
    from autorecipe.catalog.hardware import find_gpu

    count = request.gpus if request.gpus is not None else target.gpus
    name = request.gpu or target.gpu
    if count is None or name is None:
        if count is None:
            return None
        name = "h100"
    gpu = find_gpu(name)
    return Cluster(gpu=gpu, num_gpus=count, gpus_per_node=request.gpus_per_node or gpu.gpus_per_node)


def correct_run(request: CheckRequest, target: Target) -> CorrectedRun:
    """Apply verified fixes one after the other until no error is left.

    Among a finding's verified fixes, one that leaves convergence alone is taken first.
    """
    steps: list[FixStep] = []
    current = request
    for _ in range(MAX_STEPS):
        findings = judge(build_situation(current, target), change=_changer(current, target))
        errors = [_label(finding, target.schema) for finding in findings if finding.severity is Severity.ERROR]
        chosen = next(((finding, fix) for finding in errors if (fix := _cheapest(finding))), None)
        if chosen is None:
            break
        finding, fix = chosen
        steps.append(
            FixStep(
                rule=finding.rule,
                words=tuple(render_words(fix.overrides)),
                layers={path: _layer(path, target.schema) for path in fix.overrides},
                note=fix.note,
            )
        )
        current = apply_fix(current, fix.overrides)
    else:
        findings = judge(build_situation(current, target), verify=False)
    return CorrectedRun(
        overrides=tuple(current.overrides),
        options=tuple(_option_words(request, current)),
        steps=tuple(steps),
        remaining=tuple(finding for finding in findings if finding.severity is Severity.ERROR),
    )


def apply_fix(request: CheckRequest, overrides: Mapping[str, Any]) -> CheckRequest:
    """Return a request with a fix applied; later overrides of a path replace earlier ones."""
    texts = list(request.overrides)
    for path, value in overrides.items():
        space, _, name = path.partition(".")
        if path == "gpus":
            request = replace(request, gpus=int(value))
        elif space == "env":
            environment = dict(request.environment or {})
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = str(value)
            request = replace(request, environment=environment)
        elif space == "given":
            request = replace(request, given={**request.given, name: value})
        else:
            texts = [text for text in texts if text.lstrip("+~").partition("=")[0] != path]
            texts.append(f"{path}={render_value(value)}")
    return replace(request, overrides=tuple(texts))


def render_words(overrides: Mapping[str, Any]) -> list[str]:
    """Render a fix as words that can be typed."""
    words = []
    for path, value in overrides.items():
        space, _, name = path.partition(".")
        if path == "gpus":
            words.append(f"--gpus {value}")
        elif space == "env":
            words.append(f"unset {name}" if value is None else f"--env {name}={value}")
        elif space == "given":
            words.append(f"--given {name}={value}")
        else:
            words.append(f"{path}={render_value(value)}")
    return words


def _changer(request: CheckRequest, target: Target) -> Callable[[Mapping[str, Any]], Situation | None]:
    def change(overrides: Mapping[str, Any]) -> Situation | None:
        try:
            return build_situation(apply_fix(request, overrides), target)
        except AutorecipeError:
            return None

    return change


def _cheapest(finding: Finding) -> Fix | None:
    verified = [fix for fix in finding.fixes if fix.verified]
    return min(verified, key=lambda fix: max((LAYER_COST[layer] for layer in fix.layers), default=0), default=None)


def _label(finding: Finding, schema: ConfigSchema) -> Finding:
    fixes = tuple(
        replace(fix, layers=tuple(dict.fromkeys(_layer(path, schema) for path in fix.overrides))) for fix in finding.fixes
    )
    return replace(finding, fixes=fixes)


def _layer(path: str, schema: ConfigSchema) -> Layer:
    if path == "gpus" or path.startswith("given."):
        return Layer.EXECUTION
    return layer_of(path, schema)[0]


def _option_words(before: CheckRequest, after: CheckRequest) -> list[str]:
    words = []
    if after.gpus != before.gpus:
        words.append(f"--gpus {after.gpus}")
    old, new = before.environment or {}, after.environment or {}
    words += [f"--env {name}={value}" for name, value in new.items() if old.get(name) != value]
    words += [f"unset {name}" for name in old if name not in new]
    return words


def _is_file(target: str) -> bool:
    return target.endswith((".yaml", ".yml", ".json")) or ("/" in target and ".py:" not in target)
