"""The few places of Megatron-Core that look for a CUDA generator or a CUDA tensor by themselves."""

from __future__ import annotations

from typing import Any

import torch


def adapt() -> None:
    """Point Megatron-Core's generator tracker and token dispatcher at the CPU. Call after `standin.install`."""
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.moe import moe_utils, token_dispatcher

    random._get_cuda_rng_state = _get_state
    random._set_cuda_rng_state = _set_state
    moe_utils.maybe_move_tensor_to_cpu = token_dispatcher.maybe_move_tensor_to_cpu = _to_host


def _get_state(device: Any = "cuda", clone: bool = False, graph_safe: bool = False) -> torch.Tensor:
    return torch.get_rng_state()


def _set_state(new_state: torch.Tensor, device: Any = -1, graph_safe: bool = False) -> None:
    torch.set_rng_state(new_state)


def _to_host(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
    """Turn split sizes into numpy as on CUDA; the original leaves tensors alone that are on the CPU already."""
    return tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor
