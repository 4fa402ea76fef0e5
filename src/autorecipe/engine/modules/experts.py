"""Linear layers of grouped experts: every local expert's matrix product in one call where torch has a kernel for it.

Initial weights are drawn in the order of Transformer Engine's grouped layers, so both give the same model. They lie one after
another in memory, and stay so in Megatron-Core's buffers, so that all of them together are one tensor without a copy.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker, get_expert_parallel_rng_tracker_name
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint


class GroupedLinear(torch.nn.Module):
    """One linear layer per local expert, `weight0` to `weight{n-1}`, each [output, input], and biases where asked for.

    The token dispatcher gathers and scatters over the expert tensor-parallel ranks, so each layer is a plain product here.
    """

    parallel_axis = 0
    """Dimension of the weight that is split over expert tensor-parallel ranks."""

    def __init__(
        self,
        num_gemms: int,
        input_size: int,
        output_size: int,
        *,
        config: Any,
        init_method: Any,
        bias: bool,
        pg_collection: Any,
        skip_bias_add: bool = False,
        **_: Any,
    ) -> None:
        super().__init__()
        self.has_bias = bias
        self.returns_bias = bias and skip_bias_add
        self.num_gemms = num_gemms
        self.config = config
        self.expert_tp_group, self.ep_group, self.expert_dp_group = (
            pg_collection.expt_tp,
            pg_collection.ep,
            pg_collection.expt_dp,
        )
        shape = [output_size, input_size]
        shape[self.parallel_axis] //= self.expert_tp_group.size()
        device = torch.device("cpu") if config.use_cpu_initialization else torch.cuda.current_device()
        together = torch.empty((num_gemms, *shape), device=device, dtype=config.params_dtype)
        weights = [torch.nn.Parameter(row) for row in together]
        for weight in weights:
            if config.perform_initialization:
                with get_cuda_rng_tracker().fork(get_expert_parallel_rng_tracker_name()):
                    init_method(weight)
            weight.allreduce = config.expert_model_parallel_size == 1
            weight.tensor_model_parallel = True
            weight.partition_dim = self.parallel_axis
            weight.partition_stride = 1
        for index in reversed(range(num_gemms)):  # buffers are filled from the last parameter to the first
            setattr(self, f"weight{index}", weights[index])
        for index in range(num_gemms if bias else 0):
            setattr(self, f"bias{index}", self._make_bias(shape[0], device))

    def _make_bias(self, size: int, device: Any) -> torch.nn.Parameter:
        bias = torch.nn.Parameter(torch.zeros(size, device=device, dtype=self.config.params_dtype))
        bias.allreduce = self.config.expert_model_parallel_size == 1
        bias.tensor_model_parallel = self.parallel_axis == 0
        bias.partition_dim = 0
        bias.partition_stride = 1
        return bias

    def forward(self, x: torch.Tensor, tokens_per_expert: Any) -> tuple[torch.Tensor, list[torch.Tensor] | None]:
        """Apply each expert to its rows.

        Args:
            x: rows sorted by expert, [rows, input].
            tokens_per_expert: rows of each local expert, [experts].

        Returns:
            [rows, output], and each expert's bias where the caller adds it (weighted by the router, after the second layer).
        """
        biases = [getattr(self, f"bias{index}") for index in range(self.num_gemms)] if self.has_bias else None
        output = self._multiply(x, tokens_per_expert)
        if biases is None or self.returns_bias:
            return output, biases
        counts = torch.as_tensor(tokens_per_expert, device=x.device)
        return output + torch.stack(biases).repeat_interleave(counts, dim=0), None

    def _multiply(self, x: torch.Tensor, tokens_per_expert: Any) -> torch.Tensor:
        weights = self.weights
        if x.is_cuda and x.dtype == torch.bfloat16:
            from autorecipe.engine.fusion.experts import GroupedProduct

            ends = torch.as_tensor(tokens_per_expert, device=x.device).cumsum(0, dtype=torch.int32)
            product: torch.Tensor = GroupedProduct.apply(x, ends, self, *weights)
            return product
        counts = tokens_per_expert.tolist() if torch.is_tensor(tokens_per_expert) else list(tokens_per_expert)
        # Every expert takes part, with no rows too, so that each weight gets a gradient.
        parts = [rows @ weight.t() for rows, weight in zip(torch.split(x, counts), weights, strict=True)]
        return torch.cat(parts)

    @property
    def weights(self) -> list[torch.nn.Parameter]:
        """The experts' weights, in order."""
        return [getattr(self, f"weight{index}") for index in range(self.num_gemms)]

    def stack_weights(self) -> torch.Tensor:
        """Return all weights, [experts, output, input], without gradients; a copy only where they lie apart."""
        weights = [weight.detach() for weight in self.weights]
        together = view_together(weights)
        return torch.stack(weights) if together is None else together

    def backward_dw(self) -> None:
        """Do nothing: weight gradients are never delayed here."""

    def sharded_state_dict(
        self, prefix: str = "", sharded_offsets: tuple[Any, ...] = (), metadata: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Describe the weights for distributed checkpoints, with the keys of Megatron-Core's grouped experts."""
        singleton = bool((metadata or {}).get("singleton_local_shards"))
        total = self.ep_group.size() * self.num_gemms
        first = self.ep_group.rank() * self.num_gemms
        found: dict[str, Any] = {}
        for index in range(self.num_gemms):
            expert_axis = (len(sharded_offsets), first + index, total)
            own = {"weight": getattr(self, f"weight{index}")}
            axes = {"weight": self.parallel_axis}
            if self.has_bias:
                own["bias"] = getattr(self, f"bias{index}")
                axes |= {"bias": 0} if self.parallel_axis == 0 else {}
            shards = make_sharded_tensors_for_checkpoint(
                own,
                "",
                axes,
                sharded_offsets if singleton else (*sharded_offsets, expert_axis),
                tp_group=self.expert_tp_group,
                dp_cp_group=self.expert_dp_group,
            )
            for name, shard in shards.items():
                shard.key = f"{prefix}{first + index}.{name}" if singleton else f"{prefix}{name}"
                shard.replica_id = (*shard.replica_id[:2], self.expert_dp_group.rank())
                found[f"{prefix}{name}{index}"] = shard
        return found


class ColumnGroupedLinear(GroupedLinear):
    """Experts' first layers: outputs split over expert tensor-parallel ranks."""

    parallel_axis = 0


class RowGroupedLinear(GroupedLinear):
    """Experts' second layers: inputs split over expert tensor-parallel ranks."""

    parallel_axis = 1


def view_together(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return equal contiguous tensors as one, [count, ...], where they lie evenly spaced in one storage; None elsewhere."""
    first = tensors[0]
    places = [tensor.data_ptr() for tensor in tensors]
    step = places[1] - places[0] if len(places) > 1 else first.numel() * first.element_size()
    is_even = all(after - before == step for before, after in itertools.pairwise(places))
    storages = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    fits = step >= first.numel() * first.element_size() and step % first.element_size() == 0
    if not is_even or not fits or len(storages) > 1 or not all(tensor.is_contiguous() for tensor in tensors):
        return None
    return first.as_strided((len(tensors), *first.shape), (step // first.element_size(), *first.stride()))
