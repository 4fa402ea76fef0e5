"""Adam and the 2-norm over many tensors in one kernel each.

The update applies the clipping factor and writes the half-precision copy in the same pass over memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

_UPDATE_BLOCK, _UPDATE_WARPS = 1024, 8  # the fastest of those tried on one H200, as is the next line
_NORM_BLOCK, _NORM_WARPS = 2048, 4


@triton.jit
def _update(  # type: ignore[no-untyped-def]
    parameter_ptr,
    grad_ptr,
    first_ptr,
    second_ptr,
    copy_ptr,
    place,
    mask,
    factor_ptr,
    lr,
    beta1,
    beta2,
    eps,
    weight_decay,
    first_correction,
    second_correction,
    DECOUPLED: tl.constexpr,
    FACTOR: tl.constexpr,
    COPIES: tl.constexpr,
):
    parameter = tl.load(parameter_ptr + place, mask=mask)
    grad = tl.load(grad_ptr + place, mask=mask)
    first = tl.load(first_ptr + place, mask=mask)
    second = tl.load(second_ptr + place, mask=mask)
    if FACTOR:
        grad = grad * tl.load(factor_ptr)
    if DECOUPLED:
        parameter = parameter - lr * weight_decay * parameter
    else:
        grad = grad + weight_decay * parameter
    first = first + (1.0 - beta1) * (grad - first)
    second = beta2 * second + (1.0 - beta2) * grad * grad
    parameter = parameter - (lr / first_correction) * first / (tl.sqrt(second) / second_correction + eps)
    tl.store(parameter_ptr + place, parameter, mask=mask)
    tl.store(first_ptr + place, first, mask=mask)
    tl.store(second_ptr + place, second, mask=mask)
    if COPIES:
        tl.store(copy_ptr + place, parameter, mask=mask)


@triton.jit
def _address(table_ptr, owner, TYPE: tl.constexpr, ALIGNMENT: tl.constexpr):  # type: ignore[no-untyped-def]
    return tl.multiple_of(tl.load(table_ptr + owner).to(tl.pointer_type(TYPE)), ALIGNMENT)


@triton.jit
def _adam_kernel(  # type: ignore[no-untyped-def]
    parameters_ptr,
    grads_ptr,
    firsts_ptr,
    seconds_ptr,
    copies_ptr,
    sizes_ptr,
    owners_ptr,
    starts_ptr,
    factor_ptr,
    lr,
    beta1,
    beta2,
    eps,
    weight_decay,
    first_correction,
    second_correction,
    DECOUPLED: tl.constexpr,
    FACTOR: tl.constexpr,
    COPY: tl.constexpr,
    ALIGNMENT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    owner = tl.load(owners_ptr + tl.program_id(0))
    start = tl.multiple_of(tl.load(starts_ptr + tl.program_id(0)), BLOCK)
    size = tl.load(sizes_ptr + owner)
    place = start + tl.arange(0, BLOCK)
    parameter = _address(parameters_ptr, owner, tl.float32, ALIGNMENT)
    grad = _address(grads_ptr, owner, tl.float32, ALIGNMENT)
    first = _address(firsts_ptr, owner, tl.float32, ALIGNMENT)
    second = _address(seconds_ptr, owner, tl.float32, ALIGNMENT)
    if COPY == "float16":
        copy = _address(copies_ptr, owner, tl.float16, ALIGNMENT)
    else:
        copy = _address(copies_ptr, owner, tl.bfloat16, ALIGNMENT)
    if start + BLOCK <= size:  # without masks memory is read and written in wide pieces
        _update(
            parameter, grad, first, second, copy, place, None, factor_ptr, lr, beta1, beta2, eps, weight_decay,
            first_correction, second_correction, DECOUPLED, FACTOR, COPY != "none"
        )  # fmt: skip
    else:
        _update(
            parameter, grad, first, second, copy, place, place < size, factor_ptr, lr, beta1, beta2, eps, weight_decay,
            first_correction, second_correction, DECOUPLED, FACTOR, COPY != "none"
        )  # fmt: skip


@triton.jit
def _squares_kernel(  # type: ignore[no-untyped-def]
    tensors_ptr, sizes_ptr, owners_ptr, starts_ptr, parts_ptr, ALIGNMENT: tl.constexpr, BLOCK: tl.constexpr
):
    owner = tl.load(owners_ptr + tl.program_id(0))
    start = tl.multiple_of(tl.load(starts_ptr + tl.program_id(0)), BLOCK)
    size = tl.load(sizes_ptr + owner)
    place = start + tl.arange(0, BLOCK)
    tensor = _address(tensors_ptr, owner, tl.float32, ALIGNMENT)
    if start + BLOCK <= size:
        values = tl.load(tensor + place)
    else:
        values = tl.load(tensor + place, mask=place < size, other=0.0)
    tl.store(parts_ptr + tl.program_id(0), tl.sum(values * values, 0))


class AdamPlan:
    """Addresses of a fixed list of float32 parameters, their gradients, moments and half-precision copies."""

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        grads: Sequence[torch.Tensor],
        firsts: Sequence[torch.Tensor],
        seconds: Sequence[torch.Tensor],
        copies: Sequence[torch.Tensor] | None,
    ) -> None:
        """Tabulate.

        Args:
            parameters: float32, each contiguous, of any shape.
            grads: float32, as many elements each.
            firsts: first moments.
            seconds: second moments.
            copies: where each parameter goes rounded, all of one half-precision type; None for nowhere.
        """
        self.key = describe(parameters, grads, firsts, seconds, copies)
        self._table = _Table((parameters, grads, firsts, seconds, copies if copies is not None else parameters), _UPDATE_BLOCK)
        self._copy = "none" if copies is None else str(copies[0].dtype).removeprefix("torch.")

    def step(
        self,
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        step: int,
        decoupled: bool,
        factor: torch.Tensor | None,
    ) -> None:
        """Update everything once.

        Args:
            lr: learning rate.
            betas: decay of the moments.
            eps: added to the denominator.
            weight_decay: decay factor.
            step: updates so far, this one included.
            decoupled: weight decay of AdamW, otherwise of Adam.
            factor: float32 number on the device that gradients are multiplied by, or None.
        """
        table = self._table
        if table.blocks == 0:
            return
        _adam_kernel[(table.blocks,)](
            *table.addresses,
            table.sizes,
            table.owners,
            table.starts,
            table.sizes if factor is None else factor,
            lr,
            betas[0],
            betas[1],
            eps,
            weight_decay,
            1.0 - betas[0] ** step,
            (1.0 - betas[1] ** step) ** 0.5,
            DECOUPLED=decoupled,
            FACTOR=factor is not None,
            COPY=self._copy,
            ALIGNMENT=table.alignment,
            BLOCK=_UPDATE_BLOCK,
            num_warps=_UPDATE_WARPS,
        )


class NormPlan:
    """Addresses of a fixed list of float32 tensors whose 2-norm is asked for."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        """Tabulate contiguous tensors of any shape."""
        self.key = describe(tensors)
        self._table = _Table((tensors,), _NORM_BLOCK)

    def norm(self) -> torch.Tensor:
        """Return the 2-norm of all tensors together, float32 [1]; sums are in a fixed order."""
        table = self._table
        parts = torch.empty(table.blocks, dtype=torch.float32, device=table.sizes.device)
        if table.blocks:
            _squares_kernel[(table.blocks,)](
                *table.addresses,
                table.sizes,
                table.owners,
                table.starts,
                parts,
                ALIGNMENT=table.alignment,
                BLOCK=_NORM_BLOCK,
                num_warps=_NORM_WARPS,
            )
        return parts.sum().sqrt().reshape(1)


class _Table:
    """Lists of tensors of equal sizes, cut into blocks: for each block, which tensor, and where it starts."""

    def __init__(self, lists: Sequence[Sequence[torch.Tensor]], block: int) -> None:
        device = lists[0][0].device
        counts = [tensor.numel() for tensor in lists[0]]
        blocks = torch.tensor([triton.cdiv(count, block) for count in counts])
        owners = torch.repeat_interleave(torch.arange(len(counts)), blocks)
        before = torch.cumsum(blocks, 0) - blocks
        places = [[tensor.data_ptr() for tensor in row] for row in lists]
        self.blocks = owners.numel()
        self.addresses = [torch.tensor(row, device=device) for row in places]
        self.sizes = torch.tensor(counts, device=device)
        self.owners = owners.to(torch.int32).to(device)
        self.starts = ((torch.arange(owners.numel()) - before[owners]) * block).to(device)
        self.alignment = 16 if all(place % 16 == 0 for row in places for place in row) else 2
        self._kept = lists  # the addresses hold as long as these live


def describe(*lists: Sequence[torch.Tensor] | None) -> tuple[int, ...]:
    """Return what identifies lists of tensors: their addresses."""
    return tuple(x.data_ptr() for row in lists if row is not None for x in row)
