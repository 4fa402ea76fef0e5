"""Cross entropy that leaves its gradient in the logits' place, and the scaling of rows by the gradients of their losses."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_VOCABULARY_BLOCK = 4096
_ROW_BLOCK = 2048


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


@triton.jit
def _scale_rows_kernel(x_ptr, scale_ptr, out_ptr, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=inside).to(tl.float32)
    tl.store(out_ptr + row * width + columns, x * tl.load(scale_ptr + row), mask=inside)


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
    _cross_entropy_kernel[(rows,)](logits, labels, loss, vocabulary, BLOCK=_VOCABULARY_BLOCK, num_warps=8)
    return loss


def scale_rows(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return each row of x, [N, H], times its factor, float32 [N]; contiguous."""
    rows, width = x.shape
    out = torch.empty_like(x)
    _scale_rows_kernel[(rows, triton.cdiv(width, _ROW_BLOCK))](x, scale, out, width, BLOCK=_ROW_BLOCK)
    return out
