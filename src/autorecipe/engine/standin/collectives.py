"""Collectives that Gloo lacks and Megatron-Core uses: averages, uneven gathers, scattered reductions of tensor lists."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


def install() -> None:
    """Replace the collectives of `torch.distributed` by ones that also serve Gloo groups."""
    for name, source in (("all_reduce", 0), ("reduce_scatter_tensor", 1), ("_reduce_scatter_base", 1)):
        if hasattr(dist, name):
            _publish(name, _average_by_sum(getattr(dist, name), source))
    _publish("all_gather", _gather_uneven(dist.all_gather))
    _publish("reduce_scatter", _scatter_reduced(dist.reduce_scatter))


class Finished:
    """The handle of a collective that has already run."""

    def wait(self, *_: Any) -> bool:
        """Return at once."""
        return True

    def is_completed(self) -> bool:
        """Return that it is done."""
        return True


def _publish(name: str, function: Callable[..., Any]) -> None:
    setattr(dist, name, function)
    setattr(dist.distributed_c10d, name, function)


def _is_gloo(group: Any) -> bool:
    return "gloo" in str(dist.get_backend(group))


def _average_by_sum(collective: Callable[..., Any], source: int) -> Callable[..., Any]:
    """Turn AVG on a Gloo group into a division followed by SUM.

    Args:
        collective: the torch function.
        source: position of the tensor that is reduced among its arguments.
    """

    @functools.wraps(collective)
    def average(*args: Any, **kwargs: Any) -> Any:
        positions = [at for at, value in enumerate(args) if _is_average(value)]
        if not positions and not _is_average(kwargs.get("op")):
            return collective(*args, **kwargs)
        group = kwargs.get("group")
        if group is None:
            group = next((value for value in args if isinstance(value, dist.ProcessGroup)), None)
        if not _is_gloo(group):
            return collective(*args, **kwargs)
        args = tuple(dist.ReduceOp.SUM if at in positions else value for at, value in enumerate(args))
        if "op" in kwargs:
            kwargs["op"] = dist.ReduceOp.SUM
        tensor: Any = args[source] if source < len(args) else kwargs.get("input", kwargs.get("tensor"))
        tensor.div_(dist.get_world_size(group))
        return collective(*args, **kwargs)

    return average


def _is_average(value: Any) -> bool:
    return isinstance(value, dist.ReduceOp | dist.ReduceOp.RedOpType) and value == dist.ReduceOp.AVG


def _gather_uneven(collective: Callable[..., Any]) -> Callable[..., Any]:
    """Gather tensors of different shapes by one broadcast per rank (expert tensor parallelism needs it)."""

    @functools.wraps(collective)
    def gather(tensor_list: list[torch.Tensor], tensor: torch.Tensor, group: Any = None, async_op: bool = False) -> Any:
        uneven = any(part.shape != tensor_list[0].shape for part in tensor_list)
        if not uneven or not _is_gloo(group):
            return collective(tensor_list, tensor, group=group, async_op=async_op)
        own_rank = dist.get_rank()
        for part, rank in zip(tensor_list, dist.get_process_group_ranks(group or dist.group.WORLD), strict=True):
            if rank == own_rank:
                part.copy_(tensor)
            dist.broadcast(part, src=rank, group=group)
        return Finished() if async_op else None

    return gather


def _scatter_reduced(collective: Callable[..., Any]) -> Callable[..., Any]:
    """Reduce each tensor of a list and keep one's own."""

    @functools.wraps(collective)
    def scatter(
        output: torch.Tensor,
        input_list: list[torch.Tensor],
        op: Any = dist.ReduceOp.SUM,
        group: Any = None,
        async_op: bool = False,
    ) -> Any:
        if not _is_gloo(group):
            return collective(output, input_list, op=op, group=group, async_op=async_op)
        own_rank = dist.get_rank(group)
        for rank, part in enumerate(input_list):
            reduced = part.clone()
            dist.all_reduce(reduced, op=op, group=group)
            if rank == own_rank:
                output.copy_(reduced)
        return Finished() if async_op else None

    return scatter
