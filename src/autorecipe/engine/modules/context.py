"""Context-parallel exchanges: whole sequences from their zigzag shards, and back.

Rank r of n holds chunks r and 2n - 1 - r of every sequence (so that causal work is even). `zigzag_order` says at which place of
the rank-by-rank concatenation each row of the whole lies. Shapes: S local rows, T = n x S whole rows.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch
import torch.distributed as dist


def zigzag_order(boundaries: list[int], size: int, device: torch.device) -> torch.Tensor:
    """Return, for each row of the whole, its place in the concatenation of all ranks' rows; int64 [T].

    Args:
        boundaries: where sequences begin and end in the whole, [number of sequences + 1]; each length a multiple of 2 x size.
        size: number of ranks.
        device: where to put the result.
    """
    return _zigzag_order(tuple(boundaries), size, device)


@functools.lru_cache(maxsize=32)
def _zigzag_order(boundaries: tuple[int, ...], size: int, device: torch.device) -> torch.Tensor:
    """Return the order; every layer of a micro batch asks for the same one."""
    total = boundaries[-1]
    whole = torch.arange(total)
    per_rank: list[list[torch.Tensor]] = [[] for _ in range(size)]
    for start, end in itertools.pairwise(boundaries):
        chunks = whole[start:end].chunk(2 * size)
        for rank in range(size):
            per_rank[rank] += [chunks[rank], chunks[2 * size - 1 - rank]]
    concatenation = torch.cat([torch.cat(chunks) for chunks in per_rank])  # whole index at each place
    return torch.argsort(concatenation).to(device)


def gather_sequence(x: torch.Tensor, group: Any, order: torch.Tensor) -> torch.Tensor:
    """Return the whole rows in order, [T, ...] from [S, ...]; gradients are summed over ranks and scattered back."""
    gathered: torch.Tensor = _Gather.apply(x, group, order)
    return gathered


def exchange_heads(x: torch.Tensor, group: Any, order: torch.Tensor) -> torch.Tensor:
    """Trade heads for rows: [S, B, H, D] to [T, B, H / n, D]."""
    exchanged: torch.Tensor = _ToHeads.apply(x, group, order)
    return exchanged


def return_heads(x: torch.Tensor, group: Any, order: torch.Tensor) -> torch.Tensor:
    """Trade rows for heads: [T, B, H / n, D] to [S, B, H, D]."""
    returned: torch.Tensor = _ToRows.apply(x, group, order)
    return returned


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any, order: torch.Tensor) -> torch.Tensor:
        ctx.group, ctx.order = group, order
        gathered = x.new_empty((group.size() * x.shape[0], *x.shape[1:]))
        dist.all_gather_into_tensor(gathered, x.contiguous(), group=group)
        return gathered.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        grad = grads[0].index_select(0, torch.argsort(ctx.order)).contiguous()
        local = grad.new_empty((grad.shape[0] // ctx.group.size(), *grad.shape[1:]))
        dist.reduce_scatter_tensor(local, grad, group=ctx.group)
        return local, None, None


class _ToHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any, order: torch.Tensor) -> torch.Tensor:
        ctx.group, ctx.order = group, order
        return _trade_heads(x, group, order)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _trade_rows(grads[0], ctx.group, ctx.order), None, None


class _ToRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any, order: torch.Tensor) -> torch.Tensor:
        ctx.group, ctx.order = group, order
        return _trade_rows(x, group, order)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _trade_heads(grads[0], ctx.group, ctx.order), None, None


def _trade_heads(x: torch.Tensor, group: Any, order: torch.Tensor) -> torch.Tensor:
    rows, batch, heads, width = x.shape
    size = group.size()
    blocks = x.reshape(rows, batch, size, heads // size, width).permute(2, 0, 1, 3, 4).contiguous()  # one block per rank
    received = torch.empty_like(blocks)
    dist.all_to_all_single(received, blocks, group=group)
    return received.flatten(0, 1).index_select(0, order)


def _trade_rows(x: torch.Tensor, group: Any, order: torch.Tensor) -> torch.Tensor:
    total, batch, heads, width = x.shape
    size = group.size()
    by_rank = x.index_select(0, torch.argsort(order)).contiguous()
    received = torch.empty_like(by_rank)
    dist.all_to_all_single(received, by_rank, group=group)
    blocks = received.reshape(size, total // size, batch, heads, width)
    return blocks.permute(1, 2, 0, 3, 4).reshape(total // size, batch, size * heads, width)
