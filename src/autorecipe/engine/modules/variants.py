"""Parts of architectures beyond Megatron-Core's own: see `config.variants`.

Shapes: S sequence of this rank, B batch, W hidden size, H heads of this rank, D head size. Start reading at `adapt_model`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region, reduce_from_tensor_model_parallel_region
from megatron.core.tensor_parallel.layers import set_tensor_model_parallel_attributes
from megatron.core.transformer.attention import SelfAttention
from megatron.core.transformer.utils import is_layer_window_attention, make_sharded_tensors_for_checkpoint

from autorecipe.config.variants import Variant
from autorecipe.engine.modules.norm import Norm


class NormedResidual(torch.nn.Module):
    """Adds what a layer gives to the residual after having normalised it.

    It stands where Megatron-Core adds bias, dropout and residual, so that adapters of the projection before it act before the
    norm, as peft's do.

    Args:
        config: transformer configuration.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.norm = Norm(config, config.hidden_size, eps=config.layernorm_epsilon)

    def forward(self, training: bool, fused: bool) -> Callable[[Any, torch.Tensor, float], torch.Tensor]:
        """Return the function that adds (output and bias, residual, dropout probability), all [S, B, W]."""
        add = get_bias_dropout_add(training, fused)

        def add_normed(
            output_with_bias: tuple[torch.Tensor, torch.Tensor | None], residual: torch.Tensor, probability: float
        ) -> torch.Tensor:
            output, bias = output_with_bias
            total: torch.Tensor = add((self.norm(output if bias is None else output + bias), None), residual, probability)
            return total

        return add_normed


class AllHeadsNorm(torch.nn.Module):
    """RMSNorm over all heads at once; under tensor parallelism the ranks share the mean of squares and split the weight.

    Args:
        config: transformer configuration.
        hidden_size: width of a head.
        heads: of the whole model.
        eps: added to the variance.
    """

    def __init__(self, config: Any, hidden_size: int, heads: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__()
        self.eps, self.ranks = eps, config.tensor_model_parallel_size
        self.width = heads * hidden_size
        device = torch.device("cpu") if config.use_cpu_initialization else torch.cuda.current_device()
        self.weight = torch.nn.Parameter(torch.ones(self.width // self.ranks, device=device, dtype=config.params_dtype))
        set_tensor_model_parallel_attributes(self.weight, True, 0, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # [S, B, H, D]
        """Normalise; shape and type are kept."""
        flat = x.flatten(-2)  # [S, B, H x D]
        if self.ranks == 1:
            return F.rms_norm(flat, (self.width,), self.weight, self.eps).view_as(x)
        exact = flat.float()
        squares = exact.square().sum(-1, keepdim=True)
        # Every rank's part of the loss depends on every rank's squares: both directions add up.
        squares = copy_to_tensor_model_parallel_region(reduce_from_tensor_model_parallel_region(squares))
        normal = exact * torch.rsqrt(squares / self.width + self.eps)
        return (normal * self.weight.float()).to(x.dtype).view_as(x)

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: Any = (), metadata: Any = None) -> Any:
        """Describe the weight to a checkpoint, split by heads."""
        return make_sharded_tensors_for_checkpoint({"weight": self.weight}, prefix, {"weight": 0}, sharded_offsets)


class TwoRotaryBases(torch.nn.Module):
    """Rotary positions of layers with a window and of the others, stacked: [2, S, 1, 1, D].

    Args:
        local: of layers with a window.
        everywhere: of the others.
    """

    def __init__(self, local: RotaryEmbedding, everywhere: RotaryEmbedding) -> None:
        super().__init__()
        self.local, self.everywhere = local, everywhere

    def get_rotary_seq_len(self, *arguments: Any, **named: Any) -> int:
        """Return the length that positions are needed for."""
        return int(self.everywhere.get_rotary_seq_len(*arguments, **named))

    def forward(self, *arguments: Any, **named: Any) -> torch.Tensor:
        """Return both."""
        return torch.stack([self.local(*arguments, **named), self.everywhere(*arguments, **named)])


class RotaryByWindow(SelfAttention):
    """Self attention that takes its layer's positions from `TwoRotaryBases`."""

    def forward(self, hidden_states: Any, attention_mask: Any, *arguments: Any, rotary_pos_emb: Any = None, **named: Any) -> Any:
        """Attend."""
        has_window = is_layer_window_attention(
            self.config.window_size, self.config.window_attn_skip_freq, max(1, self.layer_number)
        )
        positions = rotary_pos_emb[0 if has_window else 1]
        return super().forward(hidden_states, attention_mask, *arguments, rotary_pos_emb=positions, **named)


def adapt_model(model: Any, variant: Variant) -> None:
    """Give a finished GPT model of this rank what lies outside its layers: scaled embeddings, positions, capped logits.

    Args:
        model: bare model; changed.
        variant: what its class adds.
    """
    if variant.rotary_bases is not None:
        model.rotary_pos_emb = _two_bases(model.rotary_pos_emb, variant, model.config)
    if variant.scales_embedding and hasattr(model, "embedding"):
        factor = model.config.hidden_size**0.5
        model.embedding.register_forward_hook(lambda _module, _inputs, output: output * _rounded(factor, output))
    if variant.logit_cap and hasattr(model, "output_layer"):
        model.output_layer.register_forward_hook(
            lambda _module, _inputs, output: (cap(output[0], variant.logit_cap), *output[1:])
        )


def cap(values: torch.Tensor, limit: float | None) -> torch.Tensor:
    """Return limit x tanh(values / limit); the values where there is no limit."""
    return torch.tanh(values / limit) * limit if limit else values


def _rounded(factor: float, like: torch.Tensor) -> float:
    """Return a factor as the type of a tensor holds it."""
    return float(torch.tensor(factor, dtype=like.dtype, device="cpu"))


def _two_bases(built: Any, variant: Variant, config: Any) -> TwoRotaryBases:
    assert variant.rotary_bases is not None

    def make(base: float) -> RotaryEmbedding:
        return RotaryEmbedding(
            kv_channels=config.kv_channels,
            rotary_percent=1.0,
            rotary_interleaved=built.rotary_interleaved,
            seq_len_interpolation_factor=built.seq_len_interpolation_factor,
            rotary_base=base,
            use_cpu_initialization=config.use_cpu_initialization,
            cp_group=built.cp_group,
        )

    local, everywhere = (make(base) for base in variant.rotary_bases)
    everywhere.inv_freq = everywhere.inv_freq / variant.rotary_factor
    return TwoRotaryBases(local, everywhere)
