"""The optimizer of a run: Megatron-Core's wrappers (main weights, clipping, sharding) around this project's Adam.

Parameter groups and their weight decay are upstream's: no decay for biases and one-dimensional weights, a learning rate of
its own for embeddings where `optimizer.decoupled_lr` asks for it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from autorecipe.engine import clipping, compat
from autorecipe.engine.adam import Adam
from autorecipe.engine.fusion.backend import can_fuse
from autorecipe.engine.fusion.update import fuse_update
from autorecipe.engine.options import is_on, read_options
from autorecipe.engine.parallel import ParallelContext
from autorecipe.engine.precision import parse_dtype, parse_number, view_precision
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.run import RunConfig


def build_optimizer_config(run: RunConfig) -> Any:
    """Return Megatron-Core's `OptimizerConfig` of a run.

    Raises:
        UsageError: an optimizer that the engine does not have, or fields that would have no effect.
    """
    compat.prepare()
    from megatron.core.optimizer import OptimizerConfig

    name = run.get("optimizer.optimizer", None) or "adam"
    problems = []
    if name not in ("adam", "sgd"):
        problems.append(_unsupported("optimizer.optimizer", name, "only adam and sgd are driven by this engine"))
    for field in ("use_precision_aware_optimizer", "optimizer_cpu_offload"):
        if run.get(f"optimizer.{field}", None) is True:
            problems.append(_unsupported(f"optimizer.{field}", True, "it needs Transformer Engine's optimizer"))
    if problems:
        raise UsageError(problems)
    known = {item.name for item in dataclasses.fields(OptimizerConfig)}
    arguments: dict[str, Any] = {}
    for path, value in run.values.items():
        field = path.removeprefix("optimizer.")
        if field != path and field in known and field != "timers" and value is not None:
            arguments[field] = parse_dtype(value) if field.endswith("dtype") else parse_number(value)
    precision = view_precision(run)
    arguments.update(precision.loss_scaling)
    arguments.update(
        optimizer=name,
        bf16=precision.bf16,
        fp16=precision.fp16,
        params_dtype=precision.dtype,
        use_distributed_optimizer=uses_distributed_optimizer(run),
        overlap_param_gather=overlaps_param_gather(run),
    )
    return OptimizerConfig(**arguments)


def build_optimizer(run: RunConfig, chunks: list[Any], context: ParallelContext) -> Any:
    """Return the optimizer over a model's chunks.

    Args:
        run: resolved configuration.
        chunks: what `engine.build.build_model` returned.
        context: process groups.
    """
    from megatron.core.optimizer import get_megatron_optimizer, get_standard_config_overrides

    use_own_adam()
    fuses = fuses_update(run)
    clipping.install(in_one_kernel=fuses)
    config = build_optimizer_config(run)
    # Newer releases add the standard groups only where they are passed; passing them holds for all.
    built = get_megatron_optimizer(config, chunks, config_overrides=get_standard_config_overrides(config))
    if fuses:
        fuse_update(built)
    return built


def fuses_update(run: RunConfig) -> bool:
    """Return whether clipping, update and copy to half-precision parameters are one pass (see `fusion.update`)."""
    precision = view_precision(run)
    return can_fuse() and (precision.bf16 or precision.fp16) and is_on(read_options(run).fused_update, default=True)


def checks_norm_alone(run: RunConfig) -> bool:
    """Return whether the gradient norm, which is read anyway, tells if a gradient is not finite.

    Megatron-Core's own check (`ddp.check_for_nan_in_grad`) takes every norm once more, and the host waits for each.
    """
    clips = bool(run.get("optimizer.clip_grad", 1.0))
    return fuses_update(run) and view_precision(run).bf16 and clips


def uses_distributed_optimizer(run: RunConfig) -> bool:
    """Return whether optimizer state is sharded over data-parallel ranks (either switch turns it on)."""
    return any(run.get(f"{part}.use_distributed_optimizer", None) is True for part in ("ddp", "optimizer"))


def overlaps_param_gather(run: RunConfig) -> bool:
    """Return whether parameters are gathered during the forward pass (either switch turns it on)."""
    return any(run.get(f"{part}.overlap_param_gather", None) is True for part in ("ddp", "optimizer"))


def use_own_adam() -> None:
    """Make Megatron-Core take this project's Adam where neither Transformer Engine nor Apex is installed."""
    from megatron.core import optimizer
    from megatron.core.optimizer import distrib_optimizer

    if not optimizer.USING_PYTORCH_OPTIMIZER:
        return
    optimizer.Adam = distrib_optimizer.Adam = Adam
    optimizer.USING_PYTORCH_OPTIMIZER = False
    distrib_optimizer.HAVE_APEX_OR_TE = True
    distrib_optimizer.USING_APEX_OPTIMIZER = True


def _unsupported(path: str, value: Any, why: str) -> Problem:
    return Problem(code="engine-unsupported", path=path, message=f"={value!r}: {why}", hint="add --engine bridge, or unset it")
