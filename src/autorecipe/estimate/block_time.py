"""Exposed and hidden seconds of one block for one micro batch: kernels, communication beside them, recomputation, launches.

Formula: device time of the block's kernels (kernels.py) + what its collectives (communication.py) leave exposed; a block
takes the larger of its device time and its launch time on the host.
Source: kernels.py and communication.py for the parts; Megatron-Core 0.16.1 for what is recomputed and gathered where.
Evidence: derived; coefficients fitted to public measurements.
Error: data/calibration/errors.json, reproduced by bench/estimators.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from autorecipe.estimate.coefficients import Coefficients
from autorecipe.estimate.communication import exchange_seconds, ring_seconds
from autorecipe.estimate.kernels import ATTENTION_BLOCKS, Seconds, block_seconds, gemm_rate, gemm_seconds
from autorecipe.estimate.tokens import Tokens, routed_tokens
from autorecipe.schema.blocks import Block, expert_width, padded_vocab
from autorecipe.schema.estimate import ExecutionPolicy, Precision
from autorecipe.schema.hardware import Gpu
from autorecipe.schema.model import ModelShape


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


class KernelTimes:
    """Seconds of the kernels of each block, without what recomputation repeats; shared by all recomputation settings.

    Args:
        shape: the model.
        policy: how a step is executed; its recomputation is not looked at.
        gpu: the GPU type.
        c: coefficients.
    """

    def __init__(self, shape: ModelShape, *, policy: ExecutionPolicy, gpu: Gpu, c: Coefficients) -> None:
        self.shape, self.policy, self.gpu, self.c = shape, policy, gpu, c
        self._known: dict[tuple[object, ...], Seconds] = {}

    def of(self, block: Block, tokens: Tokens) -> Seconds:
        """Return the seconds of one block for one micro batch, without communication."""
        key = block_key(block, tokens)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = block_seconds(self.shape, block, tokens, self.policy, self.gpu, self.c)
        return found


def block_key(block: Block, tokens: Tokens) -> tuple[object, ...]:
    """Return what the seconds of a block depend on: only experts see the expert axes."""
    key = (block, tokens.inside, tokens.outside, tokens.samples, tokens.sequence, tokens.tp)
    return (*key, tokens.ep, tokens.etp) if block is Block.MOE else key


class BlockTimes:
    """Seconds of any block with communication and recomputation; remembers what it has answered.

    Args:
        kernels: seconds of the kernels.
        policy: how a step is executed.
    """

    def __init__(self, kernels: KernelTimes, *, policy: ExecutionPolicy) -> None:
        self.kernels = kernels
        self.shape, self.gpu, self.c = kernels.shape, kernels.gpu, kernels.c
        self.policy = policy
        self._blocks: dict[float, dict[tuple[object, ...], Parts]] = {}
        self._heads: dict[tuple[float, int], Parts] = {}

    def of(self, block: Block, tokens: Tokens, repeats: float) -> Parts:
        """Return the parts of one block; `repeats` is the part of its layers that full recomputation runs twice."""
        key = block_key(block, tokens)
        known = self._blocks.setdefault(repeats, {})
        found = known.get(key)
        if found is None:
            found = known[key] = self._make(block, tokens, repeats)
        return found

    def _make(self, block: Block, tokens: Tokens, repeats: float) -> Parts:
        policy = self.policy
        seconds = self.kernels.of(block, tokens)
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
        combine = exchange_seconds(
            2.0 * sent,
            gpu=self.gpu,
            c=c,
            size=size,
            stride=stride,
            fused=fused,
            copies=copies,
            token_bytes=2.0 * expert_width(shape),
            share=policy.routed_share,
        )
        dispatch = combine * (0.5 if policy.fp8_dispatch else 1.0)
        hidden = c.ep_hidden if policy.overlap_moe else 0.0
        forward = (dispatch + combine) * (1 - hidden)
        backward = 2.0 * combine * (1 - hidden) + repeats * forward
        parts.add("ep communication", forward, backward)
        parts.hide("ep communication", (dispatch + 3.0 * combine) * hidden)

    def _host(self, parts: Parts, seconds: Seconds, *, repeats: float) -> None:
        """Add what the device waits for launches: launching a backward pass takes about 1.3 times a forward pass."""
        if not seconds.host and not seconds.idle:
            return
        wait_forward = _excess(seconds.host, parts.forward) + seconds.idle
        wait_backward = _excess((1.3 + repeats) * seconds.host, parts.backward) + repeats * seconds.idle
        parts.add("launch", wait_forward, wait_backward)

    def head(self, tokens: Tokens) -> Parts:
        """Return the parts of the output layer and the loss."""
        found = self._heads.get((tokens.inside, tokens.tp))
        if found is not None:
            return found
        parts = self._heads[(tokens.inside, tokens.tp)] = Parts()
        columns = padded_vocab(self.shape, tokens.tp) / tokens.tp
        rate = gemm_rate(self.gpu, Precision.BF16, self.c)
        forward = gemm_seconds(tokens.inside, self.shape.hidden_size, columns, rate=rate, gpu=self.gpu, width=2.0, c=self.c)
        parts.add("output layer", forward, forward * (1.0 if self.policy.adapters is not None else 2.0))
        each = {"unfused": 36.0, "native": 24.0, "te": 8.0, "in_place": 8.0, "linear": 8.0}[self.policy.cross_entropy]
        parts.add("loss", tokens.inside * columns * each / (self.gpu.hbm_bandwidth * self.c.memory), 0.0)
        return parts


def _excess(host: float, device: float) -> float:
    """Return how much longer than `device` a block takes when launching it takes `host`, rounded off around equality.

    The p-norm with p = 3 stands for the spread of kernels about their mean.
    """
    if device <= 0:
        return host
    return float((host**3 + device**3) ** (1 / 3) - device)
