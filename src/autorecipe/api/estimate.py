"""Estimate memory and time of a recipe, or of a model, on some GPUs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence

from autorecipe.api.model import resolve_model
from autorecipe.api.resolve import resolve_run
from autorecipe.errors import EnvironmentProblem, Problem, UsageError, unknown_name
from autorecipe.estimate.budget import estimate_budget
from autorecipe.estimate.calibration import load_errors, memory_class, time_class
from autorecipe.estimate.defaults import TUNED_NOTE
from autorecipe.estimate.inputs import EstimateInputs, read_inputs
from autorecipe.estimate.memory import NOT_MODELLED, estimate_memory
from autorecipe.estimate.overhead import judge, outside_bytes, reserved_bytes
from autorecipe.estimate.time import estimate_time
from autorecipe.record import dataclass, replace
from autorecipe.schema.estimate import (
    BudgetEstimate,
    FlopFormula,
    LayerImplementation,
    MemoryEstimate,
    StageMemory,
    TimeEstimate,
)
from autorecipe.schema.evidence import Evidence
from autorecipe.schema.hardware import Gpu
from autorecipe.schema.preset import PRESETS
from autorecipe.schema.run import RunConfig


@dataclass(frozen=True, kw_only=True)
class EstimateTarget:
    """What is estimated: a configuration on a number of GPUs.

    Attributes:
        config: resolved configuration.
        inputs: the same as the estimators' arguments.
        gpu: GPU type.
        world_size: GPUs.
        from_recipe: whether the execution policy comes from a recipe (else from a tuned run's defaults).
    """

    config: RunConfig
    inputs: EstimateInputs
    gpu: Gpu
    world_size: int
    from_recipe: bool


@dataclass(frozen=True, kw_only=True)
class TimeReport:
    """A time estimate, and what a token budget costs where one was given."""

    time: TimeEstimate
    budget: BudgetEstimate | None = None


def find_target(
    *,
    recipe: str | None = None,
    model: str | None = None,
    overrides: Sequence[str] = (),
    gpus: int | None = None,
    gpu: str | None = None,
    mode: str | None = None,
    dataset: str | None = None,
    release: str | None = None,
    layers: LayerImplementation | None = None,
) -> EstimateTarget:
    """Resolve a recipe or a model, and check that the layout divides the GPUs.

    Args:
        recipe: recipe name; or
        model: Hugging Face id or path to a `config.json`.
        overrides: texts in the override grammar.
        gpus: GPUs; by default the count in the recipe's name.
        gpu: GPU type; by default the one in the recipe's name.
        mode: mode of the launcher; `dora` trains another adapter than the recipe's. For a recipe only, as `dataset` is.
        dataset: preset of the launcher in place of the recipe's own data.
        release: Bridge release of the catalog.
        layers: whose layers will run; None takes what the configuration says.

    Raises:
        UsageError: neither or both given, no GPU count or type known, or the layout does not divide the GPUs.
    """
    from autorecipe.catalog.hardware import find_gpu
    from autorecipe.catalog.store import open_catalog

    if (recipe is None) == (model is None):
        raise UsageError("give a RECIPE or --model, not both", hint="`autorecipe recipes list` shows the recipes")
    problems = []
    if recipe is not None:
        summary = open_catalog(release).summary(recipe)
        gpus, gpu = gpus or summary.gpus, gpu or summary.gpu_type
        if dataset is not None and dataset not in PRESETS:
            raise UsageError(unknown_name("dataset preset", dataset, list(PRESETS), hint=f"presets: {', '.join(PRESETS)}"))
        config = resolve_run(recipe, overrides, release=release, world_size=gpus, mode=mode, dataset=dataset)
    else:
        assert model is not None
        given = [f"--{name}" for name, value in (("mode", mode), ("dataset", dataset)) if value is not None]
        if given:
            raise UsageError(f"{' and '.join(given)} go with a recipe, not with --model", hint="name a RECIPE, or leave them out")
        config = resolve_model(model, overrides, release=release, world_size=gpus, gpu=find_gpu(gpu) if gpu else None)
    if gpus is None:
        problems.append(
            Problem(code="missing-value", path="--gpus", message="is needed: the recipe names no GPU count", hint="add --gpus N")
        )
    if gpu is None:
        problems.append(
            Problem(code="missing-value", path="--gpu", message="is needed: the recipe names no GPU type", hint="add --gpu h100")
        )
    if problems:
        raise UsageError(problems)
    assert gpus is not None
    assert gpu is not None
    gpu_type = find_gpu(gpu)
    inputs = read_inputs(config, layers=layers)
    if not inputs.layout.fits_world(gpus):
        unit = inputs.layout.minimum_world_size
        raise UsageError(
            Problem(
                code="layout",
                message=f"{inputs.layout.render()} does not divide {gpus} GPUs (it needs a multiple of {unit})",
                hint=f"use --gpus {-(-gpus // unit) * unit}, or change the layout",
            )
        )
    if recipe is None:
        inputs = replace(inputs, assumptions=(TUNED_NOTE, *inputs.assumptions))
    return EstimateTarget(config=config, inputs=inputs, gpu=gpu_type, world_size=gpus, from_recipe=recipe is not None)


def estimate_target_memory(target: EstimateTarget, *, trace: bool = False) -> MemoryEstimate:
    """Estimate the memory of every stage; with `trace`, by building the real model of the worst rank under fake tensors."""
    inputs = target.inputs
    closed = estimate_memory(
        inputs.shape,
        layout=inputs.layout,
        batch=inputs.batch,
        policy=inputs.policy,
        world_size=target.world_size,
        gpu=target.gpu,
        assumptions=inputs.assumptions,
    )
    closed = replace(closed, error=load_errors()["memory"].get(memory_class(inputs.shape, inputs.policy)))
    return trace_memory(target, closed) if trace else closed


def estimate_target_time(
    target: EstimateTarget,
    *,
    formula: FlopFormula = FlopFormula.MEGATRON,
    tokens: float | None = None,
    price: float | None = None,
) -> TimeReport:
    """Estimate the step time, and with a token budget its days, GPU hours and cost.

    Args:
        target: what `find_target` returned.
        formula: which FLOPs count as work.
        tokens: token budget, or None.
        price: price of one GPU hour, or None.

    Raises:
        UsageError: a token budget that is not above zero, or a price below it.
    """
    inputs = target.inputs
    _check_budget(tokens, price)
    time = estimate_time(
        inputs.shape,
        layout=inputs.layout,
        batch=inputs.batch,
        policy=inputs.policy,
        gpu=target.gpu,
        world_size=target.world_size,
        formula=formula,
        assumptions=inputs.assumptions,
    )
    error = load_errors()["time"].get(time_class(inputs.shape, inputs.policy))
    if error is not None:
        spread = error.p90_pct / 100
        time = replace(
            time,
            error=error,
            interval_seconds=(time.step_seconds / (1 + spread), time.step_seconds * (1 + spread)),
        )
    budget = None
    if tokens is not None:
        budget = estimate_budget(
            time, tokens=tokens, tokens_per_step=inputs.batch.tokens_per_step, gpus=target.world_size, price=price
        )
    return TimeReport(time=time, budget=budget)


def _check_budget(tokens: float | None, price: float | None) -> None:
    problems = []
    if tokens is not None and not 0 < tokens < math.inf:
        problems.append(
            Problem(path="--tokens", message=f"{tokens:g} is no token budget", hint="use a number above 0: --tokens 1e12")
        )
    if price is not None and not 0 <= price < math.inf:
        problems.append(Problem(path="--price", message=f"{price:g} is no price", hint="use a number from 0 on: --price 2.5"))
    if price is not None and tokens is None:
        problems.append(Problem(path="--price", message="needs a token budget", hint="add --tokens 1e12"))
    if problems:
        raise UsageError(problems)


def trace_memory(target: EstimateTarget, closed: MemoryEstimate) -> MemoryEstimate:
    """Trace the worst rank in a subprocess and return its measured bytes in place of the closed form's.

    Raises:
        EnvironmentProblem: the training extra is not installed, or the model cannot be built.
    """
    inputs = target.inputs
    ranks_per_stage = target.world_size // inputs.layout.pp
    request = {
        "values": dict(target.config.values),
        "mode": target.config.mode,
        "rank": closed.worst_stage * ranks_per_stage,
        "world_size": target.world_size,
    }
    done = subprocess.run(
        [sys.executable, "-m", "autorecipe.engine.trace"],
        input=json.dumps(request, default=str),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.strip().splitlines() if line]
        raise EnvironmentProblem(
            Problem(
                code="trace",
                message=f"the trace failed: {lines[-1] if lines else 'no message'}",
                hint="leave out --trace for the closed form, or install the extra: pip install 'autorecipe[train]'",
            )
        )
    result = json.loads(done.stdout.strip().splitlines()[-1])
    stage = StageMemory(
        stage=closed.worst_stage,
        layers=result["layers"],
        parameters=result["parameters"],
        weights_bytes=result["weights_bytes"],
        gradients_bytes=result["gradients_bytes"],
        optimizer_bytes=result["optimizer_bytes"],
        activations_bytes=result["activations_bytes"],
        activations_by_kind={},
        logits_bytes=0.0,
        transient_bytes=0.0,
        microbatches_in_flight=closed.worst.microbatches_in_flight,
    )
    peak = stage.peak_bytes
    reserved = reserved_bytes(peak, shape=inputs.shape, policy=inputs.policy)
    outside = outside_bytes(inputs.layout, world_size=target.world_size, policy=inputs.policy)
    return MemoryEstimate(
        method="trace",
        evidence=Evidence.MEASURED,
        stages=(stage,),
        worst_stage=stage.stage,
        allocated_bytes=(peak, peak),
        reserved_bytes=reserved,
        outside_bytes=outside,
        capacity_bytes=closed.capacity_bytes,
        capacity_fact=closed.capacity_fact,
        verdict=judge(allocated=(peak, peak), reserved=reserved, outside=outside, capacity=closed.capacity_bytes),
        not_modelled=(*NOT_MODELLED, "layers of Transformer Engine: the trace builds this project's own ones"),
        assumptions=inputs.assumptions,
    )
