"""Matches saved optimizer parameter groups to another number of optimizers.

Megatron-Core keeps one optimizer where EP = 1 and two (dense, expert) where EP > 1, and loads only as many as it saved.
Tensors reshard by themselves; what is matched here are the groups' scalars (step, learning rate, betas), by multipliers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OWN_KEYS = frozenset({"params", "is_expert_parallel"})
"""Entries of a parameter group that describe this run's parameters, not the optimizer's progress."""


def match_optimizer_groups(optimizer: Any, loaded: dict[Any, Any]) -> dict[Any, Any]:
    """Return a state dict that an optimizer accepts.

    Args:
        optimizer: Megatron-Core's optimizer, chained or not.
        loaded: optimizer part of a loaded checkpoint.

    Raises:
        ValueError: a parameter group has no counterpart in the checkpoint.
    """
    parts = list(getattr(optimizer, "chained_optimizers", [optimizer]))
    if not any(type(part).__name__ == "DistributedOptimizer" for part in parts):
        return loaded
    saved_single = "optimizer" in loaded
    saved_parts = [loaded] if saved_single else [loaded[key] for key in sorted(key for key in loaded if isinstance(key, int))]
    same_form = saved_single if len(parts) == 1 else not saved_single and len(saved_parts) == len(parts)
    if same_form and all("optimizer" in part for part in saved_parts):
        return loaded
    saved_groups = [group for part in saved_parts if "optimizer" in part for group in part["optimizer"]["param_groups"]]
    sharding = next(part["param_state_sharding_type"] for part in saved_parts if "param_state_sharding_type" in part)
    matched: list[dict[Any, Any]] = []
    for index, part in enumerate(parts):
        own = part.state_dict()
        for group in own["optimizer"]["param_groups"]:
            source = _find_group(saved_groups, group)
            group.update({key: value for key, value in source.items() if key not in _OWN_KEYS})
        state = loaded if len(parts) == 1 else loaded[index]
        matched.append({**own, "param_state": state["param_state"], "param_state_sharding_type": sharding})
    return matched[0] if len(parts) == 1 else dict(enumerate(matched))


def _find_group(saved: list[Mapping[str, Any]], group: Mapping[str, Any]) -> Mapping[str, Any]:
    wanted = (group.get("wd_mult"), group.get("lr_mult"))
    for candidate in saved:
        if (candidate.get("wd_mult"), candidate.get("lr_mult")) == wanted:
            return candidate
    raise ValueError(f"the checkpoint has no optimizer group with weight-decay and learning-rate multipliers {wanted}")
