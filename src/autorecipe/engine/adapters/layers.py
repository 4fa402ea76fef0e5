"""Linear layers with an adapter: y = W x + s B A x, and for DoRA y = m / |W + s B A| (W x + s B A x) (rows of the weight).

An adapted layer stays the same module under the same name: only its class changes, so the frozen weights keep their keys in
state dicts and checkpoints, and what is new lies under `.adapter.`. A column-parallel layer shards B, a row-parallel one A.
Start reading at `adapt`.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import get_cuda_rng_tracker
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.mappings import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)
from megatron.core.transformer.mlp import apply_swiglu_sharded_factory
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint

from autorecipe.engine import compat
from autorecipe.engine.adapters.settings import AdapterSettings

NORMAL_STD = 0.2
"""Standard deviation of the `normal` start. Source: Megatron Bridge 0.6.2 peft/utils.py."""


class Projection(torch.nn.Module):
    """Holds one matrix of the low-rank product."""

    def __init__(self, weight: torch.Tensor) -> None:
        """Keep a matrix.

        Args:
            weight: [outputs, inputs], this rank's part.
        """
        super().__init__()
        self.weight = torch.nn.Parameter(weight)


class Adapter(torch.nn.Module):
    """The new parameters of one linear layer; `linear_in` is A, `linear_out` is B, as Megatron Bridge names them."""

    def __init__(self, settings: AdapterSettings, down: torch.Tensor, up: torch.Tensor) -> None:
        """Keep the parameters of this rank.

        Args:
            settings: scale, dropout, kind.
            down: A, [dim, inputs].
            up: B, [outputs, dim].
        """
        super().__init__()
        self.settings = settings
        self.linear_in = Projection(down)
        self.linear_out = Projection(up)
        self.magnitude: torch.nn.Parameter | None = None


class _Adapted:
    """What both kinds of adapted layers share."""

    adapter: Adapter
    weight: torch.Tensor
    bias: torch.Tensor | None
    is_row: bool
    has_gate: bool

    def _forward(self, base: Any, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        settings, layer = self.adapter.settings, self
        output, returned_bias = base
        low = F.linear(_drop(features, layer, is_input=True), self.adapter.linear_in.weight)
        update = settings.scale * F.linear(self._exchange(low), self.adapter.linear_out.weight)
        update = _drop(update, layer, is_input=False)
        if self.adapter.magnitude is None:
            return output + update, returned_bias
        inner_bias = self.bias if self.bias is not None and returned_bias is None else None
        plain = output if inner_bias is None else output - inner_bias
        scaled = (plain + update) * (self.adapter.magnitude / self.weight_norm())
        return scaled if inner_bias is None else scaled + inner_bias, returned_bias

    def _exchange(self, low: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    @torch.no_grad()
    def weight_norm(self) -> torch.Tensor:
        """Return the length of each row of the adapted weight, [outputs of this rank]; no gradient flows through it."""
        adapter = self.adapter
        whole = self.weight.float() + adapter.settings.scale * (
            adapter.linear_out.weight.float() @ adapter.linear_in.weight.float()
        )
        squares = whole.pow(2).sum(dim=1)
        group = self.tp_group  # type: ignore[attr-defined]
        if self.is_row and group.size() > 1:
            torch.distributed.all_reduce(squares, group=group)
        return squares.sqrt().to(self.weight.dtype)

    def _shard(self, states: dict[str, Any], prefix: str, offsets: Any, metadata: Any) -> dict[str, Any]:
        """Describe the adapter's parameters to a distributed checkpoint, beside the layer's own."""
        mark = f"{prefix}adapter."
        states = {key: value for key, value in states.items() if not key.startswith(mark)}
        own = self.adapter.state_dict(keep_vars=True)
        axes = {"linear_in.weight": 1} if self.is_row else {"linear_out.weight": 0, "magnitude": 0}
        group = self.tp_group  # type: ignore[attr-defined]
        mine: dict[str, Any] = make_sharded_tensors_for_checkpoint(
            own, mark, axes, offsets, tp_group=group, dp_cp_group=metadata["dp_cp_group"]
        )
        if self.has_gate:  # this rank's rows are a part of the gate and a part of the up projection
            for name in ("linear_out.weight", "magnitude"):
                if mark + name in mine:
                    mine[mark + name] = apply_swiglu_sharded_factory(
                        mine[mark + name], offsets, **compat.accepted(apply_swiglu_sharded_factory, tp_group=group)
                    )
        return {**states, **mine}


class AdaptedColumnLinear(_Adapted, ColumnParallelLinear):
    """A column-parallel layer with an adapter."""

    is_row = False

    def forward(self, input_: torch.Tensor, *arguments: Any, **named: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return output [S, B, outputs / TP] and the bias that the caller adds, if any."""
        return self._forward(ColumnParallelLinear.forward(self, input_, *arguments, **named), input_)

    def _exchange(self, low: torch.Tensor) -> torch.Tensor:
        if self.sequence_parallel:
            return gather_from_sequence_parallel_region(low, tensor_parallel_output_grad=True)
        return copy_to_tensor_model_parallel_region(low)

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: Any = (), metadata: Any = None) -> dict[str, Any]:
        """Return the shards of the layer and of its adapter."""
        return self._shard(super().sharded_state_dict(prefix, sharded_offsets, metadata), prefix, sharded_offsets, metadata)


class AdaptedRowLinear(_Adapted, RowParallelLinear):
    """A row-parallel layer with an adapter."""

    is_row = True

    def forward(self, input_: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return output [S, B, outputs] and the bias that the caller adds, if any."""
        return self._forward(RowParallelLinear.forward(self, input_), input_)

    def _exchange(self, low: torch.Tensor) -> torch.Tensor:
        if self.sequence_parallel:
            return reduce_scatter_to_sequence_parallel_region(low)
        return reduce_from_tensor_model_parallel_region(low)

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: Any = (), metadata: Any = None) -> dict[str, Any]:
        """Return the shards of the layer and of its adapter."""
        return self._shard(super().sharded_state_dict(prefix, sharded_offsets, metadata), prefix, sharded_offsets, metadata)


def adapt(linear: Any, settings: AdapterSettings, *, name: str, seed: int) -> None:
    """Give a linear layer an adapter, in place.

    Args:
        linear: plain `ColumnParallelLinear` or `RowParallelLinear` with its final weights (DoRA starts from their norms).
        settings: the adapter.
        name: full name over the whole model; with the seed it alone decides the initial values, whatever the layout.
        seed: of the run.
    """
    is_row = isinstance(linear, RowParallelLinear)
    group = linear.tp_group
    size, rank = group.size(), group.rank()
    outputs, inputs = linear.weight.shape
    has_gate = name.endswith("linear_fc1") and bool(linear.config.gated_linear_unit)
    whole_in, whole_out = (inputs * size, outputs) if is_row else (inputs, outputs * size)
    down = draw(settings.a_init, (settings.dim, whole_in), f"{seed}|{name}|linear_in")
    up = draw(settings.b_init, (whole_out, settings.dim), f"{seed}|{name}|linear_out")
    if is_row:
        down = down.chunk(size, dim=1)[rank]
    else:
        up = torch.cat([part.chunk(size)[rank] for part in up.chunk(2 if has_gate else 1)])
    weight = linear.weight
    adapter = Adapter(settings, _place(down, weight), _place(up, weight))
    linear.__class__ = AdaptedRowLinear if is_row else AdaptedColumnLinear
    linear.has_gate = has_gate
    linear.adapter = adapter
    sharded, replicated = [adapter.linear_out.weight], [adapter.linear_in.weight]
    if is_row:
        sharded, replicated = replicated, sharded
    if settings.kind == "DoRA":
        adapter.magnitude = torch.nn.Parameter(linear.weight_norm())
        (replicated if is_row else sharded).append(adapter.magnitude)
    for parameter in sharded:
        parameter.tensor_model_parallel = True
        parameter.partition_dim = 1 if is_row else 0
        parameter.partition_stride = 1
    for parameter in replicated:
        # Each rank sees its part of the sequence only, so gradients are summed over tensor-parallel ranks at the step's end.
        parameter.sequence_parallel = bool(linear.sequence_parallel)


def draw(method: str, shape: tuple[int, int], key: str) -> torch.Tensor:
    """Return the whole matrix of a key, float32: the same on every rank and at every layout.

    Args:
        method: `xavier` (normal), `kaiming` (uniform, a = sqrt 5), `normal` or `zero`.
        shape: [outputs, inputs].
        key: decides the values.
    """
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big")
    generator = torch.Generator().manual_seed(number)
    weight = torch.zeros(shape)
    if method == "xavier":
        torch.nn.init.xavier_normal_(weight, generator=generator)
    elif method == "kaiming":
        torch.nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
    elif method == "normal":
        torch.nn.init.normal_(weight, std=NORMAL_STD, generator=generator)
    return weight


def _place(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return value.to(device=like.device, dtype=like.dtype).contiguous()


def _drop(value: torch.Tensor, layer: Any, *, is_input: bool) -> torch.Tensor:
    """Apply the adapter's dropout where it belongs; ranks that hold different parts draw different masks."""
    settings = layer.adapter.settings
    if settings.dropout == 0 or not layer.training or (settings.dropout_position == "pre") != is_input:
        return value
    is_part = layer.sequence_parallel or layer.is_row == is_input
    with get_cuda_rng_tracker().fork() if is_part else contextlib.nullcontext():
        return F.dropout(value, p=settings.dropout)
