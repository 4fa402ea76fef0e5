"""Time of one optimizer step of any layout: device time by part, communication exposed and hidden, bubble, optimizer.

`TimeModel` is prepared once per (shape, policy, GPU) and remembers what depends on few axes; `estimate_time` is the one-shot
form with the breakdown.

Formula: m x (slowest stage's micro batch) + (PP - 1) / VP x (average stage) + exposed data-parallel communication + optimizer
+ fixed work, times the jitter of the network. A block takes the larger of its device time and its launch time on the host.
Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2 for the bubble; kernels.py and communication.py for the parts.
Evidence: derived; coefficients fitted to public measurements.
Error: data/calibration/errors.json, reproduced by bench/estimators.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from autorecipe.estimate.activations import Tokens, count_tokens, routed_tokens
from autorecipe.estimate.blocks import Block, expert_width, padded_vocab
from autorecipe.estimate.coefficients import Coefficients, load_coefficients
from autorecipe.estimate.communication import exchange_seconds, ring_seconds
from autorecipe.estimate.flops import model_flops_per_token
from autorecipe.estimate.kernels import ATTENTION_BLOCKS, Seconds, block_seconds, gemm_rate, gemm_seconds, peak_flops
from autorecipe.estimate.memory import MemoryModel
from autorecipe.estimate.stages import Chunk, StagePlan
from autorecipe.schema.batch import Batch
from autorecipe.schema.estimate import ExecutionPolicy, FlopFormula, Precision, Sharding, TimeEstimate
from autorecipe.schema.hardware import Gpu
from autorecipe.schema.layout import Layout
from autorecipe.schema.model import ModelShape

HOST_OPTIMIZER_RATE = 0.6e9
"""Parameters that a host updates in a second for one GPU.

Source: Megatron Bridge skill card nemo-mbridge-perf-cpu-offloading, Qwen3 30B-A3B on 16 H100: 0.996 s a step without and
4.189 s with all
optimizer states on the host. Evidence: published.
"""


@dataclass(slots=True)
class Parts:
    """Seconds of one micro batch on one stage by part; `hidden` is communication that runs beside them."""

    forward: float = 0.0
    backward: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    hidden: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, forward: float, backward: float, *, times: float = 1.0) -> None:
        """Add exposed seconds of one part."""
        self.forward += times * forward
        self.backward += times * backward
        self.parts[name] = self.parts.get(name, 0.0) + times * (forward + backward)

    def hide(self, name: str, seconds: float, *, times: float = 1.0) -> None:
        """Record seconds that are hidden."""
        self.hidden[name] = self.hidden.get(name, 0.0) + times * seconds

    def merge(self, other: Parts, *, times: float = 1.0) -> None:
        """Add another block's parts."""
        self.forward += times * other.forward
        self.backward += times * other.backward
        for name, seconds in other.parts.items():
            self.parts[name] = self.parts.get(name, 0.0) + times * seconds
        for name, seconds in other.hidden.items():
            self.hidden[name] = self.hidden.get(name, 0.0) + times * seconds

    @property
    def total(self) -> float:
        """Exposed seconds."""
        return self.forward + self.backward


class TimeModel:
    """The step time of one shape under one policy on one GPU type.

    Args:
        shape: the model.
        policy: how a step is executed.
        gpu: the GPU type.
        coefficients: fitted numbers; None for those of this release.
        memory: a prepared memory model of the same shape and policy, to share its counts.
    """

    def __init__(
        self,
        shape: ModelShape,
        *,
        policy: ExecutionPolicy,
        gpu: Gpu,
        coefficients: Coefficients | None = None,
        memory: MemoryModel | None = None,
    ) -> None:
        self.shape = shape
        self.policy = policy
        self.gpu = gpu
        self.c = coefficients or load_coefficients()
        self.memory = memory or MemoryModel(shape, policy=policy)
        self._blocks: dict[tuple[Block, Tokens, float], Parts] = {}
        self._stages: dict[tuple[object, ...], tuple[Parts, ...]] = {}
        self._states: dict[tuple[int, ...], tuple[float, float, float, float]] = {}

    def step_seconds(self, layout: Layout, batch: Batch, world_size: int) -> float:
        """Return the expected step time; the hot path of a search (positional on purpose)."""
        return sum(self._step(layout, batch, world_size)[0].values())

    def _step(self, layout: Layout, batch: Batch, world_size: int) -> tuple[dict[str, float], dict[str, float], int, float]:
        dp = max(1, world_size // (layout.tp * layout.pp * layout.cp))
        microbatches = max(1.0, batch.global_batch_size / (batch.micro_batch_size * dp))
        stages = self._stage_parts(layout, batch, world_size)
        slowest = max(stages, key=lambda parts: parts.total)
        average = sum(parts.total for parts in stages) / len(stages)
        exposed = {name: microbatches * seconds for name, seconds in slowest.parts.items()}
        hidden = {name: microbatches * seconds for name, seconds in slowest.hidden.items()}
        bubble = (layout.pp - 1) / layout.vp * average
        exposed["bubble"] = bubble
        sync, sync_hidden = self._data_parallel(layout, world_size, slowest)
        exposed["dp communication"] = sync
        hidden["dp communication"] = hidden.get("dp communication", 0.0) + sync_hidden
        exposed["optimizer"] = self._optimizer(layout, world_size)
        exposed["fixed"] = self.c.step_seconds
        nodes = max(1, -(-world_size // self.gpu.gpus_per_node))
        exposed["jitter"] = sum(exposed.values()) * self.c.jitter * math.log2(nodes)
        return exposed, hidden, round(microbatches), bubble

    def _stage_parts(self, layout: Layout, batch: Batch, world_size: int) -> tuple[Parts, ...]:
        """Return the seconds of one micro batch on each stage that differs from the others."""
        fsdp_ranks = world_size // (layout.tp * layout.pp) if self.policy.sharding is Sharding.FULL else 0
        stride = max(1, world_size // layout.pp)
        key = (
            stride * 2 <= self.gpu.nvlink_domain_size,
            layout.tp,
            layout.pp,
            layout.vp,
            layout.cp,
            layout.ep,
            layout.etp,
            layout.sequence_parallel,
            batch.micro_batch_size,
            batch.seq_length,
            fsdp_ranks,
        )
        found = self._stages.get(key)
        if found is not None:
            return found
        tokens = count_tokens(layout, batch)
        shared = replace(tokens, ep=1, etp=1)  # only experts see the expert axes: the rest is remembered across them
        stages = []
        for plan in self.memory.representatives(layout.pp, layout.vp):
            stage = Parts()
            for chunk, times in self.memory.distinct_chunks(plan, layout):
                repeats = self._repeated(chunk)
                for block, count in chunk.blocks.items():
                    own = tokens if block is Block.MOE else shared
                    stage.merge(self._block(block, own, repeats), times=times * count)
                if chunk.output:
                    self._head(stage, tokens, times=1.0)
                if chunk.mtp_layers:
                    for block in self.memory.mtp_blocks:
                        own = tokens if block is Block.MOE else shared
                        stage.merge(self._block(block, own, repeats), times=chunk.mtp_layers)
                    self._head(stage, tokens, times=chunk.mtp_layers)
            self._pipeline(stage, layout, tokens, stride=stride)
            if fsdp_ranks > 1:
                self._fsdp(stage, plan, layout, world_size)
            stages.append(stage)
        self._stages[key] = tuple(stages)
        return self._stages[key]

    def _repeated(self, chunk: Chunk) -> float:
        """Part of a chunk's layers that full recomputation runs twice."""
        recompute = self.policy.recompute
        if not recompute.is_full:
            return 0.0
        if recompute.method == "block":
            return min(1.0, recompute.num_layers / chunk.layers) if chunk.layers else 0.0
        return 1.0

    def _block(self, block: Block, tokens: Tokens, repeats: float) -> Parts:
        found = self._blocks.get((block, tokens, repeats))
        if found is not None:
            return found
        policy, c = self.policy, self.c
        seconds = block_seconds(self.shape, block, tokens, policy, self.gpu, c)
        parts = Parts()
        name = "attention" if block in ATTENTION_BLOCKS else "scan"
        again = self._recomputed(block, seconds, repeats)
        parts.add("gemm", seconds.gemm_forward, seconds.gemm_backward + again.gemm_forward)
        if seconds.attention_forward:
            parts.add(name, seconds.attention_forward, seconds.attention_backward + again.attention_forward)
        parts.add("pointwise", seconds.pointwise_forward, seconds.pointwise_backward + again.pointwise_forward)
        self._tensor_parallel(parts, block, tokens, repeats=repeats)
        if block in ATTENTION_BLOCKS and tokens.cp > 1:
            self._context_parallel(parts, block, tokens, seconds, repeats=repeats)
        if block is Block.MOE and tokens.ep * tokens.etp > 1:
            self._expert_parallel(parts, tokens, repeats=1.0 if "moe" in policy.recompute.modules else repeats)
        self._host(parts, seconds, repeats=repeats)
        self._blocks[(block, tokens, repeats)] = parts
        return parts

    def _recomputed(self, block: Block, seconds: Seconds, repeats: float) -> Seconds:
        """Seconds of the forward work that the backward pass repeats; `repeats` is the part of layers recomputed as a whole."""
        modules, again = self.policy.recompute.modules, Seconds()
        if repeats:
            return Seconds(
                gemm_forward=repeats * seconds.gemm_forward,
                attention_forward=repeats * seconds.attention_forward,
                pointwise_forward=repeats * seconds.pointwise_forward,
            )
        if (block is Block.MLP and "mlp" in modules) or (block is Block.MOE and "moe" in modules):
            return Seconds(
                gemm_forward=seconds.gemm_forward,
                attention_forward=seconds.attention_forward,
                pointwise_forward=seconds.pointwise_forward,
            )
        if block in ATTENTION_BLOCKS and "core_attn" in modules:
            again.attention_forward = seconds.attention_forward
        if block is Block.MLA and "mla_up_proj" in modules:
            again.gemm_forward = 0.4 * seconds.gemm_forward
        if "layernorm" in modules:
            again.pointwise_forward += 0.15 * seconds.pointwise_forward
        if block is Block.MOE and "moe_act" in modules:
            again.pointwise_forward += 0.25 * seconds.pointwise_forward
        return again

    def _tensor_parallel(self, parts: Parts, block: Block, tokens: Tokens, *, repeats: float) -> None:
        shape, policy = self.shape, self.policy
        if tokens.tp <= 1 or (block is Block.MOE and not shape.moe_shared_expert_intermediate_size):
            return
        # Overlapped gathers move quantized operands; reductions stay in 16 bits.
        width = 1.5 if policy.tp_comm_overlap and policy.precision.is_quantized else 2.0
        whole = width * tokens.inside * shape.hidden_size
        one = ring_seconds(whole, gpu=self.gpu, c=self.c, size=tokens.tp, stride=1)
        hidden = self.c.tp_hidden if policy.tp_comm_overlap else 0.0
        forward = 2.0 * one
        backward = (2.0 + 2.0 * repeats) * one
        parts.add("tp communication", forward * (1 - hidden), backward * (1 - hidden))
        parts.hide("tp communication", (forward + backward) * hidden + one)

    def _context_parallel(self, parts: Parts, block: Block, tokens: Tokens, seconds: Seconds, *, repeats: float) -> None:
        shape, policy = self.shape, self.policy
        if block is Block.MLA:
            kv = (
                shape.num_attention_heads
                * ((shape.qk_head_dim or 128) + (shape.qk_pos_emb_head_dim or 64) + (shape.v_head_dim or 128))
                / 2
            )
            q = shape.num_attention_heads * (shape.v_head_dim or 128)
        else:
            kv, q = shape.num_query_groups * shape.kv_channels, shape.num_attention_heads * shape.kv_channels
        gathers = 2.0 * tokens.inside * 2.0 * kv / tokens.tp * tokens.cp
        if policy.cp_comm_type == "a2a":
            moved = 2.0 * tokens.inside * (2.0 * q + 2.0 * kv) / tokens.tp
            one = exchange_seconds(moved, gpu=self.gpu, c=self.c, size=tokens.cp, stride=tokens.tp, fused=False)
            parts.add("cp communication", one, (1.0 + repeats) * one)
            return
        one = ring_seconds(gathers, gpu=self.gpu, c=self.c, size=tokens.cp, stride=tokens.tp)
        one += self.c.collective_seconds * max(0, tokens.cp - 2)
        cover = self.c.cp_hidden if policy.cp_comm_type in ("p2p", "a2a+p2p") else 0.0
        forward = max(0.1 * one, one - cover * seconds.attention_forward)
        backward = max(0.2 * one, 2.0 * one - cover * seconds.attention_backward) + repeats * forward
        parts.add("cp communication", forward, backward)
        parts.hide("cp communication", max(0.0, 3.0 * one - forward - backward))

    def _expert_parallel(self, parts: Parts, tokens: Tokens, *, repeats: float) -> None:
        shape, policy, c = self.shape, self.policy, self.c
        fused = policy.dispatcher in ("deepep", "hybridep")
        copies = float(shape.moe_router_topk or 1)
        sent = routed_tokens(shape, tokens, policy) / tokens.etp * expert_width(shape)
        size, stride = tokens.ep * tokens.etp, 1
        combine = exchange_seconds(2.0 * sent, gpu=self.gpu, c=c, size=size, stride=stride, fused=fused, copies=copies)
        dispatch = combine * (0.5 if policy.fp8_dispatch else 1.0)
        hidden = c.ep_hidden if policy.overlap_moe else 0.0
        forward = (dispatch + combine) * (1 - hidden)
        backward = 2.0 * combine * (1 - hidden) + repeats * forward
        parts.add("ep communication", forward, backward)
        parts.hide("ep communication", (dispatch + 3.0 * combine) * hidden)

    def _host(self, parts: Parts, seconds: Seconds, *, repeats: float) -> None:
        """Add what the device waits for launches: launching a backward pass takes about 1.3 times a forward pass."""
        if self.policy.cuda_graph == "full":
            return
        host = seconds.host
        if self.policy.cuda_graph != "none":
            host *= 1 - self.c.graph_saving
        host += seconds.host_experts
        wait_forward = _excess(host, parts.forward)
        wait_backward = _excess((1.3 + repeats) * host, parts.backward)
        parts.add("launch", wait_forward, wait_backward)

    def _head(self, stage: Parts, tokens: Tokens, *, times: float) -> None:
        columns = padded_vocab(self.shape, tokens.tp) / tokens.tp
        rate = gemm_rate(self.gpu, Precision.BF16, self.c)
        forward = gemm_seconds(tokens.inside, self.shape.hidden_size, columns, rate=rate, gpu=self.gpu, width=2.0, c=self.c)
        stage.add("output layer", forward, forward * (1.0 if self.policy.adapters is not None else 2.0), times=times)
        each = {"unfused": 36.0, "native": 24.0, "te": 8.0, "linear": 8.0}[self.policy.cross_entropy]
        stage.add("loss", tokens.inside * columns * each / (self.gpu.hbm_bandwidth * self.c.memory), 0.0, times=times)

    def _pipeline(self, stage: Parts, layout: Layout, tokens: Tokens, *, stride: int) -> None:
        if layout.pp == 1:
            return
        sent = 2.0 * tokens.outside * self.shape.hidden_size
        reach = self.gpu.nvlink_domain_size / (2 * stride)
        near = self.gpu.nvlink_bandwidth * self.c.nvlink
        far = min(near, self.gpu.network_bandwidth * self.c.network)
        one = sent / (near if reach >= 1 else far) + self.c.collective_seconds
        exposed = 0.15 if self.policy.overlap_p2p and layout.vp > 1 else 1.0
        stage.add("pp communication", one * exposed, one * exposed, times=layout.vp)
        stage.hide("pp communication", 2.0 * one * (1 - exposed), times=layout.vp)

    def _counts(self, layout: Layout, world_size: int) -> tuple[float, float, float, float]:
        """Return the largest stage's (dense, expert, trainable dense, trainable expert) parameters on one rank."""
        key = (layout.tp, layout.pp, layout.vp, layout.ep, layout.etp)
        found = self._states.get(key)
        if found is None:
            counts = [
                self.memory.stage_parameters(plan, tp=layout.tp, ep=layout.ep, etp=layout.etp)
                for plan in self.memory.representatives(layout.pp, layout.vp)
            ]
            worst = max(counts, key=lambda count: count.total)
            found = (worst.dense, worst.expert, worst.trainable_dense, worst.trainable_expert)
            self._states[key] = found
        return found

    def _data_parallel(self, layout: Layout, world_size: int, slowest: Parts) -> tuple[float, float]:
        """Return (exposed, hidden) seconds of gradient reduction and parameter gathering of one step."""
        policy = self.policy
        if policy.sharding is Sharding.FULL:
            return 0.0, 0.0
        _, _, dense, expert = self._counts(layout, world_size)
        dense_ranks = world_size // (layout.tp * layout.pp)
        expert_ranks = world_size // (layout.pp * layout.ep * layout.etp)
        weight = 1.0 if policy.quantized_params else 2.0
        reduce = self._ring(dense * policy.grad_bytes, dense_ranks, layout.tp)
        reduce += self._ring(expert * policy.grad_bytes, expert_ranks, layout.ep * layout.etp)
        gather = self._ring(dense * weight, dense_ranks, layout.tp) + self._ring(
            expert * weight, expert_ranks, layout.ep * layout.etp
        )
        if policy.sharding is Sharding.REPLICATED:
            gather = reduce
        cover_backward = self.c.dp_hidden * slowest.backward if policy.overlap_grad_reduce else 0.0
        cover_forward = self.c.dp_hidden * slowest.forward if policy.overlap_param_gather else 0.0
        exposed = max(0.05 * reduce, reduce - cover_backward) + max(0.05 * gather, gather - cover_forward)
        return exposed, reduce + gather - exposed

    def _ring(self, num_bytes: float, size: int, stride: int) -> float:
        return ring_seconds(num_bytes, gpu=self.gpu, c=self.c, size=size, stride=stride)

    def _fsdp(self, stage: Parts, plan: StagePlan, layout: Layout, world_size: int) -> None:
        """Add gathers and reductions that full sharding makes for every micro batch."""
        counts = self.memory.stage_parameters(plan, tp=layout.tp, ep=layout.ep, etp=layout.etp)
        dense_ranks = world_size // (layout.tp * layout.pp)
        expert_ranks = max(1, world_size // (layout.pp * layout.ep * layout.etp))
        weight = 1.0 if self.policy.quantized_params else 2.0
        gather = self._ring(counts.dense * weight, dense_ranks, layout.tp)
        gather += self._ring(counts.expert * weight, expert_ranks, layout.ep * layout.etp)
        reduce = self._ring(counts.trainable_dense * self.policy.grad_bytes, dense_ranks, layout.tp)
        reduce += self._ring(counts.trainable_expert * self.policy.grad_bytes, expert_ranks, layout.ep * layout.etp)
        forward = max(0.05 * gather, gather - self.c.dp_hidden * stage.forward)
        backward = max(0.05 * (gather + reduce), gather + reduce - self.c.dp_hidden * stage.backward)
        hidden = 2.0 * gather + reduce - forward - backward
        stage.add("dp communication", forward, backward)
        stage.hide("dp communication", max(0.0, hidden))

    def _optimizer(self, layout: Layout, world_size: int) -> float:
        policy = self.policy
        _, _, dense, expert = self._counts(layout, world_size)
        own_dense, own_expert = dense, expert
        if policy.sharding is not Sharding.REPLICATED:
            own_dense /= max(1, world_size // (layout.tp * layout.pp))
            own_expert /= max(1, world_size // (layout.pp * layout.ep * layout.etp))
        own = own_dense + own_expert
        device = own * (1 - policy.optimizer_offload)
        moved = device * (2 * (policy.master_bytes + policy.moment_bytes) + policy.grad_bytes + 4.0)
        moved += (dense + expert) * policy.grad_bytes * 1.5
        return moved / (self.gpu.hbm_bandwidth * self.c.optimizer) + own * policy.optimizer_offload / HOST_OPTIMIZER_RATE


def _excess(host: float, device: float) -> float:
    """Return how much longer than `device` a block takes when launching it takes `host`, rounded off around equality.

    The p-norm with p = 3 stands for the spread of kernels about their mean.
    """
    if device <= 0:
        return host
    return float((host**3 + device**3) ** (1 / 3) - device)


def estimate_time(
    shape: ModelShape,
    *,
    layout: Layout,
    batch: Batch,
    policy: ExecutionPolicy,
    gpu: Gpu,
    world_size: int,
    formula: FlopFormula = FlopFormula.MEGATRON,
    assumptions: tuple[str, ...] = (),
    coefficients: Coefficients | None = None,
) -> TimeEstimate:
    """Estimate the time of one optimizer step.

    Args:
        shape: the model.
        layout: parallel layout.
        batch: batch sizes and sequence.
        policy: how a step is executed.
        gpu: the GPU type.
        world_size: GPUs of the run.
        formula: which FLOPs count as work in TFLOP/s and MFU.
        assumptions: what the caller assumed; passed through.
        coefficients: fitted numbers; None for those of this release.

    Returns:
        the estimate; `error` and the interval are filled in by the caller that knows the published errors.
    """
    model = TimeModel(shape, policy=policy, gpu=gpu, coefficients=coefficients)
    exposed, hidden, microbatches, bubble = model._step(layout, batch, world_size)
    step = sum(exposed.values())
    tokens = batch.tokens_per_step / step / world_size
    per_token = model_flops_per_token(shape, sequence=batch.seq_length, formula=formula, frozen=policy.adapters is not None)
    peak, name = peak_flops(gpu, policy.precision)
    return TimeEstimate(
        step_seconds=step,
        interval_seconds=(step, step),
        breakdown_seconds=exposed,
        hidden_seconds=hidden,
        tokens_per_second_per_gpu=tokens,
        flops_per_token=per_token,
        tflops_per_gpu=tokens * per_token / 1e12,
        mfu=tokens * per_token / peak,
        mfu_precision=name,
        flop_formula=formula,
        bubble_fraction=bubble / step,
        num_microbatches=microbatches,
        assumptions=assumptions,
    )
