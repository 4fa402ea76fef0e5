"""Parameters of one rank, and the bytes of their weights, gradients and optimizer states, each over the right group.

Shape legend: D = DP x CP ranks share a dense parameter, X = expert DP ranks share an expert parameter.

Formula: weights w P; gradients g P; optimizer s P / D for dense and s P / X for experts (sharded), with s = master + moments.
FSDP shards weights and gradients over the same groups, by strategy.
Source: Rajbhandari et al. 2020 (ZeRO) for the sharding; Megatron-Core distrib_optimizer.py and param_and_grad_buffer.py @ 0.16.1.
Evidence: derived.
Error: none against traced models without FSDP (their buffers are padded by less than 0.1%).
"""

from __future__ import annotations

from collections import Counter

from autorecipe.estimate.adapters import adapter_parameters
from autorecipe.estimate.stages import Chunk, Pipeline, StagePlan
from autorecipe.record import dataclass
from autorecipe.schema.blocks import Block, layer_blocks, mtp_blocks, padded_vocab
from autorecipe.schema.estimate import Adapters, ExecutionPolicy, Precision, Sharding
from autorecipe.schema.model import ModelShape
from autorecipe.schema.parameters import (
    BlockParameters,
    block_parameters,
    multi_token_extra,
    norm_parameters,
    position_parameters,
)


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

    @property
    def total(self) -> float:
        """All of them."""
        return self.weights + self.gradients + self.optimizer


def shard_block(parameters: BlockParameters, *, tp: int, ep: int, etp: int) -> tuple[float, float, float]:
    """Return (dense, expert, matrix) parameters of a block on one rank: sharded / TP, replicated whole, expert / (EP x ETP)."""
    dense = parameters.sharded / tp + parameters.replicated
    expert = parameters.expert / (ep * etp)
    dense_matrix = parameters.matrix - parameters.expert
    return dense, expert, max(0.0, dense_matrix) / tp + expert


class RankCounter:
    """Counts the parameters of one rank of a stage; remembers what depends on few axes.

    Args:
        shape: the model.
        adapters: low-rank adapters on frozen weights, or None.

    `blocks` counts each kind of block in the whole model, prediction depths included.
    """

    def __init__(self, shape: ModelShape, adapters: Adapters | None) -> None:
        self.shape = shape
        self.adapters = adapters
        self.mtp_blocks = mtp_blocks(shape) if shape.mtp_num_layers else ()
        self.blocks = Counter(block for layer in layer_blocks(shape) for block in layer)
        for block in self.mtp_blocks:
            self.blocks[block] += shape.mtp_num_layers
        self.kinds = frozenset(self.blocks)
        self._parameters = {block: block_parameters(shape, block) for block in self.kinds}
        self._mtp = multi_token_extra(shape)
        self._shares: dict[tuple[Block, int, int, int], tuple[float, float, float, float, float]] = {}
        self._stages: dict[tuple[Pipeline, int, int, int], tuple[RankParameters, ...]] = {}

    def by_representative(self, pipeline: Pipeline, *, tp: int, ep: int, etp: int) -> tuple[RankParameters, ...]:
        """Return the parameters of one rank of each stage that differs."""
        key = (pipeline, tp, ep, etp)
        found = self._stages.get(key)
        if found is None:
            found = tuple(self.count(plan, tp=tp, ep=ep, etp=etp) for plan in pipeline.representatives)
            self._stages[key] = found
        return found

    def count(self, plan: StagePlan, *, tp: int, ep: int, etp: int) -> RankParameters:
        """Count the parameters of one rank of a stage."""
        dense = expert = matrix = trainable_dense = trainable_expert = 0.0
        pipelined = not (plan.chunks[0].embedding and plan.chunks[-1].output)
        for chunk in plan.chunks:
            for block, count in chunk.blocks.items():
                share = self._share(block, tp, ep, etp)
                dense += count * share[0]
                expert += count * share[1]
                matrix += count * share[2]
                trainable_dense += count * share[3]
                trainable_expert += count * share[4]
            if chunk.embedding or chunk.output:
                dense += self._ends(chunk, tp=tp, pipelined=pipelined)
            if chunk.mtp_layers:
                extra_dense, extra_expert, extra_matrix = shard_block(self._mtp, tp=tp, ep=ep, etp=etp)
                for block in self.mtp_blocks:
                    share = self._share(block, tp, ep, etp)
                    extra_dense += share[0]
                    extra_expert += share[1]
                    extra_matrix += share[2]
                    trainable_dense += chunk.mtp_layers * share[3]
                    trainable_expert += chunk.mtp_layers * share[4]
                dense += chunk.mtp_layers * extra_dense
                expert += chunk.mtp_layers * extra_expert
                matrix += chunk.mtp_layers * extra_matrix
        if self.adapters is None:
            return RankParameters(dense, expert, matrix, dense, expert)
        return RankParameters(dense + trainable_dense, expert + trainable_expert, matrix, trainable_dense, trainable_expert)

    def _share(self, block: Block, tp: int, ep: int, etp: int) -> tuple[float, float, float, float, float]:
        """Return (dense, expert, matrix, dense adapter, expert adapter) parameters of a block on one rank."""
        key = (block, tp, ep, etp)
        found = self._shares.get(key)
        if found is None:
            trainable = (0.0, 0.0)
            if self.adapters is not None:
                trainable = adapter_parameters(self.shape, block, self.adapters, tp=tp, ep=ep, etp=etp)
            found = (*shard_block(self._parameters[block], tp=tp, ep=ep, etp=etp), *trainable)
            self._shares[key] = found
        return found

    def _ends(self, chunk: Chunk, *, tp: int, pipelined: bool) -> float:
        """Parameters of embedding, final norm and output layer in a chunk; tied ones are held by both ends of a pipeline."""
        shape = self.shape
        table = padded_vocab(shape, tp) * shape.hidden_size / tp
        total = 0.0
        if chunk.embedding:
            total += table + position_parameters(shape)
        if chunk.output:
            total += norm_parameters(shape)
            if pipelined or not shape.share_embeddings_and_output_weights:
                total += table
            if chunk.mtp_layers and pipelined and not shape.share_embeddings_and_output_weights:
                total += table
        return total


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


def gather_bytes(parameters: RankParameters, policy: ExecutionPolicy, *, layers: int) -> float:
    """Return the unsharded weights (and gradients) of two layers at a time, under full sharding."""
    if policy.sharding not in (Sharding.FULL, Sharding.OPTIMIZER_GRADS):
        return 0.0
    weights = 2.0 if policy.sharding is Sharding.FULL else 0.0
    return 2 * parameters.total / max(1, layers) * (weights + policy.grad_bytes)


def quantized_weight_bytes(policy: ExecutionPolicy) -> float | None:
    """Bytes of one element of a linear weight that is stored quantized, or None where it is stored in 16 bits.

    MXFP8 and FP8_BLOCK keep a row-wise and a column-wise copy, since their scales do not transpose; per-tensor FP8 keeps one and
    transposes on Hopper, or reads either way on Blackwell.
    Source: Transformer Engine's quantized tensor classes (MXFP8Tensor, Float8BlockwiseQTensor, Float8Tensor). Evidence: derived.
    """
    if not policy.quantized_params:
        return None
    return {Precision.FP8: 1.0, Precision.MXFP8: 2 * (1 + 1 / 32), Precision.FP8_BLOCK: 2 * (1 + 4 / 16384)}.get(policy.precision)
