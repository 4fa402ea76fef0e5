"""Adapters on grouped experts: one per expert, or one that all experts of a layer share.

Rows come sorted by expert, and the token dispatcher exchanges over the expert tensor-parallel ranks; so every product here is
local, and a part of a sum where the layer's own output is one. States have the keys that sequential experts give them.
Start reading at `adapt_grouped`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import get_cuda_rng_tracker
from megatron.core.tensor_parallel.mappings import copy_to_tensor_model_parallel_region
from megatron.core.tensor_parallel.random import get_expert_parallel_rng_tracker_name
from megatron.core.transformer.mlp import apply_swiglu_sharded_factory
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint

from autorecipe.engine import compat
from autorecipe.engine.adapters.initial import Shares, draw_pair
from autorecipe.engine.adapters.layers import Adapter, mark_repeated_in_expert, mark_split
from autorecipe.engine.adapters.settings import AdapterSettings
from autorecipe.engine.modules.experts import ColumnGroupedLinear, GroupedLinear, RowGroupedLinear

_ALIGNMENT = 8
"""Widths that torch's grouped product of bfloat16 takes are multiples of this (16 bytes)."""


class ExpertMatrices(torch.nn.Module):
    """One parameter per local expert, `weight0` to `weight{n-1}`."""

    def __init__(self, weights: list[torch.Tensor]) -> None:
        """Keep the matrices (or vectors) of this rank's experts."""
        super().__init__()
        self.count = len(weights)
        for index, weight in enumerate(weights):
            setattr(self, f"weight{index}", torch.nn.Parameter(weight))

    def each(self) -> list[torch.nn.Parameter]:
        """Return the parameters in the order of the experts."""
        return [getattr(self, f"weight{index}") for index in range(self.count)]


class ExpertAdapters(torch.nn.Module):
    """The new parameters of the linear layers of this rank's experts."""

    def __init__(self, settings: AdapterSettings, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Keep the parameters of this rank.

        Args:
            settings: scale, dropout, kind.
            pairs: A and B of each expert.
        """
        super().__init__()
        self.settings = settings
        self.linear_in = ExpertMatrices([down for down, _ in pairs])
        self.linear_out = ExpertMatrices([up for _, up in pairs])
        self.magnitude: ExpertMatrices | None = None


class _AdaptedGrouped(GroupedLinear):
    """What grouped layers with adapters share."""

    adapter: Any
    has_gate: bool

    @property
    def is_row(self) -> bool:
        """Whether the input is split over expert tensor-parallel ranks, and not the output."""
        return self.parallel_axis == 1

    def _drop(self, value: torch.Tensor, *, is_input: bool) -> torch.Tensor:
        settings = self.adapter.settings
        if settings.dropout == 0 or not self.training or (settings.dropout_position == "pre") != is_input:
            return value
        with get_cuda_rng_tracker().fork(get_expert_parallel_rng_tracker_name()):
            return F.dropout(value, p=settings.dropout)

    def _own_states(self, prefix: str, offsets: Any, metadata: Any) -> dict[str, Any]:
        """Return the shards of the layer without its adapter."""
        mark = f"{prefix}adapter."
        states = super().sharded_state_dict(prefix, offsets, metadata)
        return {key: value for key, value in states.items() if not key.startswith(mark)}


class _AdaptedEach(_AdaptedGrouped):
    """Grouped layers with an adapter for each expert."""

    adapter: ExpertAdapters

    def forward(self, x: torch.Tensor, tokens_per_expert: Any) -> tuple[torch.Tensor, list[torch.Tensor] | None]:
        """Apply each expert with its adapter to its rows, [rows, inputs] to [rows, outputs]."""
        adapter, group = self.adapter, self.expert_tp_group
        counts = tokens_per_expert.tolist() if torch.is_tensor(tokens_per_expert) else list(tokens_per_expert)
        downs, ups = adapter.linear_in.each(), adapter.linear_out.each()
        if group.size() > 1:  # what every rank holds whole gets a part of its gradient on each
            repeated = [copy_to_tensor_model_parallel_region(item, group=group) for item in (ups if self.is_row else downs)]
            downs, ups = (downs, repeated) if self.is_row else (repeated, ups)
        output, returned_biases = super().forward(x, tokens_per_expert)
        dropped = self._drop(x, is_input=True)
        update = adapter.settings.scale * _products(_products(dropped, downs, counts), ups, counts)
        update = self._drop(update, is_input=False)
        if adapter.magnitude is None:
            return output + update, returned_biases
        plain = self._multiply(x, tokens_per_expert) if self.has_bias and not self.returns_bias else output
        magnitudes = torch.stack(adapter.magnitude.each())
        if self.is_row:
            magnitudes = copy_to_tensor_model_parallel_region(magnitudes, group=group)
        stretch = (magnitudes / self.weight_norms()).repeat_interleave(torch.tensor(counts, device=x.device), dim=0)
        scaled = (plain + update) * stretch
        if dropped is not x:  # as in the layers outside experts
            scaled = scaled + (stretch - 1) * self._multiply(dropped - x, tokens_per_expert)
        return (scaled if plain is output else scaled + (output - plain)), returned_biases

    @torch.no_grad()
    def weight_norms(self) -> torch.Tensor:
        """Return the length of each row of each adapted weight, [experts, outputs of this rank]."""
        adapter = self.adapter
        downs, ups = adapter.linear_in.each(), adapter.linear_out.each()
        squares = torch.stack(
            [
                (weight.float() + adapter.settings.scale * (up.float() @ down.float())).pow(2).sum(dim=1)
                for weight, down, up in zip(expert_weights(self), downs, ups, strict=True)
            ]
        )
        if self.is_row and self.expert_tp_group.size() > 1:
            torch.distributed.all_reduce(squares, group=self.expert_tp_group)
        return squares.sqrt().to(expert_weights(self)[0].dtype)

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: Any = (), metadata: Any = None) -> dict[str, Any]:
        """Return the shards of the layers and of their adapters."""
        found = self._own_states(prefix, sharded_offsets, metadata)
        total, first = self.ep_group.size() * self.num_gemms, self.ep_group.rank() * self.num_gemms
        adapter = self.adapter
        parts = {"linear_in.weight": adapter.linear_in, "linear_out.weight": adapter.linear_out, "magnitude": adapter.magnitude}
        axes = {"linear_in.weight": 1} if self.is_row else {"linear_out.weight": 0, "magnitude": 0}
        for index in range(self.num_gemms):
            offsets = (*sharded_offsets, (len(sharded_offsets), first + index, total))
            own = {name: part.each()[index] for name, part in parts.items() if part is not None}
            shards = make_sharded_tensors_for_checkpoint(
                own, f"{prefix}adapter.", axes, offsets, tp_group=self.expert_tp_group, dp_cp_group=self.expert_dp_group
            )
            for name in parts:
                shard = shards.get(f"{prefix}adapter.{name}")
                if shard is None:
                    continue
                shard.replica_id = (*shard.replica_id[:2], self.expert_dp_group.rank())
                splits = self.has_gate and name != "linear_in.weight"
                key = f"{prefix}adapter.{name.removesuffix('.weight')}.weight{index}"
                found[key] = self._split_gate(shard, offsets) if splits else shard
        return found

    def _split_gate(self, shard: Any, offsets: Any) -> Any:
        return apply_swiglu_sharded_factory(
            shard, offsets, **compat.accepted(apply_swiglu_sharded_factory, tp_group=self.expert_tp_group)
        )


class _AdaptedTogether(_AdaptedGrouped):
    """Grouped layers of which all experts share one adapter, also across expert-parallel ranks.

    Every rank holds the whole adapter and its gradient is summed over all of them, as that of a layer outside experts.
    """

    adapter: Adapter

    def forward(self, x: torch.Tensor, tokens_per_expert: Any) -> tuple[torch.Tensor, list[torch.Tensor] | None]:
        """Apply each expert to its rows and the adapter to all of them, [rows, inputs] to [rows, outputs]."""
        adapter, group = self.adapter, self.expert_tp_group
        shares = Shares(rank=group.rank(), size=group.size(), is_row=self.is_row, has_gate=self.has_gate)
        down, up = shares.cut_down(adapter.linear_in.weight), shares.cut_up(adapter.linear_out.weight)
        output, returned_biases = super().forward(x, tokens_per_expert)
        update = adapter.settings.scale * F.linear(F.linear(self._drop(x, is_input=True), down), up)
        return output + self._drop(update, is_input=False), returned_biases

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: Any = (), metadata: Any = None) -> dict[str, Any]:
        """Return the shards of the layers, and of the one adapter."""
        from megatron.core import parallel_state

        found = self._own_states(prefix, sharded_offsets, metadata)
        mine: dict[str, Any] = make_sharded_tensors_for_checkpoint(
            self.adapter.state_dict(keep_vars=True),
            f"{prefix}adapter.",
            {},
            sharded_offsets,
            tp_group=parallel_state.get_tensor_model_parallel_group(),
            dp_cp_group=(metadata or {})["dp_cp_group"],
        )
        return {**found, **mine}


class EachColumn(_AdaptedEach, ColumnGroupedLinear):
    """Experts' first layers with an adapter each."""


class EachRow(_AdaptedEach, RowGroupedLinear):
    """Experts' second layers with an adapter each."""


class TogetherColumn(_AdaptedTogether, ColumnGroupedLinear):
    """Experts' first layers with one adapter."""


class TogetherRow(_AdaptedTogether, RowGroupedLinear):
    """Experts' second layers with one adapter."""


_EACH: dict[type, type] = {ColumnGroupedLinear: EachColumn, RowGroupedLinear: EachRow}
_TOGETHER: dict[type, type] = {ColumnGroupedLinear: TogetherColumn, RowGroupedLinear: TogetherRow}


def can_adapt_grouped(linear: Any) -> bool:
    """Return whether `adapt_grouped` takes a layer."""
    return type(linear) in _EACH


def adapt_grouped(linear: Any, settings: AdapterSettings, *, name: str, seed: int) -> None:
    """Give the linear layers of grouped experts adapters, in place.

    Args:
        linear: plain grouped layer with its final weights.
        settings: the adapter.
        name: full name over the whole model, such as `decoder.layers.3.mlp.experts.linear_fc1`.
        seed: of the run.
    """
    kind, group = type(linear), linear.expert_tp_group
    weights = expert_weights(linear)
    is_row = linear.parallel_axis == 1
    linear.has_gate = name.endswith("linear_fc1") and bool(linear.config.gated_linear_unit)
    shares = Shares(rank=group.rank(), size=group.size(), is_row=is_row, has_gate=linear.has_gate)
    shape = tuple(weights[0].shape)
    if settings.shares_experts:
        whole = (shape[0], shape[1] * shares.size) if is_row else (shape[0] * shares.size, shape[1])
        down, up = draw_pair(settings, name, seed, shape=whole, like=weights[0], shares=None)
        linear.__class__ = _TOGETHER[kind]
        linear.adapter = Adapter(settings, down, up)
        for parameter in linear.adapter.parameters():
            parameter.sequence_parallel = bool(linear.config.sequence_parallel)
        return
    head, _, tail = name.rpartition(".")
    first = linear.ep_group.rank() * linear.num_gemms
    pairs = [
        draw_pair(settings, f"{head}.local_experts.{first + index}.{tail}", seed, shape=shape, like=weights[0], shares=shares)
        for index in range(linear.num_gemms)
    ]
    linear.__class__ = _EACH[kind]
    linear.adapter = adapter = ExpertAdapters(settings, pairs)
    split, repeated = adapter.linear_out.each(), adapter.linear_in.each()
    if is_row:
        split, repeated = repeated, split
    if settings.kind == "DoRA":
        adapter.magnitude = ExpertMatrices(list(linear.weight_norms().unbind()))
        (repeated if is_row else split).extend(adapter.magnitude.each())
    for parameter in split:
        mark_split(parameter, axis=1 if is_row else 0)
    for parameter in repeated:
        mark_repeated_in_expert(parameter, group)
    for parameter in adapter.parameters():
        parameter.allreduce = getattr(weights[0], "allreduce", True)


def expert_weights(linear: Any) -> list[torch.Tensor]:
    """Return the weight of each local expert, [outputs, inputs], whether they are stored one by one or stacked."""
    stacked = getattr(linear, "weight", None)
    if stacked is not None:
        return list(stacked.unbind())
    return [getattr(linear, f"weight{index}") for index in range(linear.num_gemms)]


def _products(x: torch.Tensor, weights: list[Any], counts: list[int]) -> torch.Tensor:
    """Multiply each expert's rows by its matrix, [rows, inputs] to [rows, outputs]; experts without rows take part, too."""
    aligned = all(width % _ALIGNMENT == 0 for width in weights[0].shape)
    if x.is_cuda and x.dtype == torch.bfloat16 and aligned:
        offsets = torch.tensor(counts, device=x.device).cumsum(0).to(torch.int32)
        return torch._grouped_mm(x, torch.stack(weights).transpose(-2, -1), offs=offsets)
    return torch.cat([rows @ weight.t() for rows, weight in zip(torch.split(x, counts), weights, strict=True)])
