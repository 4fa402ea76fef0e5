"""Whether a checkpoint belongs to a run: architecture must agree, and changed training fields are said aloud. No torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from autorecipe.config.views import view_model
from autorecipe.engine.adapters.settings import read_adapter
from autorecipe.errors import Problem
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import UNKNOWN, to_jsonable

_EXTRA = (
    "rotary_base",
    "rotary_percent",
    "rotary_interleaved",
    "rope_scaling",
    "rope_scaling_factor",
    "layernorm_zero_centered_gamma",
    "moe_router_score_function",
    "moe_router_topk_scaling_factor",
)
"""Fields outside `ModelShape` that change what the same weights compute."""

_IGNORED = ("max_position_embeddings", "make_vocab_size_divisible_by", "seq_length")
"""Facts of `ModelShape` that change neither weights nor function (the sequence length does for learned positions)."""

_CONVERGENCE_PREFIXES = ("optimizer.", "scheduler.", "dataset.", "train.global_batch_size", "train.rampup_batch_size", "rng.seed")
ADAPTER = "adapter"
"""Key of the adapter in an identity; absent where the model itself trains."""

_QUIET = ("dataset.num_workers", "dataset.path_to_cache", "dataset.persistent_workers", "dataset.pin_memory")


def describe_identity(run: RunConfig, *, with_adapter: bool = True) -> dict[str, Any]:
    """Return what a checkpoint must share with a run's model, as plain JSON values.

    Args:
        run: with its vocabulary settled.
        with_adapter: whether the adapter counts: it does in a checkpoint of one, and not in the weights that it starts from.
    """
    shape = view_model(run)
    identity = {
        item.name: to_jsonable(getattr(shape, item.name)) for item in dataclasses.fields(shape) if item.name not in _IGNORED
    }
    for name in _EXTRA:
        value = run.get(f"model.{name}", None)
        identity[name] = None if value is UNKNOWN else to_jsonable(value)
    if shape.position_embedding_type == "learned_absolute":
        identity["seq_length"] = shape.seq_length
    adapter = read_adapter(run) if with_adapter else None
    if adapter is not None:
        identity[ADAPTER] = adapter.identity()
    return identity


def compare_identity(saved: Mapping[str, Any], current: Mapping[str, Any]) -> list[Problem]:
    """Return one problem per field in which a checkpoint's model differs from the run's."""
    problems = []
    for name in sorted({*saved, *current}):
        before, now = saved.get(name), current.get(name)
        if before != now:
            problems.append(
                Problem(
                    path="peft" if name == ADAPTER else f"model.{name}",
                    code="other-model",
                    message=f"is {now!r} here and {before!r} in the checkpoint",
                )
            )
    return problems


def describe_changes(saved: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Return the training fields that differ from the checkpoint's run, as `path: before -> now`.

    They do not stop a resume, but the run is then no longer the run that the checkpoint came from.
    """
    lines = []
    for path in sorted({*saved, *current}):
        if not path.startswith(_CONVERGENCE_PREFIXES) or path in _QUIET:
            continue
        before, now = saved.get(path), current.get(path)
        if before != now:
            lines.append(f"{path}: {before!r} -> {now!r}")
    return lines
