"""Preparing a training run: resolve, check with the real world size, weigh against this machine, or shrink.

The caller starts the engine (or upstream's program) with the result; nothing here imports torch. Start reading at
`prepare_training`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from autorecipe.api.check import render_words
from autorecipe.api.machine import Machine, match_gpu, read_machine
from autorecipe.api.mode import ChosenMode, check_adapter, check_mode, choose_mode
from autorecipe.api.resolve import resolve_run
from autorecipe.config.grammar import render_value
from autorecipe.config.shrink import shrink_overrides
from autorecipe.errors import AutorecipeError, EnvironmentProblem, NegativeAnswer, Problem, UsageError, unknown_name
from autorecipe.estimate.inputs import read_inputs
from autorecipe.estimate.memory import MemoryModel
from autorecipe.record import dataclass, replace
from autorecipe.rules.check import judge
from autorecipe.rules.situation import Situation
from autorecipe.schema.estimate import LayerImplementation, StageMemory
from autorecipe.schema.finding import Finding, Fix, Severity
from autorecipe.schema.hardware import Cluster
from autorecipe.schema.run import Origin, OriginKind, RunConfig
from autorecipe.schema.value import FieldValue

ENGINE_PREFIX = "engine."
OWN_VALUES = ("tokenizer.tokenizer_type=ByteTokenizer",)
"""Overrides whose value upstream does not have."""

ENGINES = ("core", "bridge", "mlm")
PROCESS_OVERHEAD_BYTES = 0.5 * 1024**3
"""Resident memory of one process before the model: interpreter, torch, Megatron-Core. Measured 2026-12 on Linux x86-64."""

START_RULES = frozenset({"CKP031", "CKP032"})
"""Rules that ask for weights to start from; smoke runs and `--from-scratch` go without."""

FIRST_GPU = "h100"
"""GPU type whose facts stand in where this machine has none; rules about its interconnect then speak of it."""


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """What the user asks to run.

    Attributes:
        recipe: recipe name or alias.
        overrides: `KEY=VALUE` texts, flags already turned into such.
        mode: pretrain, sft, lora or dora; None takes what the recipe's name says, or its evaluated configuration.
        dataset: dataset preset, or None for the recipe's own.
        engine: core, bridge or mlm.
        shrink: make it a smoke run.
        check_memory: compare memory needed with memory here.
        from_scratch: whether fine-tuning may start from random weights, to try a run out.
        world_size: processes.
        local_world_size: processes on this machine.
    """

    recipe: str
    overrides: tuple[str, ...] = ()
    mode: str | None = None
    dataset: str | None = None
    engine: str = "core"
    shrink: bool = False
    check_memory: bool = True
    from_scratch: bool = False
    world_size: int = 1
    local_world_size: int = 1


@dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """What would run.

    Attributes:
        run: resolved configuration, paths expanded.
        mode: how it trains, and what that was read from.
        findings: of the check; none is an error.
        stages: estimated memory of each pipeline stage (bytes per rank).
        machine: this host.
        needed_bytes: estimated host or GPU memory that the ranks of this machine need; of one GPU where there are GPUs.
        available_bytes: what is there, in the same sense.
        shrunk: overrides that made it a smoke run; empty when it is not one.
    """

    run: RunConfig
    mode: ChosenMode
    findings: tuple[Finding, ...]
    stages: tuple[StageMemory, ...]
    machine: Machine
    needed_bytes: float
    available_bytes: float
    shrunk: tuple[str, ...] = ()


def prepare_training(request: TrainRequest, *, machine: Machine | None = None) -> TrainPlan:
    """Resolve a request, check it, and weigh it against this machine.

    Args:
        request: what to run.
        machine: this host; read when not given.

    Raises:
        UsageError: an unknown recipe, key, mode or dataset, or ones that contradict each other.
        NegativeAnswer: the check found errors.
        EnvironmentProblem: the machine is too small.
    """
    machine = machine or read_machine()
    own, others = _split_engine_options(request.overrides)
    run = _resolve(request, others)
    _check_sized(run)
    shrunk: tuple[str, ...] = ()
    if request.shrink:
        shrunk = shrink_overrides(run, world_size=request.world_size)
        smaller, plain = _split_engine_options(shrunk)
        # What the user typed comes last: a smoke run of exactly two layers stays one of two layers.
        typed = {text.partition("=")[0] for text in others}
        others = [*plain, *others]
        run = _resolve(request, others)
        own = {**{path: value for path, value in smaller.items() if path not in typed}, **own}
    run = expand_paths(_with_engine_options(run, own))
    findings = _check(run, request, machine, others)
    waived = START_RULES if request.from_scratch or request.shrink else frozenset[str]()
    errors = [finding for finding in findings if finding.severity is Severity.ERROR and finding.rule not in waived]
    if errors:
        raise NegativeAnswer(
            [
                Problem(code=finding.rule, path=", ".join(finding.paths[:2]), message=finding.message, hint=_hint(finding))
                for finding in errors
            ]
        )
    stages = _estimate(run, request.world_size, on_gpu=bool(machine.num_gpus))
    needed, available = _weigh(stages, request, machine)
    plan = TrainPlan(
        run=run,
        mode=choose_mode(run, request.recipe, request.mode),
        findings=findings,
        stages=stages,
        machine=machine,
        needed_bytes=needed,
        available_bytes=available,
        shrunk=shrunk,
    )
    if request.check_memory:
        require_memory(plan, request)
    return plan


def require_memory(plan: TrainPlan, request: TrainRequest) -> None:
    """Refuse a run of this engine that the machine cannot hold.

    Raises:
        EnvironmentProblem: memory needed against memory there, and what to do.
    """
    if request.engine == "core" and plan.needed_bytes > plan.available_bytes:
        raise EnvironmentProblem(_too_small(request, plan))


def resolve_request(request: TrainRequest) -> RunConfig:
    """Resolve a request without checking or weighing it.

    Raises:
        UsageError: an unknown recipe, key, mode or dataset, or ones that contradict each other.
    """
    own, others = _split_engine_options(request.overrides)
    return expand_paths(_with_engine_options(_resolve(request, others), own))


def expand_paths(run: RunConfig) -> RunConfig:
    """Replace the `${CWD}` and `${HOME}` of recorded recipe paths by the working and the home folder."""
    # The working folder by upstream's own call, because symbolic links must look the same.
    here = {"${CWD}": os.getcwd(), "${HOME}": os.path.expanduser("~")}  # noqa: PTH109, PTH111

    def expand(value: FieldValue) -> FieldValue:
        for name, folder in here.items():
            if isinstance(value, str) and name in value:
                value = value.replace(name, folder)
        return value

    values = {path: expand(value) for path, value in run.values.items()}
    return replace(run, values=values)


def environment_defaults(run: RunConfig) -> dict[str, str]:
    """Return the environment variables that a configuration sets where they are unset (upstream's `env_vars`)."""
    found = {path.removeprefix("env_vars."): value for path, value in run.values.items() if path.startswith("env_vars.")}
    return {name: str(value) for name, value in found.items() if value is not None and not name.startswith("_")}


def _resolve(request: TrainRequest, overrides: Sequence[str]) -> RunConfig:
    if request.engine not in ENGINES:
        raise UsageError(unknown_name("engine", request.engine, ENGINES))
    check_mode(request.recipe, request.mode)
    run = resolve_run(request.recipe, tuple(overrides), world_size=request.world_size, mode=request.mode, dataset=request.dataset)
    mode = choose_mode(run, request.recipe, request.mode)
    if request.engine == "core":
        check_adapter(run, mode.mode)
    return run


def _check_sized(run: RunConfig) -> None:
    """Check that the model has a size: a bare recipe leaves it to the user.

    Raises:
        UsageError: naming every size that is missing or zero.
    """
    names = ("num_layers", "hidden_size", "num_attention_heads")
    missing = [name for name in names if not isinstance(size := run.get(f"model.{name}", None), int) or size < 1]
    if missing:
        raise UsageError(
            [
                Problem(
                    path=f"model.{name}",
                    code="missing-value",
                    message=f"is {run.get(f'model.{name}', None)!r}: recipe {run.recipe} leaves the model's size to you",
                    hint="add model.num_layers=2 model.hidden_size=256 model.num_attention_heads=4 model.ffn_hidden_size=1024",
                )
                for name in missing
            ]
        )


def _split_engine_options(overrides: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Separate `engine.KEY=VALUE`, and values that only this engine knows, from overrides of upstream's configuration."""
    own: dict[str, str] = {}
    others = []
    for text in overrides:
        key, separator, value = text.partition("=")
        if separator and (key.startswith(ENGINE_PREFIX) or text in OWN_VALUES):
            own[key] = value
        else:
            others.append(text)
    return own, others


def _with_engine_options(run: RunConfig, own: Mapping[str, str]) -> RunConfig:
    origins = {path: Origin(kind=OriginKind.OVERRIDE, detail=f"{path}={value}") for path, value in own.items()}
    return replace(run, values={**run.values, **own}, origins={**run.origins, **origins})


def _check(run: RunConfig, request: TrainRequest, machine: Machine, overrides: Sequence[str]) -> tuple[Finding, ...]:
    """Check a run; ways out are resolved and checked again, as if they had been typed behind the overrides."""
    from autorecipe.catalog.hardware import load_gpus

    gpus = load_gpus()
    gpu = match_gpu(machine, gpus) or gpus[FIRST_GPU]
    per_node = max(1, request.local_world_size)
    cluster = Cluster(gpu=gpu, num_gpus=request.world_size, gpus_per_node=per_node)
    given: dict[str, Any] = {"mode": choose_mode(run, request.recipe, request.mode).mode}
    if request.dataset is not None:
        given["dataset"] = request.dataset
    environment = {**environment_defaults(run), **os.environ} if machine.num_gpus else None
    situation = Situation(config=run, cluster=cluster, environment=environment, given=given)

    def change(words: Mapping[str, Any]) -> Situation | None:
        changed = situation.changed({path: value for path, value in words.items() if not _is_path(path)})
        texts = [f"{path}={render_value(value)}" for path, value in words.items() if _is_path(path)]
        world = changed.cluster.num_gpus if changed.cluster else request.world_size
        try:
            again = _resolve(replace(request, world_size=world), [*overrides, *texts])
        except AutorecipeError:
            return None
        return replace(changed, config=expand_paths(again))

    return judge(situation, change=change)


def _is_path(path: str) -> bool:
    return path != "gpus" and path.partition(".")[0] not in ("env", "given")


def _hint(finding: Finding) -> str:
    """Return what to do: the rule's advice, and ways out that pass the check."""
    ways = [way for way in map(_way_out, (fix for fix in finding.fixes if fix.verified)) if way != finding.hint]
    passing = f"passes: {', or '.join(ways[:3])}" if ways else ""
    return "; ".join(text for text in (finding.hint, passing) if text)


def _way_out(fix: Fix) -> str:
    """Return a fix as words of this command, where facts of the run are options: given.dataset=squad is `--dataset squad`."""
    facts = {path: value for path, value in fix.overrides.items() if path.startswith("given.")}
    words = {path: value for path, value in fix.overrides.items() if path != "gpus" and path not in facts}
    start = [f"{fix.overrides['gpus']} processes"] if "gpus" in fix.overrides else []
    options = [f"--{path.removeprefix('given.')} {value}" for path, value in facts.items()]
    return " ".join([*start, *options, *render_words(words)])


def _estimate(run: RunConfig, world_size: int, *, on_gpu: bool) -> tuple[StageMemory, ...]:
    inputs = read_inputs(run, layers=LayerImplementation.LOCAL, on_gpu=on_gpu)
    model = MemoryModel(inputs.shape, policy=inputs.policy)
    return model.estimate(layout=inputs.layout, batch=inputs.batch, world_size=world_size)


def _weigh(stages: Sequence[StageMemory], request: TrainRequest, machine: Machine) -> tuple[float, float]:
    """Return (needed, available) bytes: of one GPU where there are GPUs, of this host otherwise."""
    worst = max(stage.peak_bytes for stage in stages)
    if machine.num_gpus:
        return worst, float(machine.gpu_memory_bytes)
    return request.local_world_size * (worst + PROCESS_OVERHEAD_BYTES), float(machine.memory_available_bytes)


def _too_small(request: TrainRequest, plan: TrainPlan) -> Problem:
    machine, needed, available = plan.machine, plan.needed_bytes, plan.available_bytes
    where = "of each GPU" if machine.num_gpus else f"for {request.local_world_size} processes on this host"
    return Problem(
        code="machine-too-small",
        message=f"{request.recipe} needs about {needed / 1024**3:.1f} GiB {where}, and {available / 1024**3:.1f} GiB are there "
        f"({machine.render()})",
        hint="add --shrink for a smoke run of the same structure, use more GPUs (`autorecipe plan`), "
        "or add --no-memory-check if you know better",
    )
