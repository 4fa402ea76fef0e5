"""Seconds of what stages and replicas do together: transfers between stages, gradient reduction and parameter gathering, the
optimizer.

Formula: ring and point-to-point times of communication.py, less what one forward and one backward pass can hide; the
optimizer moves the bytes of its states and gradients through memory.
Source: Megatron-Core 0.16.1 schedules.py, distributed_data_parallel.py and distrib_optimizer.py for what is moved when.
Evidence: derived; coefficients fitted to public measurements.
Error: data/calibration/errors.json, reproduced by bench/estimators.py.
"""

from __future__ import annotations

from autorecipe.estimate.block_time import Parts
from autorecipe.estimate.coefficients import Coefficients
from autorecipe.estimate.communication import ring_seconds
from autorecipe.estimate.stages import Pipeline
from autorecipe.estimate.states import RankCounter, RankParameters
from autorecipe.estimate.tokens import Tokens
from autorecipe.schema.estimate import ExecutionPolicy, Sharding
from autorecipe.schema.hardware import Gpu
from autorecipe.schema.layout import Layout

HOST_OPTIMIZER_RATE = 0.6e9
"""Parameters that a host updates in a second for one GPU.

Source: Megatron Bridge skill card nemo-mbridge-perf-cpu-offloading, Qwen3 30B-A3B on 16 H100: 0.996 s a step without and
4.189 s with all optimizer states on the host. Evidence: published.
"""


class StepTimes:
    """Work that belongs to no block.

    Args:
        counter: parameters of each rank.
        policy: how a step is executed.
        gpu: the GPU type.
        c: coefficients.
    """

    def __init__(self, counter: RankCounter, *, policy: ExecutionPolicy, gpu: Gpu, c: Coefficients) -> None:
        self.counter, self.policy, self.gpu, self.c = counter, policy, gpu, c
        self.shards_weights = policy.sharding is Sharding.FULL
        self._worst: dict[tuple[object, ...], RankParameters] = {}
        self._sync: dict[tuple[object, ...], tuple[float, float]] = {}
        self._sends: dict[tuple[object, ...], Parts] = {}

    def pipeline(self, layout: Layout, tokens: Tokens, world_size: int) -> Parts:
        """Return transfers between stages for one micro batch."""
        stride = max(1, world_size // layout.pp)
        is_near = 2 * stride <= self.gpu.nvlink_domain_size
        key = (tokens.outside, layout.pp > 1, layout.vp, is_near)
        found = self._sends.get(key)
        if found is not None:
            return found
        parts = self._sends[key] = Parts()
        if layout.pp == 1:
            return parts
        sent = 2.0 * tokens.outside * self.counter.shape.hidden_size
        near = self.gpu.nvlink_bandwidth * self.c.nvlink
        far = min(near, self.gpu.network_bandwidth * self.c.network)
        one = sent / (near if is_near else far) + self.c.collective_seconds
        exposed = 0.15 if self.policy.overlap_p2p and layout.vp > 1 else 1.0
        parts.add("pp communication", one * exposed, one * exposed, times=layout.vp)
        parts.hide("pp communication", 2.0 * one * (1 - exposed), times=layout.vp)
        return parts

    def data_parallel(
        self, layout: Layout, world_size: int, pipeline: Pipeline, *, forward: float, backward: float
    ) -> tuple[float, float]:
        """Return (exposed, hidden) seconds of gradient reduction and parameter gathering of one step.

        Args:
            layout: parallel layout.
            world_size: GPUs.
            pipeline: stages.
            forward: seconds of one forward pass of the slowest stage, beside which parameters are gathered.
            backward: the same of a backward pass, beside which gradients are reduced.
        """
        policy = self.policy
        if self.shards_weights:
            return 0.0, 0.0
        reduce, gather = self._moved(layout, world_size, pipeline)
        cover_backward = self.c.dp_hidden * backward if policy.overlap_grad_reduce else 0.0
        cover_forward = self.c.dp_hidden * forward if policy.overlap_param_gather else 0.0
        exposed = max(0.05 * reduce, reduce - cover_backward) + max(0.05 * gather, gather - cover_forward)
        return exposed, reduce + gather - exposed

    def _moved(self, layout: Layout, world_size: int, pipeline: Pipeline) -> tuple[float, float]:
        """Return seconds of (reducing gradients, gathering parameters) on the fullest stage."""
        key = (pipeline, layout.tp, layout.ep, layout.etp, world_size)
        found = self._sync.get(key)
        if found is None:
            counts = self._fullest(layout, pipeline)
            weight = 1.0 if self.policy.quantized_params else 2.0
            reduce = self._rings(layout, world_size, counts, self.policy.grad_bytes)
            gather = reduce if self.policy.sharding is Sharding.REPLICATED else self._rings(layout, world_size, counts, weight)
            found = self._sync[key] = (reduce, gather)
        return found

    def _rings(self, layout: Layout, world_size: int, counts: RankParameters, width: float) -> float:
        """Return seconds of moving trainable parameters of `width` bytes around their groups, dense and experts apart."""
        dense_ranks, expert_ranks = world_size // (layout.tp * layout.pp), world_size // (layout.pp * layout.ep * layout.etp)
        dense = self._ring(counts.trainable_dense * width, dense_ranks, layout.tp)
        return dense + self._ring(counts.trainable_expert * width, expert_ranks, layout.ep * layout.etp)

    def _ring(self, num_bytes: float, size: int, stride: int) -> float:
        return ring_seconds(num_bytes, gpu=self.gpu, c=self.c, size=size, stride=stride)

    def fsdp(self, index: int, layout: Layout, world_size: int, pipeline: Pipeline, *, forward: float, backward: float) -> Parts:
        """Return gathers and reductions that full sharding makes for every micro batch, beside a stage's two passes."""
        parts = Parts()
        dense_ranks = world_size // (layout.tp * layout.pp)
        if dense_ranks <= 1:
            return parts
        counts = self.counter.by_representative(pipeline, tp=layout.tp, ep=layout.ep, etp=layout.etp)[index]
        expert_ranks = max(1, world_size // (layout.pp * layout.ep * layout.etp))
        weight = 1.0 if self.policy.quantized_params else 2.0
        gather = self._ring(counts.dense * weight, dense_ranks, layout.tp)
        gather += self._ring(counts.expert * weight, expert_ranks, layout.ep * layout.etp)
        reduce = self._rings(layout, world_size, counts, self.policy.grad_bytes)
        shown_forward = max(0.05 * gather, gather - self.c.dp_hidden * forward)
        shown_backward = max(0.05 * (gather + reduce), gather + reduce - self.c.dp_hidden * backward)
        parts.add("dp communication", shown_forward, shown_backward)
        parts.hide("dp communication", max(0.0, 2.0 * gather + reduce - shown_forward - shown_backward))
        return parts

    def optimizer(self, layout: Layout, world_size: int, pipeline: Pipeline) -> float:
        """Return seconds of the optimizer step: its states, gradients and weights through memory, and norms of gradients."""
        policy = self.policy
        counts = self._fullest(layout, pipeline)
        own_dense, own_expert = counts.trainable_dense, counts.trainable_expert
        if policy.sharding is not Sharding.REPLICATED:
            own_dense /= max(1, world_size // (layout.tp * layout.pp))
            own_expert /= max(1, world_size // (layout.pp * layout.ep * layout.etp))
        own = own_dense + own_expert
        device = own * (1 - policy.optimizer_offload)
        moved = device * (2 * (policy.master_bytes + policy.moment_bytes) + policy.grad_bytes + 4.0)
        moved += (counts.trainable_dense + counts.trainable_expert) * policy.grad_bytes * 1.5
        return moved / (self.gpu.hbm_bandwidth * self.c.optimizer) + own * policy.optimizer_offload / HOST_OPTIMIZER_RATE

    def _fullest(self, layout: Layout, pipeline: Pipeline) -> RankParameters:
        """Return the parameters of one rank of the stage that holds most."""
        key = (pipeline, layout.tp, layout.ep, layout.etp)
        found = self._worst.get(key)
        if found is None:
            counts = self.counter.by_representative(pipeline, tp=layout.tp, ep=layout.ep, etp=layout.etp)
            found = self._worst[key] = max(counts, key=lambda count: count.total)
        return found
