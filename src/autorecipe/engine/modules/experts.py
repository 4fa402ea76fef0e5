"""Linear layers of grouped experts: every local expert's matrix product in one call where torch has a kernel for it.

Initial weights are drawn in the order of Transformer Engine's grouped layers, so both give the same model.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker, get_expert_parallel_rng_tracker_name
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint


class GroupedLinear(torch.nn.Module):
    """One linear layer per local expert, `weight0` to `weight{n-1}`, each [output, input].

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
        **_: Any,
    ) -> None:
        super().__init__()
        if bias:
            raise NotImplementedError("grouped experts with biases: set model.moe_grouped_gemm=false")
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
        for index in range(num_gemms):
            weight = torch.nn.Parameter(torch.empty(shape, device=device, dtype=config.params_dtype))
            if config.perform_initialization:
                with get_cuda_rng_tracker().fork(get_expert_parallel_rng_tracker_name()):
                    init_method(weight)
            weight.allreduce = config.expert_model_parallel_size == 1
            weight.tensor_model_parallel = True
            weight.partition_dim = self.parallel_axis
            weight.partition_stride = 1
            setattr(self, f"weight{index}", weight)

    def forward(self, x: torch.Tensor, tokens_per_expert: Any) -> tuple[torch.Tensor, None]:
        """Apply each expert to its rows.

        Args:
            x: rows sorted by expert, [rows, input].
            tokens_per_expert: rows of each local expert, [experts].

        Returns:
            [rows, output] and no bias.
        """
        weights = [getattr(self, f"weight{index}") for index in range(self.num_gemms)]
        if x.is_cuda and x.dtype == torch.bfloat16:
            return _grouped_product(x, weights, tokens_per_expert), None
        counts = tokens_per_expert.tolist() if torch.is_tensor(tokens_per_expert) else list(tokens_per_expert)
        # Every expert takes part, with no rows too, so that each weight gets a gradient.
        parts = [rows @ weight.t() for rows, weight in zip(torch.split(x, counts), weights, strict=True)]
        return torch.cat(parts), None

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
            shards = make_sharded_tensors_for_checkpoint(
                {"weight": getattr(self, f"weight{index}")},
                "",
                {"weight": self.parallel_axis},
                sharded_offsets if singleton else (*sharded_offsets, expert_axis),
                tp_group=self.expert_tp_group,
                dp_cp_group=self.expert_dp_group,
            )
            shard = shards["weight"]
            shard.key = f"{prefix}{first + index}.weight" if singleton else f"{prefix}weight"
            shard.replica_id = (*shard.replica_id[:2], self.expert_dp_group.rank())
            found[f"{prefix}weight{index}"] = shard
        return found


class ColumnGroupedLinear(GroupedLinear):
    """Experts' first layers: outputs split over expert tensor-parallel ranks."""

    parallel_axis = 0


class RowGroupedLinear(GroupedLinear):
    """Experts' second layers: inputs split over expert tensor-parallel ranks."""

    parallel_axis = 1


def _grouped_product(x: torch.Tensor, weights: list[torch.nn.Parameter], tokens_per_expert: Any) -> torch.Tensor:
    counts = torch.as_tensor(tokens_per_expert, device=x.device)
    offsets = counts.cumsum(0).to(torch.int32)
    return torch._grouped_mm(x, torch.stack(list(weights)).transpose(-2, -1), offs=offsets)
