"""RMS normalisation, alone or together with the addition of the residual before it, and the backward pass of both.

All tensors are contiguous; rows are whatever precedes the last dimension.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_PROGRAMS = 528  # four for each multiprocessor of a Hopper GPU; each adds up weight gradients over its rows
_SUM_ROWS, _SUM_COLUMNS = 512, 16


@triton.jit
def _norm_kernel(  # type: ignore[no-untyped-def]
    x_ptr, residual_ptr, weight_ptr, sum_ptr, out_ptr, scale_ptr, width, eps, offset, ADDS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32) + offset
    if ADDS:
        x += tl.load(residual_ptr + row * width + columns, mask=inside, other=0.0).to(tl.float32)
        rounded = x.to(sum_ptr.dtype.element_ty)
        tl.store(sum_ptr + row * width + columns, rounded, mask=inside)
        x = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / width + eps)
    tl.store(scale_ptr + row, scale)
    tl.store(out_ptr + row * width + columns, x * scale * weight, mask=inside)


@triton.jit
def _norm_backward_kernel(  # type: ignore[no-untyped-def]
    x_ptr,
    weight_ptr,
    scale_ptr,
    grad_ptr,
    passed_ptr,
    grad_x_ptr,
    grad_weight_ptr,
    rows,
    width,
    offset,
    programs,
    ADDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32) + offset
    grad_weight = tl.zeros((BLOCK,), dtype=tl.float32)
    start = (program + 0).to(tl.int64) * width
    x = tl.load(x_ptr + start + columns, mask=inside, other=0.0)
    grad = tl.load(grad_ptr + start + columns, mask=inside, other=0.0)
    passed = tl.load(passed_ptr + start + columns, mask=inside & ADDS, other=0.0)
    for row in range(program, rows, programs):
        # The next row is on its way while this one is worked on.
        following = start + programs * width
        more = inside & (row + programs < rows)
        next_x = tl.load(x_ptr + following + columns, mask=more, other=0.0)
        next_grad = tl.load(grad_ptr + following + columns, mask=more, other=0.0)
        next_passed = tl.load(passed_ptr + following + columns, mask=more & ADDS, other=0.0)
        scale = tl.load(scale_ptr + row)
        normal = x.to(tl.float32) * scale
        inner = grad.to(tl.float32) * weight
        grad_x = scale * (inner - normal * (tl.sum(inner * normal, 0) / width))
        if ADDS:
            grad_x += passed.to(tl.float32)
        tl.store(grad_x_ptr + start + columns, grad_x, mask=inside)
        grad_weight += grad.to(tl.float32) * normal
        start = following
        x = next_x
        grad = next_grad
        passed = next_passed
    tl.store(grad_weight_ptr + program * width + columns, grad_weight, mask=inside)


@triton.jit
def _sum_kernel(  # type: ignore[no-untyped-def]
    parts_ptr, sum_ptr, rows, width, ACCUMULATES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)
        total += tl.load(
            parts_ptr + row[:, None] * width + columns[None, :], mask=(row[:, None] < rows) & inside[None, :], other=0.0
        )
    result = tl.sum(total, 0)
    if ACCUMULATES:
        result += tl.load(sum_ptr + columns, mask=inside, other=0.0)
    tl.store(sum_ptr + columns, result, mask=inside)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x / rms(x) x (weight + offset), [..., H], and 1 / rms of each row, float32 [...]."""
    out, scale = torch.empty_like(x), torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)
    _start_norm(x, x, weight, x, out, scale, eps, offset, adds=False)
    return out, scale


def add_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0, *, in_place: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x + residual, its normalised form, both [..., H], and 1 / rms of each row of the sum, float32 [...].

    Args:
        x: [..., H].
        residual: [..., H].
        weight: [H].
        eps: added to the mean of squares.
        offset: added to the weight (1 for weights centred at zero).
        in_place: put the sum in x's place.
    """
    total = x if in_place else torch.empty_like(x)
    out, scale = torch.empty_like(x), torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)
    _start_norm(x, residual, weight, total, out, scale, eps, offset, adds=True)
    return total, out, scale


def norm_backward(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    grad: torch.Tensor,
    offset: float = 0.0,
    *,
    passed: torch.Tensor | None = None,
    into: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the gradients of x, [..., H], and of the weight, float32 [H].

    Args:
        x: what was normalised, [..., H].
        weight: [H].
        scale: 1 / rms of each row, float32 [...].
        grad: gradient of the normalised form, [..., H].
        offset: added to the weight.
        passed: gradient that reaches x on another way, added to its gradient.
        into: float32 [H] that the weight's gradient is added to; then none is returned.
    """
    rows, width = scale.numel(), x.shape[-1]
    programs = min(rows, _PROGRAMS)
    grad_x = torch.empty_like(x)
    parts = torch.empty((programs, width), dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(width)
    adds = passed is not None
    _norm_backward_kernel[(programs,)](
        x,
        weight,
        scale,
        grad,
        passed if adds else grad,
        grad_x,
        parts,
        rows,
        width,
        offset,
        programs,
        ADDS=adds,
        BLOCK=block,
        num_warps=2 * _warps(block),
    )
    total = torch.empty(width, dtype=torch.float32, device=x.device) if into is None else into
    _sum_kernel[(triton.cdiv(width, _SUM_COLUMNS),)](
        parts, total, programs, width, ACCUMULATES=into is not None, ROWS=_SUM_ROWS, COLUMNS=_SUM_COLUMNS
    )
    return grad_x, total if into is None else None


def _start_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    total: torch.Tensor,
    out: torch.Tensor,
    scale: torch.Tensor,
    eps: float,
    offset: float,
    *,
    adds: bool,
) -> None:
    rows, width = scale.numel(), x.shape[-1]
    block = triton.next_power_of_2(width)
    _norm_kernel[(rows,)](
        x, residual, weight, total, out, scale, width, eps, offset, ADDS=adds, BLOCK=block, num_warps=_warps(block)
    )


def _warps(block: int) -> int:
    return max(1, min(8, block // 512))
