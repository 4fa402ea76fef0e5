"""Gradient norm and clipping without waiting for the GPU at every parameter.

Without Transformer Engine and Apex, Megatron-Core reads each parameter's norm back to the host. These are the same sums over
lists of tensors, left on the device.
"""

from __future__ import annotations

from typing import Any

import torch

_MAX_PLANS = 8  # dense and expert parameters, and gradient norm groups, of one model
_plans: dict[tuple[int, ...], Any] = {}


def install(*, in_one_kernel: bool) -> None:
    """Replace Megatron-Core's local fallbacks; does nothing where a package provides real ones.

    Args:
        in_one_kernel: take norms with this project's kernel.
    """
    from megatron.core.optimizer import clip_grads

    if getattr(clip_grads.l2_norm_impl, "__name__", "") not in ("local_multi_tensor_l2_norm", *_OURS):
        return
    clip_grads.l2_norm_impl = norm_in_one_kernel if in_one_kernel else norm_of_list
    clip_grads.multi_tensor_scale_impl = scale_list
    if hasattr(clip_grads, "multi_tensor_scale_tensor_impl"):
        clip_grads.multi_tensor_scale_tensor_impl = scale_list


def norm_of_list(chunk_size: int, noop_flag: Any, tensor_lists: list[list[torch.Tensor]], *_: Any) -> tuple[torch.Tensor, None]:
    """Return the 2-norm of all tensors together, float32 [1], and nothing in place of each tensor's own norm."""
    norms = torch.stack(torch._foreach_norm([tensor for part in tensor_lists for tensor in part]))
    return torch.linalg.vector_norm(norms).reshape(1), None


def norm_in_one_kernel(
    chunk_size: int, noop_flag: Any, tensor_lists: list[list[torch.Tensor]], *_: Any
) -> tuple[torch.Tensor, None]:
    """Return what `norm_of_list` returns, in one pass over memory."""
    from autorecipe.engine.fusion.kernels.adam import NormPlan, describe

    tensors = [tensor for part in tensor_lists for tensor in part]
    if not all(tensor.is_cuda and tensor.dtype == torch.float32 and tensor.is_contiguous() for tensor in tensors):
        return norm_of_list(chunk_size, noop_flag, tensor_lists)
    key = describe(tensors)
    if key not in _plans:
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        _plans[key] = NormPlan(tensors)
    return _plans[key].norm(), None


_OURS = (norm_of_list.__name__, norm_in_one_kernel.__name__)


def scale_list(chunk_size: int, noop_flag: Any, tensor_lists: list[list[torch.Tensor]], scale: Any) -> None:
    """Write each source times a factor (number or 1-element tensor) to its destination."""
    sources, destinations = tensor_lists
    for source, destination in zip(sources, destinations, strict=True):
        if source.data_ptr() != destination.data_ptr():
            destination.copy_(source)
    factor = scale.reshape(()) if torch.is_tensor(scale) else scale
    torch._foreach_mul_(destinations, factor)
