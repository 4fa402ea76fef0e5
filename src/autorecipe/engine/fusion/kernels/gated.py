"""SwiGLU, and its backward pass with the activation computed again."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK = 1024


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


def swiglu(x: torch.Tensor) -> torch.Tensor:
    """Return silu(first half) x second half: [..., 2F] to [..., F]; contiguous."""
    width = x.shape[-1] // 2
    out = x.new_empty((*x.shape[:-1], width))
    rows = out.numel() // width
    _swiglu_kernel[(rows, triton.cdiv(width, _BLOCK))](x, out, width, BLOCK=_BLOCK)
    return out


def swiglu_backward(x: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradient of the input, [..., 2F], and the activation once more, [..., F]; contiguous."""
    width = grad.shape[-1]
    rows = grad.numel() // width
    grad_x, out = torch.empty_like(x), torch.empty_like(grad)
    _swiglu_backward_kernel[(rows, triton.cdiv(width, _BLOCK))](x, grad, grad_x, out, width, BLOCK=_BLOCK)
    return grad_x, out
