"""Bytes of weights, gradients and optimizer states of one rank, each over the right group.

Shape legend: D = DP x CP ranks share a dense parameter, X = expert DP ranks share an expert parameter.

Formula: weights w P; gradients g P; optimizer s P / D for dense and s P / X for experts (sharded), with s = master + moments.
FSDP shards weights and gradients over the same groups, by strategy.
Source: Rajbhandari et al. 2020 (ZeRO) for the sharding; Megatron-Core distrib_optimizer.py and param_and_grad_buffer.py @ 0.16.1.
Evidence: derived.
Error: none against traced models without FSDP (their buffers are padded by less than 0.1%).
"""

from __future__ import annotations

from autorecipe.estimate.blocks import BlockParameters
from autorecipe.record import dataclass
from autorecipe.schema.estimate import ExecutionPolicy, Precision, Sharding


@dataclass(frozen=True)
class RankParameters:
    """Parameters on one rank after model parallelism.

    Attributes:
        dense: parameters reduced over DP x CP.
        expert: parameters reduced over expert DP.
        matrix: part of both that linear layers hold.
        trainable_dense: dense parameters that are trained (all, or the adapters).
        trainable_expert: expert parameters that are trained.
    """

    dense: float
    expert: float
    matrix: float
    trainable_dense: float
    trainable_expert: float

    @property
    def total(self) -> float:
        """All parameters of the rank."""
        return self.dense + self.expert


@dataclass(frozen=True)
class StateBytes:
    """Bytes that stay allocated between steps."""

    weights: float
    gradients: float
    optimizer: float


def shard_block(parameters: BlockParameters, *, tp: int, ep: int, etp: int) -> tuple[float, float, float]:
    """Return (dense, expert, matrix) parameters of a block on one rank: sharded / TP, replicated whole, expert / (EP x ETP)."""
    dense = parameters.sharded / tp + parameters.replicated
    expert = parameters.expert / (ep * etp)
    dense_matrix = parameters.matrix - parameters.expert
    return dense, expert, max(0.0, dense_matrix) / tp + expert


def state_bytes(parameters: RankParameters, policy: ExecutionPolicy, *, dense_ranks: int, expert_ranks: int) -> StateBytes:
    """Return the bytes of weights, gradients and optimizer states.

    Args:
        parameters: what the rank holds.
        policy: precision, sharding and byte widths.
        dense_ranks: DP x CP ranks that share a dense parameter.
        expert_ranks: expert data-parallel ranks that share an expert parameter.
    """
    weight = 4.0 if policy.precision is Precision.FP32 else 2.0
    quantized = quantized_weight_bytes(policy)
    weights_dense = parameters.dense * weight
    weights_expert = parameters.expert * weight
    if quantized is not None:
        saving = (weight - quantized) * parameters.matrix
        share = parameters.expert / parameters.total if parameters.total else 0.0
        weights_dense -= saving * (1 - share)
        weights_expert -= saving * share
    master = 0.0 if policy.precision is Precision.FP32 else policy.master_bytes
    per_parameter = (master + policy.moment_bytes) * (1 - policy.optimizer_offload)
    optimizer_dense = parameters.trainable_dense * per_parameter
    optimizer_expert = parameters.trainable_expert * per_parameter
    gradients_dense = parameters.trainable_dense * policy.grad_bytes
    gradients_expert = parameters.trainable_expert * policy.grad_bytes
    if policy.sharding is not Sharding.REPLICATED:
        optimizer_dense /= max(1.0, dense_ranks / policy.optimizer_instances)
        optimizer_expert /= max(1.0, expert_ranks / policy.optimizer_instances)
    if policy.sharding in (Sharding.OPTIMIZER_GRADS, Sharding.FULL):
        gradients_dense /= dense_ranks
        gradients_expert /= expert_ranks
    if policy.sharding is Sharding.FULL:
        weights_dense /= dense_ranks
        weights_expert /= expert_ranks
    return StateBytes(
        weights=weights_dense + weights_expert,
        gradients=gradients_dense + gradients_expert,
        optimizer=optimizer_dense + optimizer_expert,
    )


def quantized_weight_bytes(policy: ExecutionPolicy) -> float | None:
    """Bytes of one element of a linear weight that is stored quantized, or None where it is stored in 16 bits.

    MXFP8 and FP8_BLOCK keep a row-wise and a column-wise copy, since their scales do not transpose; per-tensor FP8 keeps one and
    transposes on Hopper, or reads either way on Blackwell.
    Source: Transformer Engine's quantized tensor classes (MXFP8Tensor, Float8BlockwiseQTensor, Float8Tensor). Evidence: derived.
    """
    if not policy.quantized_params:
        return None
    return {Precision.FP8: 1.0, Precision.MXFP8: 2 * (1 + 1 / 32), Precision.FP8_BLOCK: 2 * (1 + 4 / 16384)}.get(policy.precision)
