"""RMSNorm and LayerNorm that support sequence parallelism.

Megatron-Core's torch norms refuse sequence parallelism because their parameters are not marked for the gradient reduction
over tensor-parallel ranks; these are.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


class Norm(torch.nn.Module):
    """RMSNorm or LayerNorm, as `config.normalization` says.

    Args:
        config: transformer configuration.
        hidden_size: width of the last dimension.
        eps: added to the variance.
    """

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__()
        self.eps = eps
        self.shape = (hidden_size,)
        self.is_rms = config.normalization == "RMSNorm"
        self.is_zero_centered = bool(config.layernorm_zero_centered_gamma)
        self.is_fused = False
        """Whether kernels serve it, also as part of the layer before it (see `fusion.layer`)."""
        self.offset = 1.0 if self.is_zero_centered else 0.0
        device = torch.device("cpu") if config.use_cpu_initialization else torch.cuda.current_device()
        start = 0.0 if self.is_zero_centered else 1.0
        self.weight = _marked(torch.full(self.shape, start, device=device, dtype=config.params_dtype), config)
        self.bias: torch.nn.Parameter | None = None
        if not self.is_rms:
            self.bias = _marked(torch.zeros(hidden_size, device=device, dtype=config.params_dtype), config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise the last dimension; shape and type are kept."""
        if self.is_fused:
            return self._forward_fused(x)
        weight = self.weight + 1 if self.is_zero_centered else self.weight
        if self.is_rms:
            if self.is_zero_centered and x.dtype != torch.float32:  # half precision rounds small weights away beside 1
                return F.rms_norm(x.float(), self.shape, self.weight.float() + 1, self.eps).to(x.dtype)
            return F.rms_norm(x, self.shape, weight, self.eps)
        return F.layer_norm(x, self.shape, weight, self.bias, self.eps)

    def _forward_fused(self, x: torch.Tensor) -> torch.Tensor:
        """Take what the layer before has normalised for this norm, or normalise."""
        from autorecipe.engine.fusion.functions import RmsNorm

        norm, normal = getattr(x, "normalised", (None, None))
        if norm is self and normal is not None:
            del x.normalised
            return normal
        return RmsNorm.apply(x, self.weight, self.eps, self.offset)


def _marked(value: torch.Tensor, config: Any) -> torch.nn.Parameter:
    parameter = torch.nn.Parameter(value)
    parameter.sequence_parallel = config.sequence_parallel
    return parameter
