"""Routed experts: who goes where, rows to experts and back, the weighted activation, and weight gradients of all experts at once.

Rows (R = N tokens x K experts of each) are sorted by expert. Nothing here waits for the number of rows of an expert.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from autorecipe.engine.fusion import formulas

_ROW_BLOCK = 2048
_WIDTH_BLOCK = 1024
_TOKENS = 16
_TILE = 128  # small enough for two programs on a multiprocessor: one writes its sums while the other multiplies


@triton.jit
def _route_kernel(  # type: ignore[no-untyped-def]
    map_ptr,
    place_ptr,
    probs_ptr,
    tokens_ptr,
    slots_ptr,
    weights_ptr,
    tokens,
    experts,
    per_token,
    TOKENS: tl.constexpr,
    EXPERTS: tl.constexpr,
):
    token = (tl.program_id(0) * TOKENS + tl.arange(0, TOKENS))[:, None]
    expert = tl.arange(0, EXPERTS)[None, :]
    inside = (token < tokens) & (expert < experts)
    chosen = tl.load(map_ptr + token * experts + expert, mask=inside, other=0).to(tl.int32)
    slot = tl.load(place_ptr + expert * tokens + token, mask=inside, other=1) - 1
    prob = tl.load(probs_ptr + token * experts + expert, mask=inside, other=0.0).to(tl.float32)
    rank = tl.cumsum(chosen, 1) - 1
    taken = chosen != 0
    tl.store(tokens_ptr + slot, token + expert * 0, mask=taken)
    tl.store(weights_ptr + slot, prob, mask=taken)
    tl.store(slots_ptr + token * per_token + rank, slot, mask=taken)


@triton.jit
def _gather_kernel(x_ptr, index_ptr, out_ptr, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    source = tl.load(index_ptr + row).to(tl.int64)
    tl.store(out_ptr + row * width + columns, tl.load(x_ptr + source * width + columns, mask=inside), mask=inside)


@triton.jit
def _sum_kernel(x_ptr, slots_ptr, out_ptr, width, COUNT: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for member in range(COUNT):
        source = tl.load(slots_ptr + row * COUNT + member).to(tl.int64)
        total += tl.load(x_ptr + source * width + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * width + columns, total, mask=inside)


@triton.jit
def _weighted_swiglu_kernel(x_ptr, weight_ptr, out_ptr, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    gate = tl.load(x_ptr + row * 2 * width + columns, mask=inside).to(tl.float32)
    linear = tl.load(x_ptr + row * 2 * width + width + columns, mask=inside).to(tl.float32)
    tl.store(out_ptr + row * width + columns, gate * tl.sigmoid(gate) * linear * tl.load(weight_ptr + row), mask=inside)


@triton.jit
def _weighted_swiglu_backward_kernel(  # type: ignore[no-untyped-def]
    x_ptr, weight_ptr, grad_ptr, grad_x_ptr, out_ptr, grad_weight_ptr, width, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    weight = tl.load(weight_ptr + row)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, width, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        inside = columns < width
        gate = tl.load(x_ptr + row * 2 * width + columns, mask=inside, other=0.0).to(tl.float32)
        linear = tl.load(x_ptr + row * 2 * width + width + columns, mask=inside, other=0.0).to(tl.float32)
        grad = tl.load(grad_ptr + row * width + columns, mask=inside, other=0.0).to(tl.float32)
        sigmoid = tl.sigmoid(gate)
        silu = gate * sigmoid
        total += grad * silu * linear
        tl.store(out_ptr + row * width + columns, silu * linear * weight, mask=inside)
        grad = grad * weight
        grad_gate = grad * linear * sigmoid * (1.0 + gate * (1.0 - sigmoid))
        tl.store(grad_x_ptr + row * 2 * width + columns, grad_gate, mask=inside)
        tl.store(grad_x_ptr + row * 2 * width + width + columns, grad * silu, mask=inside)
    tl.store(grad_weight_ptr + row, tl.sum(total, 0))


@triton.jit
def _weight_gradients_kernel(  # type: ignore[no-untyped-def]
    grad_ptr,
    x_ptr,
    ends_ptr,
    main_ptr,
    stride,
    outputs,
    inputs,
    BLOCK_O: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_R: tl.constexpr,
):
    expert = tl.program_id(1)
    tiles = tl.cdiv(outputs, BLOCK_O)
    output = (tl.program_id(0) % tiles) * BLOCK_O + tl.arange(0, BLOCK_O)
    input_ = (tl.program_id(0) // tiles) * BLOCK_I + tl.arange(0, BLOCK_I)
    first = tl.load(ends_ptr + expert - 1, mask=expert > 0, other=0)
    last = tl.load(ends_ptr + expert)
    total = tl.zeros((BLOCK_O, BLOCK_I), dtype=tl.float32)
    for start in range(first, last, BLOCK_R):
        row = (start + tl.arange(0, BLOCK_R))[:, None]
        grad = tl.load(
            grad_ptr + row.to(tl.int64) * outputs + output[None, :], mask=(row < last) & (output[None, :] < outputs), other=0.0
        )
        x = tl.load(
            x_ptr + row.to(tl.int64) * inputs + input_[None, :], mask=(row < last) & (input_[None, :] < inputs), other=0.0
        )
        total = tl.dot(tl.trans(grad), x, total)
    target = main_ptr + expert.to(tl.int64) * stride + output[:, None].to(tl.int64) * inputs + input_[None, :]
    inside = (output[:, None] < outputs) & (input_[None, :] < inputs)
    tl.store(target, tl.load(target, mask=inside, other=0.0) + total, mask=inside)


def route(
    routing_map: torch.Tensor, probs: torch.Tensor, per_token: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sort (token, expert) pairs by expert, then token.

    Args:
        routing_map: bool [N, experts], `per_token` True in each row.
        probs: weight of each pair, [N, experts].
        per_token: experts of each token, K.

    Returns:
        ends: where each expert's rows end, int32 [experts].
        places: row of each chosen pair, counted from 1, int32 [experts, N]; of no meaning elsewhere.
        tokens: token of each row, int32 [N x K].
        slots: the rows of each token, int32 [N, K].
        weights: of each row, float32 [N x K].
    """
    tokens, experts = routing_map.shape
    places = routing_map.t().flatten().cumsum(0, dtype=torch.int32).view(experts, tokens)
    ends = places[:, -1].contiguous()
    rows = tokens * per_token
    token_of, slots = (torch.empty(shape, dtype=torch.int32, device=probs.device) for shape in ((rows,), (tokens, per_token)))
    weights = torch.empty(rows, dtype=torch.float32, device=probs.device)
    _route_kernel[(triton.cdiv(tokens, _TOKENS),)](
        routing_map.view(torch.int8),
        places,
        probs,
        token_of,
        slots,
        weights,
        tokens,
        experts,
        per_token,
        TOKENS=_TOKENS,
        EXPERTS=triton.next_power_of_2(experts),
    )
    return ends, places, token_of, slots, weights


def gather_rows(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return rows of x, [N, H], by index, int32 [R]."""
    rows, width = index.numel(), x.shape[1]
    out = x.new_empty((rows, width))
    _gather_kernel[(rows, triton.cdiv(width, _ROW_BLOCK))](x, index, out, width, BLOCK=_ROW_BLOCK)
    return out


def sum_rows(x: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """Return sums of rows of x, [R, H], by slots, int32 [N, K]; [N, H]."""
    rows, width = slots.shape[0], x.shape[1]
    out = x.new_empty((rows, width))
    _sum_kernel[(rows, triton.cdiv(width, _ROW_BLOCK))](x, slots, out, width, COUNT=slots.shape[1], BLOCK=_ROW_BLOCK)
    return out


def grouped_product(x: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor, *, forward: bool = True) -> torch.Tensor:
    """Return each expert's rows of x times its weight.

    Args:
        x: [R, input], backward [R, output].
        weights: [experts, output, input], experts evenly spaced.
        ends: where each expert's rows end, int32 [experts].
        forward: multiply by the weight's transpose, [input, output]; otherwise by the weight.

    Returns:
        [R, output], backward [R, input].
    """
    is_aligned = all(size * x.element_size() % 16 == 0 for size in weights.shape[1:])
    if not x.is_cuda or x.dtype != torch.bfloat16 or not is_aligned or x.shape[0] == 0:
        return formulas.grouped_product(x, weights, ends, forward=forward)
    return torch._grouped_mm(x, weights.transpose(1, 2) if forward else weights, offs=ends)


def weighted_swiglu(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return silu(first half) x second half x the row's weight: [R, 2F] and float32 [R] to [R, F]."""
    rows, width = x.shape[0], x.shape[1] // 2
    out = x.new_empty((rows, width))
    _weighted_swiglu_kernel[(rows, triton.cdiv(width, _WIDTH_BLOCK))](x, weights, out, width, BLOCK=_WIDTH_BLOCK)
    return out


def weighted_swiglu_backward(
    x: torch.Tensor, weights: torch.Tensor, grad: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of x, [R, 2F], and of the weights, float32 [R], and the activation once more, [R, F]."""
    rows, width = grad.shape
    grad_x, out, grad_weights = torch.empty_like(x), torch.empty_like(grad), torch.empty_like(weights)
    _weighted_swiglu_backward_kernel[(rows,)](x, weights, grad, grad_x, out, grad_weights, width, BLOCK=_WIDTH_BLOCK)
    return grad_x, grad_weights, out


def add_weight_gradients(main_grads: torch.Tensor, grad: torch.Tensor, x: torch.Tensor, ends: torch.Tensor) -> None:
    """Add grad^T x of each expert's rows to its main gradient.

    Args:
        main_grads: float32 [experts, output, input], experts evenly spaced; changed.
        grad: [R, output].
        x: [R, input].
        ends: where each expert's rows end, int32 [experts].
    """
    experts, outputs, inputs = main_grads.shape
    block_o, block_i = (max(16, min(_TILE, triton.next_power_of_2(size))) for size in (outputs, inputs))
    tiles = triton.cdiv(outputs, block_o) * triton.cdiv(inputs, block_i)
    _weight_gradients_kernel[(tiles, experts)](
        grad,
        x,
        ends,
        main_grads,
        main_grads.stride(0),
        outputs,
        inputs,
        BLOCK_O=block_o,
        BLOCK_I=block_i,
        BLOCK_R=64,
        num_warps=4,
        num_stages=3,
    )
