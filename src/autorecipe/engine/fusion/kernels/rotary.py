"""Rotary positions: of one tensor, or of query and key on the way from (and back to) the projection's interleaved heads."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _turn(  # type: ignore[no-untyped-def]
    source,
    target,
    inside,
    cos,
    sin,
    sign,
    HALF: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    REST: tl.constexpr,
    REST_BLOCK: tl.constexpr,
):
    # `source` and `target` point at the first element of each head, [heads, 1].
    columns = tl.arange(0, HALF_BLOCK)[None, :]
    turned = inside & (columns < HALF)
    first = tl.load(source + columns, mask=turned).to(tl.float32)
    second = tl.load(source + HALF + columns, mask=turned).to(tl.float32)
    tl.store(target + columns, first * cos - second * sin * sign, mask=turned)
    tl.store(target + HALF + columns, second * cos + first * sin * sign, mask=turned)
    if REST > 0:
        rest = tl.arange(0, REST_BLOCK)[None, :]
        kept = inside & (rest < REST)
        tl.store(target + 2 * HALF + rest, tl.load(source + 2 * HALF + rest, mask=kept), mask=kept)


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
    head = (tl.program_id(1) * HEADS_BLOCK + tl.arange(0, HEADS_BLOCK))[:, None]
    columns = tl.arange(0, HALF_BLOCK)
    cos = tl.load(cos_ptr + position * HALF + columns, mask=columns < HALF).to(tl.float32)[None, :]
    sin = tl.load(sin_ptr + position * HALF + columns, mask=columns < HALF).to(tl.float32)[None, :]
    source = x_ptr + position * stride_s + member * stride_b + head * stride_h
    target = out_ptr + (token * heads + head) * size
    _turn(source, target, head < heads, cos, sin, sign, HALF, HALF_BLOCK, REST, REST_BLOCK)


@triton.jit
def _heads_kernel(  # type: ignore[no-untyped-def]
    mixed_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    cos_ptr,
    sin_ptr,
    batch,
    groups,
    per_group,
    q_stride_s,
    q_stride_b,
    q_stride_h,
    k_stride_s,
    k_stride_b,
    k_stride_h,
    v_stride_s,
    v_stride_b,
    v_stride_h,
    SIZE: tl.constexpr,
    SIZE_BLOCK: tl.constexpr,
    HALF: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr,
    HEADS_BLOCK: tl.constexpr,
    GROUPS_BLOCK: tl.constexpr,
    MERGES: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    position = token // batch
    member = token % batch
    columns = tl.arange(0, HALF_BLOCK)
    cos = tl.load(cos_ptr + position * HALF + columns, mask=columns < HALF).to(tl.float32)[None, :]
    sin = tl.load(sin_ptr + position * HALF + columns, mask=columns < HALF).to(tl.float32)[None, :]
    mixed = mixed_ptr + token * groups * (per_group + 2) * SIZE
    head = tl.arange(0, HEADS_BLOCK)[:, None]
    group = tl.arange(0, GROUPS_BLOCK)[:, None]
    q_mixed = mixed + ((head // per_group) * (per_group + 2) + head % per_group) * SIZE
    k_mixed = mixed + (group * (per_group + 2) + per_group) * SIZE
    q = q_ptr + position * q_stride_s + member * q_stride_b + head * q_stride_h
    k = k_ptr + position * k_stride_s + member * k_stride_b + group * k_stride_h
    v = v_ptr + position * v_stride_s + member * v_stride_b + group * v_stride_h
    whole = tl.arange(0, SIZE_BLOCK)[None, :]
    copied = (group < groups) & (whole < SIZE)
    if MERGES:
        _turn(q, q_mixed, head < groups * per_group, cos, sin, -1.0, HALF, HALF_BLOCK, SIZE - 2 * HALF, REST_BLOCK)
        _turn(k, k_mixed, group < groups, cos, sin, -1.0, HALF, HALF_BLOCK, SIZE - 2 * HALF, REST_BLOCK)
        tl.store(k_mixed + SIZE + whole, tl.load(v + whole, mask=copied), mask=copied)
    else:
        _turn(q_mixed, q, head < groups * per_group, cos, sin, 1.0, HALF, HALF_BLOCK, SIZE - 2 * HALF, REST_BLOCK)
        _turn(k_mixed, k, group < groups, cos, sin, 1.0, HALF, HALF_BLOCK, SIZE - 2 * HALF, REST_BLOCK)
        tl.store(v + whole, tl.load(k_mixed + SIZE + whole, mask=copied), mask=copied)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, inverse: bool = False) -> torch.Tensor:
    """Rotate the halves of each head.

    Args:
        x: [S, B, heads, D], last dimension contiguous.
        cos: [S, R / 2], R <= D rotated dimensions.
        sin: [S, R / 2].
        inverse: rotate back (the backward pass).

    Returns:
        [S, B, heads, D], contiguous; dimensions beyond R are copied.
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


def split_heads(
    mixed: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, groups: int, per_group: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cut the projection's heads apart and rotate query and key.

    Args:
        mixed: [S, B, groups x (per_group + 2) x D]: of each group its query heads, then its key, then its value.
        cos: [S, R / 2].
        sin: [S, R / 2].
        groups: key/value heads.
        per_group: query heads of each.

    Returns:
        query [S, B, groups x per_group, D], key and value [S, B, groups, D].
    """
    sequence, batch, width = mixed.shape
    size = width // (groups * (per_group + 2))
    query = mixed.new_empty((sequence, batch, groups * per_group, size))
    key, value = (mixed.new_empty((sequence, batch, groups, size)) for _ in range(2))
    _start_heads(mixed, query, key, value, cos, sin, groups, per_group, merges=False)
    return query, key, value


def merge_heads(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Undo `split_heads` for gradients: rotate query and key back and put the heads in the projection's order."""
    query, key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value))
    sequence, batch, heads, size = query.shape
    groups = key.shape[2]
    mixed = query.new_empty((sequence, batch, (heads + 2 * groups) * size))
    _start_heads(mixed, query, key, value, cos, sin, groups, heads // groups, merges=True)
    return mixed


def _start_heads(
    mixed: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    groups: int,
    per_group: int,
    *,
    merges: bool,
) -> None:
    sequence, batch, heads, size = query.shape
    half = cos.shape[1]
    strides: list[Any] = [stride for x in (query, key, value) for stride in x.stride()[:3]]
    heads_block, half_block = triton.next_power_of_2(heads), triton.next_power_of_2(half)
    _heads_kernel[(sequence * batch,)](
        mixed,
        query,
        key,
        value,
        cos,
        sin,
        batch,
        groups,
        per_group,
        *strides,
        SIZE=size,
        SIZE_BLOCK=triton.next_power_of_2(size),
        HALF=half,
        HALF_BLOCK=half_block,
        REST_BLOCK=triton.next_power_of_2(max(size - 2 * half, 1)),
        HEADS_BLOCK=heads_block,
        GROUPS_BLOCK=triton.next_power_of_2(groups),
        MERGES=merges,
        num_warps=2 if heads_block * half_block <= 1024 else 4,
    )
