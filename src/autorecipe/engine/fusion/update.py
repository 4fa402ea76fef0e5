"""One pass over memory for the optimizer's update: clipping factor, Adam, and the copy to half-precision parameters.

Megatron-Core scales all gradients, updates, and copies each main parameter to the model, one after another. `fuse_update` tells
this project's Adam where the copies go and leaves the clipping factor to it. Rounding is that of the separate passes, except
that gradients are not rounded after the scaling. Start reading at `fuse_update`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from autorecipe.engine.adam import Adam


def fuse_update(optimizer: Any) -> None:
    """Prepare an optimizer for updates in one pass, where its main parameters are copies of half-precision ones.

    Args:
        optimizer: Megatron-Core's, over this project's Adam; changed.
    """
    for part in getattr(optimizer, "chained_optimizers", None) or [optimizer]:
        adam = getattr(part, "optimizer", None)
        if not isinstance(adam, Adam):
            continue
        copies = dict(_find_copies(part))
        parameters = [parameter for group in adam.param_groups for parameter in group["params"]]
        if not copies or not all(parameter in copies for parameter in parameters):
            continue
        adam.copies = copies
        for parameter in parameters:
            parameter.updated_by = adam
        part._copy_main_params_to_model_params = functools.partial(
            _copy_unless_done, adam, part._copy_main_params_to_model_params
        )
    _defer_clipping()


def _find_copies(part: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield each main parameter of an optimizer with the part of the model's parameter that it is written to."""
    if hasattr(part, "shard_fp32_from_float16_groups"):
        for mains, models in zip(part.shard_fp32_from_float16_groups, part.model_float16_groups, strict=True):
            for main, model in zip(mains, models, strict=True):
                if main is None:  # held elsewhere
                    continue
                place = part._get_model_param_range_map(model)["gbuf_world_in_bucket"]
                buffer, _, bucket = part.model_param_gbuf_map[model]
                whole = part.buffers[buffer].buckets[bucket].param_data
                yield main, whole.view(-1)[place.start : place.end]
    elif hasattr(part, "fp32_from_float16_groups"):
        for mains, models in zip(part.fp32_from_float16_groups, part.float16_groups, strict=True):
            yield from zip(mains, (model.data for model in models), strict=True)


def _copy_unless_done(adam: Adam, copy: Callable[[], None]) -> None:
    if adam.has_copied:
        adam.has_copied = False
    else:
        copy()


def _defer_clipping() -> None:
    """Let Megatron-Core hand the clipping factor to an Adam that applies it, instead of scaling all gradients."""
    from megatron.core.optimizer import optimizer as module

    scale = module.clip_grad_by_total_norm_fp32
    if getattr(scale, "is_deferring", False):
        return

    @functools.wraps(scale)
    def clip(parameters: Any, max_norm: float, total_norm: Any, *rest: Any, **named: Any) -> None:
        parameters = [parameters] if torch.is_tensor(parameters) else list(parameters)
        adam = _common_owner(parameters)
        if adam is None:
            scale(parameters, max_norm, total_norm, *rest, **named)
            return
        norm = torch.as_tensor(total_norm, dtype=torch.float32, device=parameters[0].device)
        adam.factor = (max_norm / (norm + 1.0e-6)).clamp(max=1.0).reshape(1)

    clip.is_deferring = True  # type: ignore[attr-defined]
    module.clip_grad_by_total_norm_fp32 = clip


def _common_owner(parameters: Sequence[torch.Tensor]) -> Adam | None:
    """Return the Adam that takes a factor and updates exactly these parameters; None where there is none."""
    owners = {getattr(parameter, "updated_by", None) for parameter in parameters}
    adam = owners.pop() if len(owners) == 1 else None
    count = 0 if adam is None else sum(len(group["params"]) for group in adam.param_groups)
    return adam if adam is not None and count == len(parameters) else None
