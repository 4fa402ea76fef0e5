"""Linear layers with an adapter: y = W x + s B A x, and for DoRA y = m / |W + s B A| (W x + s B A x) (rows of the weight).

An adapted layer stays the same module under the same name: only its class changes, so the frozen weights keep their keys in
state dicts and checkpoints, and what is new lies under `.adapter.`. A column-parallel layer shards B, a row-parallel one A.
The linear layers of sequential experts are among them; grouped ones are in `experts`. Start reading at `adapt`.
"""

from __future__ import annotations

import contextlib
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
from megatron.core.tensor_parallel.random import get_expert_parallel_rng_tracker_name
from megatron.core.transformer.mlp import apply_swiglu_sharded_factory
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint

from autorecipe.engine import compat
from autorecipe.engine.adapters.initial import Shares, draw_pair
from autorecipe.engine.adapters.settings import AdapterSettings
from autorecipe.engine.modules.latent import DuplicatedLinear


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
    """What all adapted layers share."""

    adapter: Adapter
    weight: torch.Tensor
    training: bool
    is_row: bool
    has_gate: bool

    def _forward(self, features: torch.Tensor, base: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        adapter = self.adapter
        settings = adapter.settings
        output, returned_bias = base(features)
        dropped = self._drop(features, is_input=True)
        low = F.linear(dropped, self._replicated(adapter.linear_in.weight, row=False))
        update = settings.scale * F.linear(self._exchange(low), self._replicated(adapter.linear_out.weight, row=True))
        update = self._drop(update, is_input=False)
        if adapter.magnitude is None:
            return output + update, returned_bias
        bias = getattr(self, "bias", None)
        inner_bias = bias if returned_bias is None else None
        plain = output if inner_bias is None else output - inner_bias
        stretch = self._replicated(adapter.magnitude, row=True) / self.weight_norm()
        scaled = (plain + update) * stretch
        if dropped is not features:
            # Only what the magnitude adds sees the dropout: W x + (m/|V| - 1) W d(x) + m/|V| s B A d(x).
            lost, _ = base(dropped - features)
            scaled = scaled + (stretch - 1) * (lost if inner_bias is None else lost - inner_bias)
        return scaled if inner_bias is None else scaled + inner_bias, returned_bias

    def _exchange(self, low: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    @property
    def _group(self) -> Any:
        return self.tp_group  # type: ignore[attr-defined]

    @property
    def _is_silent(self) -> bool:
        """Whether the layer leaves all exchange to its caller: experts, and shared experts that overlap with them."""
        return bool(getattr(self, "explicit_expert_comm", False))

    def _replicated(self, parameter: torch.Tensor, *, row: bool) -> torch.Tensor:
        """Return a parameter; where a silent layer holds it on every rank, its gradient is summed over them."""
        if self._is_silent and self.is_row == row:
            return copy_to_tensor_model_parallel_region(parameter, group=self._group)
        return parameter

    @torch.no_grad()
    def weight_norm(self) -> torch.Tensor:
        """Return the length of each row of the adapted weight, [outputs of this rank]; no gradient flows through it."""
        adapter = self.adapter
        whole = self.weight.float() + adapter.settings.scale * (
            adapter.linear_out.weight.float() @ adapter.linear_in.weight.float()
        )
        squares = whole.pow(2).sum(dim=1)
        if self.is_row and self._group.size() > 1:
            torch.distributed.all_reduce(squares, group=self._group)
        return squares.sqrt().to(self.weight.dtype)

    def _drop(self, value: torch.Tensor, *, is_input: bool) -> torch.Tensor:
        """Apply the adapter's dropout where it belongs; ranks that hold different parts draw different masks."""
        settings = self.adapter.settings
        if settings.dropout == 0 or not self.training or (settings.dropout_position == "pre") != is_input:
            return value
        if getattr(self, "is_expert", False):
            mask = get_cuda_rng_tracker().fork(get_expert_parallel_rng_tracker_name())
        elif self._splits_sequence or self.is_row == is_input:
            mask = get_cuda_rng_tracker().fork()
        else:
            mask = contextlib.nullcontext()
        with mask:
            return F.dropout(value, p=settings.dropout)

    @property
    def _splits_sequence(self) -> bool:
        return bool(self.sequence_parallel)  # type: ignore[attr-defined]

    def _shard(self, states: dict[str, Any], prefix: str, offsets: Any, metadata: Any) -> dict[str, Any]:
        """Describe the adapter's parameters to a distributed checkpoint, beside the layer's own."""
        mark = f"{prefix}adapter."
        states = {key: value for key, value in states.items() if not key.startswith(mark)}
        own = self.adapter.state_dict(keep_vars=True)
        axes = {"linear_in.weight": 1} if self.is_row else {"linear_out.weight": 0, "magnitude": 0}
        if getattr(self, "is_expert", False) and self.adapter.settings.shares_experts:
            offsets = offsets[:-1]  # one adapter for all experts of a layer
        mine: dict[str, Any] = make_sharded_tensors_for_checkpoint(
            own, mark, axes, offsets, tp_group=self._group, dp_cp_group=metadata["dp_cp_group"]
        )
        if self.has_gate:  # this rank's rows are a part of the gate and a part of the up projection
            for name in ("linear_out.weight", "magnitude"):
                if mark + name in mine:
                    mine[mark + name] = apply_swiglu_sharded_factory(
                        mine[mark + name], offsets, **compat.accepted(apply_swiglu_sharded_factory, tp_group=self._group)
                    )
        return {**states, **mine}


class AdaptedColumnLinear(_Adapted, ColumnParallelLinear):
    """A column-parallel layer with an adapter."""

    is_row = False

    def forward(self, input_: torch.Tensor, *arguments: Any, **named: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return output [S, B, outputs / TP] and the bias that the caller adds, if any."""
        return self._forward(input_, lambda features: ColumnParallelLinear.forward(self, features, *arguments, **named))

    def _exchange(self, low: torch.Tensor) -> torch.Tensor:
        if self._is_silent:
            return low
        if self.sequence_parallel:
            return gather_from_sequence_parallel_region(low, tensor_parallel_output_grad=True, group=self._group)
        return copy_to_tensor_model_parallel_region(low, group=self._group)

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: Any = (), metadata: Any = None) -> dict[str, Any]:
        """Return the shards of the layer and of its adapter."""
        return self._shard(super().sharded_state_dict(prefix, sharded_offsets, metadata), prefix, sharded_offsets, metadata)


class AdaptedRowLinear(_Adapted, RowParallelLinear):
    """A row-parallel layer with an adapter."""

    is_row = True

    def forward(self, input_: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return output [S, B, outputs] and the bias that the caller adds, if any."""
        return self._forward(input_, lambda features: RowParallelLinear.forward(self, features))

    def _exchange(self, low: torch.Tensor) -> torch.Tensor:
        if self._is_silent:
            return low  # a part of the sum, as the layer's own output
        if self.sequence_parallel:
            return reduce_scatter_to_sequence_parallel_region(low, group=self._group)
        return reduce_from_tensor_model_parallel_region(low, group=self._group)

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: Any = (), metadata: Any = None) -> dict[str, Any]:
        """Return the shards of the layer and of its adapter."""
        return self._shard(super().sharded_state_dict(prefix, sharded_offsets, metadata), prefix, sharded_offsets, metadata)


class AdaptedDuplicatedLinear(_Adapted, DuplicatedLinear):
    """A layer that every tensor-parallel rank holds whole, with an adapter that they hold whole, too."""

    is_row = False

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return output [..., outputs] and no bias."""
        return self._forward(x, lambda features: DuplicatedLinear.forward(self, features))

    def _exchange(self, low: torch.Tensor) -> torch.Tensor:
        return low

    @property
    def _splits_sequence(self) -> bool:
        return bool(self.weight.sequence_parallel)

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: Any = (), metadata: Any = None) -> dict[str, Any]:
        """Return the shards of the layer and of its adapter: whole on every rank, as the layer describes all it holds."""
        return super().sharded_state_dict(prefix, sharded_offsets, metadata)


_ADAPTED: dict[type, type] = {
    ColumnParallelLinear: AdaptedColumnLinear,
    RowParallelLinear: AdaptedRowLinear,
    DuplicatedLinear: AdaptedDuplicatedLinear,
}


def can_adapt(linear: Any) -> bool:
    """Return whether `adapt` takes a layer."""
    return type(linear) in _ADAPTED


def adapt(linear: Any, settings: AdapterSettings, *, name: str, seed: int) -> None:
    """Give a linear layer an adapter, in place.

    Args:
        linear: plain layer with its final weights (DoRA starts from their norms).
        settings: the adapter.
        name: full name over the whole model; with the seed it alone decides the initial values, whatever the layout.
        seed: of the run.
    """
    kind = type(linear)
    weight = linear.weight
    is_expert = bool(getattr(linear, "is_expert", False))
    has_gate = name.endswith("linear_fc1") and bool(linear.config.gated_linear_unit)
    shares = None
    if kind is not DuplicatedLinear:
        group = linear.tp_group
        shares = Shares(rank=group.rank(), size=group.size(), is_row=kind is RowParallelLinear, has_gate=has_gate)
    down, up = draw_pair(settings, name, seed, shape=tuple(weight.shape), like=weight, shares=shares)
    linear.__class__ = _ADAPTED[kind]
    linear.has_gate = has_gate
    linear.adapter = adapter = Adapter(settings, down, up)
    split, whole = [adapter.linear_out.weight], [adapter.linear_in.weight]
    if linear.is_row:
        split, whole = whole, split
    if settings.kind == "DoRA":
        adapter.magnitude = torch.nn.Parameter(linear.weight_norm())
        (whole if linear.is_row else split).append(adapter.magnitude)
    if kind is DuplicatedLinear:
        split, whole = [], split + whole
    for parameter in split:
        mark_split(parameter, axis=1 if linear.is_row else 0)
    for parameter in whole:
        if is_expert:
            mark_repeated_in_expert(parameter, linear.tp_group)
        elif not linear._is_silent:
            # Each rank sees its part of the sequence only, so gradients are summed over tensor-parallel ranks at the step's end.
            parameter.sequence_parallel = linear._splits_sequence
    for parameter in adapter.parameters():
        parameter.allreduce = getattr(weight, "allreduce", True)


def mark_split(parameter: Any, *, axis: int) -> None:
    """Mark a parameter of which every tensor-parallel rank holds another part."""
    parameter.tensor_model_parallel = True
    parameter.partition_dim = axis
    parameter.partition_stride = 1


def mark_repeated_in_expert(parameter: Any, group: Any) -> None:
    """Mark an expert's parameter that every expert tensor-parallel rank holds whole: one of them counts it in norms.

    Tensor-parallel ranks outside that group hold other experts, so the usual mark (rank 0 counts) would leave those out.
    """
    mark_split(parameter, axis=0)
    parameter.shared = group.rank() != 0
