"""Triton kernels, and the functions that start them. Inputs in bfloat16 or float16, arithmetic in float32.

Shapes: N rows (tokens), F width of the feed-forward layer on this rank, V vocabulary, S sequence, B batch, H heads, D head size.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK = 1024
_VOCABULARY_BLOCK = 8192
_NORM_PROGRAMS = 528  # four for each multiprocessor of a Hopper GPU; each adds up weight gradients over its rows


@triton.jit
def _swiglu_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    gate = tl.load(x_ptr + row * 2 * width + columns, mask=inside).to(tl.float32)
    linear = tl.load(x_ptr + row * 2 * width + width + columns, mask=inside).to(tl.float32)
    tl.store(out_ptr + row * width + columns, gate * tl.sigmoid(gate) * linear, mask=inside)


@triton.jit
def _swiglu_backward_kernel(x_ptr, grad_ptr, grad_x_ptr, out_ptr, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    gate = tl.load(x_ptr + row * 2 * width + columns, mask=inside).to(tl.float32)
    linear = tl.load(x_ptr + row * 2 * width + width + columns, mask=inside).to(tl.float32)
    grad = tl.load(grad_ptr + row * width + columns, mask=inside).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    silu = gate * sigmoid
    tl.store(out_ptr + row * width + columns, silu * linear, mask=inside)
    grad_gate = grad * linear * sigmoid * (1.0 + gate * (1.0 - sigmoid))
    tl.store(grad_x_ptr + row * 2 * width + columns, grad_gate, mask=inside)
    tl.store(grad_x_ptr + row * 2 * width + width + columns, grad * silu, mask=inside)


@triton.jit
def _rotate_kernel(  # type: ignore[no-untyped-def]
    x_ptr,
    out_ptr,
    cos_ptr,
    sin_ptr,
    batch,
    heads,
    stride_s,
    stride_b,
    stride_h,
    size,
    sign,
    HALF: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    REST: tl.constexpr,
    REST_BLOCK: tl.constexpr,
    HEADS_BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    position = token // batch
    member = token % batch
    head = tl.program_id(1) * HEADS_BLOCK + tl.arange(0, HEADS_BLOCK)
    columns = tl.arange(0, HALF_BLOCK)
    cos = tl.load(cos_ptr + position * HALF + columns, mask=columns < HALF).to(tl.float32)[None, :]
    sin = tl.load(sin_ptr + position * HALF + columns, mask=columns < HALF).to(tl.float32)[None, :] * sign
    source = x_ptr + position * stride_s + member * stride_b + head[:, None] * stride_h
    target = out_ptr + (token * heads + head[:, None]) * size
    inside = (head[:, None] < heads) & (columns[None, :] < HALF)
    first = tl.load(source + columns[None, :], mask=inside).to(tl.float32)
    second = tl.load(source + HALF + columns[None, :], mask=inside).to(tl.float32)
    tl.store(target + columns[None, :], first * cos - second * sin, mask=inside)
    tl.store(target + HALF + columns[None, :], second * cos + first * sin, mask=inside)
    if REST > 0:
        rest = tl.arange(0, REST_BLOCK)
        kept = (head[:, None] < heads) & (rest[None, :] < REST)
        values = tl.load(source + 2 * HALF + rest[None, :], mask=kept)
        tl.store(target + 2 * HALF + rest[None, :], values, mask=kept)


@triton.jit
def _rms_norm_kernel(x_ptr, weight_ptr, out_ptr, scale_ptr, width, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / width + eps)
    tl.store(scale_ptr + row, scale)
    tl.store(out_ptr + row * width + columns, x * scale * weight, mask=inside)


@triton.jit
def _rms_norm_backward_kernel(  # type: ignore[no-untyped-def]
    x_ptr, weight_ptr, scale_ptr, grad_ptr, grad_x_ptr, grad_weight_ptr, rows, width, programs, BLOCK: tl.constexpr
):
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    grad_weight = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(program, rows, programs):
        start = (row + program * 0).to(tl.int64) * width  # a tensor in every kind of loop
        x = tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
        grad = tl.load(grad_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(scale_ptr + row)
        normal = x * scale
        inner = grad * weight
        grad_x = scale * (inner - normal * (tl.sum(inner * normal, 0) / width))
        tl.store(grad_x_ptr + start + columns, grad_x, mask=inside)
        grad_weight += grad * normal
    tl.store(grad_weight_ptr + program * width + columns, grad_weight, mask=inside)


@triton.jit
def _cross_entropy_kernel(logits_ptr, labels_ptr, loss_ptr, vocabulary, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    start = logits_ptr + row * vocabulary
    label = tl.load(labels_ptr + row)
    chosen = tl.load(start + label).to(tl.float32)
    largest = -float("inf")
    total = 0.0
    for offset in range(0, vocabulary, BLOCK):
        columns = offset + tl.arange(0, BLOCK)
        values = tl.load(start + columns, mask=columns < vocabulary, other=-float("inf")).to(tl.float32)
        new_largest = tl.maximum(largest, tl.max(values, 0))
        total = total * tl.exp(largest - new_largest) + tl.sum(tl.exp(values - new_largest), 0)
        largest = new_largest
    log_total = largest + tl.log(total)
    tl.store(loss_ptr + row, log_total - chosen)
    for offset in range(0, vocabulary, BLOCK):
        columns = offset + tl.arange(0, BLOCK)
        inside = columns < vocabulary
        values = tl.load(start + columns, mask=inside, other=-float("inf")).to(tl.float32)
        gradient = tl.exp(values - log_total) - tl.where(columns == label, 1.0, 0.0)
        tl.store(start + columns, gradient, mask=inside)


def swiglu(x: torch.Tensor) -> torch.Tensor:
    """Return silu(first half) x second half: [N, 2F] to [N, F]."""
    rows, width = x.shape[0], x.shape[1] // 2
    out = x.new_empty((rows, width))
    _swiglu_kernel[(rows, triton.cdiv(width, _BLOCK))](x, out, width, BLOCK=_BLOCK)
    return out


def swiglu_backward(x: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradient of the input, [N, 2F], and the activation once more, [N, F]."""
    rows, width = grad.shape
    grad_x, out = torch.empty_like(x), torch.empty_like(grad)
    _swiglu_backward_kernel[(rows, triton.cdiv(width, _BLOCK))](x, grad, grad_x, out, width, BLOCK=_BLOCK)
    return grad_x, out


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, inverse: bool = False) -> torch.Tensor:
    """Rotate the halves of each head.

    Args:
        x: [S, B, H, D], last dimension contiguous.
        cos: [S, R / 2], R <= D rotated dimensions.
        sin: [S, R / 2].
        inverse: rotate back (the backward pass).

    Returns:
        [S, B, H, D], contiguous; dimensions beyond R are copied.
    """
    sequence, batch, heads, size = x.shape
    half = cos.shape[1]
    rest = size - 2 * half
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    heads_block = min(32, triton.next_power_of_2(heads))
    _rotate_kernel[(sequence * batch, triton.cdiv(heads, heads_block))](
        x,
        out,
        cos,
        sin,
        batch,
        heads,
        x.stride(0),
        x.stride(1),
        x.stride(2),
        size,
        -1.0 if inverse else 1.0,
        HALF=half,
        HALF_BLOCK=triton.next_power_of_2(half),
        REST=rest,
        REST_BLOCK=triton.next_power_of_2(max(rest, 1)),
        HEADS_BLOCK=heads_block,
        num_warps=2,
    )
    return out


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x / rms(x) x weight, [N, H], and 1 / rms of each row, float32 [N]."""
    rows, width = x.shape
    out = torch.empty_like(x)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(width)
    _rms_norm_kernel[(rows,)](x, weight, out, scale, width, eps, BLOCK=block, num_warps=_warps(block))
    return out, scale


def rms_norm_backward(
    x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, grad: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of x, [N, H], and of the weight, float32 [H]."""
    rows, width = x.shape
    programs = min(rows, _NORM_PROGRAMS)
    grad_x = torch.empty_like(x)
    partial = torch.empty((programs, width), dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(width)
    _rms_norm_backward_kernel[(programs,)](
        x, weight, scale, grad, grad_x, partial, rows, width, programs, BLOCK=block, num_warps=_warps(block)
    )
    return grad_x, partial.sum(0)


def _warps(block: int) -> int:
    return max(1, min(16, block // 512))


def cross_entropy_(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return each row's cross entropy and overwrite the logits by their gradient (softmax minus one-hot).

    Args:
        logits: [N, V], contiguous; overwritten.
        labels: int64 [N].

    Returns:
        float32 [N].
    """
    rows, vocabulary = logits.shape
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    _cross_entropy_kernel[(rows,)](logits, labels, loss, vocabulary, BLOCK=_VOCABULARY_BLOCK, num_warps=16)
    return loss
