"""Latent attention (MLA) without Transformer Engine.

Megatron-Core's plain specification splits the down projections over tensor-parallel ranks and then gathers; the backward of
that gather only splits, so the shared rotary key loses the gradient of the other ranks' heads (measured: loss off by 1.4e-3
in 5 steps). Here every rank holds the whole projection and applies it to its own part of the sequence, as Transformer
Engine's specification does, which agrees with one process to rounding.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker, get_data_parallel_rng_tracker_name
from megatron.core.transformer import multi_latent_attention
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint


class DuplicatedLinear(torch.nn.Module):
    """A linear layer, [output, input], of which every tensor-parallel rank holds the whole."""

    def __init__(self, input_size: int, output_size: int, *, config: Any, init_method: Any, bias: bool = False, **_: Any) -> None:
        super().__init__()
        if bias:
            raise NotImplementedError("latent attention's down projections have no bias")
        device = torch.device("cpu") if config.use_cpu_initialization else torch.cuda.current_device()
        self.weight = torch.nn.Parameter(torch.empty(output_size, input_size, device=device, dtype=config.params_dtype))
        if config.perform_initialization:
            with get_cuda_rng_tracker().fork(get_data_parallel_rng_tracker_name()):  # alike on every tensor-parallel rank
                init_method(self.weight)
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the product, [..., output], and no bias."""
        return F.linear(x, self.weight), None

    def sharded_state_dict(
        self, prefix: str = "", sharded_offsets: tuple[Any, ...] = (), metadata: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Describe the weight for distributed checkpoints: whole on every rank."""
        state = self.state_dict(prefix="", keep_vars=True)
        described: dict[str, Any] = make_sharded_tensors_for_checkpoint(state, prefix, None, sharded_offsets)
        return described


class LatentAttention(multi_latent_attention.MLASelfAttention):
    """Megatron-Core's latent attention with the layers of the specification taken as they are.

    Newer releases otherwise look for Transformer Engine's fused norm and projection.
    """

    def _resolve_qk_norm_config(self, submodules: Any) -> dict[str, Any]:
        names = ("linear_q_proj", "linear_q_up_proj", "linear_kv_up_proj", "q_layernorm", "kv_layernorm")
        return {name: getattr(submodules, name) for name in names}


def accept_duplicated_linear() -> None:
    """Let Megatron-Core's latent attention treat `DuplicatedLinear` like Transformer Engine's duplicated layer."""
    multi_latent_attention.TELinear = DuplicatedLinear
