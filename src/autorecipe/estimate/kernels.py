"""Seconds of the kernels that one block runs for one micro batch on one GPU.

Formula: products max(FLOPs / (peak x efficiency), bytes / bandwidth) + fill; attention FLOPs / (peak x efficiency x S / (S +
S0)); pointwise kernels bytes / (bandwidth x efficiency). A backward pass does each product twice and attention 2.5 times.
Source: roofline model, Williams et al. 2009; flash attention's backward work, Dao 2023 (arXiv 2307.08691), section 3.
Evidence: derived; the efficiencies are fitted to public measurements (coefficients.py).
Error: printed by bench/estimators.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from autorecipe.estimate.activations import Tokens, routed_tokens
from autorecipe.estimate.blocks import (
    Block,
    expert_width,
    linear_attention_sizes,
    mamba_sizes,
)
from autorecipe.estimate.coefficients import Coefficients
from autorecipe.estimate.flops import attended_tokens, block_flops
from autorecipe.schema.estimate import ExecutionPolicy, Precision
from autorecipe.schema.hardware import Gpu
from autorecipe.schema.model import ModelShape

ATTENTION_BLOCKS = (Block.ATTENTION, Block.WINDOW_ATTENTION, Block.MLA)


@dataclass(slots=True)
class Seconds:
    """Seconds of a block, forward and backward apart; `host` is the time to launch the forward pass."""

    gemm_forward: float = 0.0
    gemm_backward: float = 0.0
    attention_forward: float = 0.0
    attention_backward: float = 0.0
    pointwise_forward: float = 0.0
    pointwise_backward: float = 0.0
    host: float = 0.0

    @property
    def forward(self) -> float:
        """Device time of the forward pass."""
        return self.gemm_forward + self.attention_forward + self.pointwise_forward

    @property
    def backward(self) -> float:
        """Device time of the backward pass."""
        return self.gemm_backward + self.attention_backward + self.pointwise_backward


def architecture(gpu: Gpu) -> str:
    """Return `ampere`, `hopper` or `blackwell` from the compute capability (later ones count as Blackwell)."""
    major = int(float(gpu.compute_capability))
    return "ampere" if major <= 8 else "hopper" if major == 9 else "blackwell"


def peak_flops(gpu: Gpu, precision: Precision) -> tuple[float, str]:
    """Return (dense peak FLOP/s, precision id of that peak); precisions that a GPU lacks fall back to the next wider one."""
    order = {
        Precision.NVFP4: ("nvfp4", "mxfp8", "fp8", "bf16"),
        Precision.MXFP8: ("mxfp8", "fp8", "bf16"),
        Precision.FP8: ("fp8", "bf16"),
        Precision.FP8_BLOCK: ("fp8", "bf16"),
        Precision.FP32: ("fp32", "tf32", "bf16"),
    }.get(precision, ("bf16", "fp16"))
    for name in order:
        if name in gpu.peak_flops:
            return gpu.peak_flops[name], name
    raise KeyError(f"{gpu.name} has no peak for {precision.value}")


def gemm_rate(gpu: Gpu, precision: Precision, c: Coefficients) -> float:
    """Return the FLOP/s that large products reach."""
    peak, name = peak_flops(gpu, precision)
    kind = architecture(gpu)
    if kind == "ampere":
        return peak * c.gemm_ampere_bf16
    if kind == "hopper":
        return peak * (c.gemm_hopper_bf16 if name in ("bf16", "fp16", "fp32", "tf32") else c.gemm_hopper_fp8)
    efficiency = {"nvfp4": c.gemm_blackwell_nvfp4, "mxfp8": c.gemm_blackwell_mxfp8, "fp8": c.gemm_blackwell_fp8}
    return peak * efficiency.get(name, c.gemm_blackwell_bf16)


def gemm_seconds(
    rows: float, inner: float, columns: float, *, rate: float, gpu: Gpu, width: float, c: Coefficients, count: int = 1
) -> float:
    """Seconds of `count` products [rows, inner] x [inner, columns] of equal shape that one launch runs.

    Args:
        rows: tokens of each product.
        inner: contracted size.
        columns: outputs.
        rate: FLOP/s of large products.
        gpu: for its memory bandwidth.
        width: bytes of one operand element.
        c: coefficients.
        count: products in the launch (experts of a grouped product).
    """
    if rows <= 0 or inner <= 0 or columns <= 0:
        return 0.0
    tiled = -(-rows // 128) * 128 if count > 1 else rows
    compute = 2.0 * count * tiled * inner * columns / rate
    moved = count * (width * (rows * inner + inner * columns) + 2.0 * rows * columns)
    return max(compute, moved / (gpu.hbm_bandwidth * 0.85)) + c.gemm_fill_seconds


def block_seconds(shape: ModelShape, block: Block, tokens: Tokens, policy: ExecutionPolicy, gpu: Gpu, c: Coefficients) -> Seconds:
    """Return the seconds of one block for one micro batch, without communication."""
    out = Seconds()
    bandwidth = gpu.hbm_bandwidth * c.memory
    frozen = policy.adapters is not None
    for rows, inner, columns, count in _products(shape, block, tokens, policy):
        precision = policy.precision
        rate = gemm_rate(gpu, precision, c) * (c.grouped if count > 1 else 1.0)
        width = 1.0 if precision.is_quantized else 2.0
        forward = gemm_seconds(rows, inner, columns, rate=rate, gpu=gpu, width=width, c=c, count=count)
        out.gemm_forward += forward
        out.gemm_backward += forward * (1.0 if frozen else 2.0)
        if precision.is_quantized:
            passes = 2.0 * c.quantize / bandwidth
            out.pointwise_forward += passes * count * rows * inner
            out.pointwise_backward += passes * count * rows * columns
    _attention_and_scans(shape, block, tokens, gpu, c, out)
    h = shape.hidden_size
    passes = c.layer_passes * 2.0 * tokens.outside * h
    if block is Block.MOE:
        passes += (
            c.moe_passes
            * 2.0
            * routed_tokens(shape, tokens, policy)
            * expert_width(shape)
            * (0.6 if policy.permute_fusion else 1.0)
        )
        passes += 16.0 * tokens.outside * (shape.num_moe_experts or 0)
    passes += 2.0 * _activation_elements(shape, block, tokens, policy)
    out.pointwise_forward += passes / bandwidth
    out.pointwise_backward += 1.7 * passes / bandwidth
    out.host = {
        Block.MOE: c.host_moe_seconds,
        Block.MAMBA: c.host_recurrent_seconds,
        Block.LINEAR_ATTENTION: c.host_recurrent_seconds,
    }.get(block, c.host_block_seconds)
    return out


def _products(
    shape: ModelShape, block: Block, tokens: Tokens, policy: ExecutionPolicy
) -> tuple[tuple[float, float, float, int], ...]:
    """Return (rows, inner, columns, count) of each product of a block on one rank."""
    h, t, tp = shape.hidden_size, tokens.inside, tokens.tp
    if block in (Block.ATTENTION, Block.WINDOW_ATTENTION):
        q, kv = shape.num_attention_heads * shape.kv_channels, shape.num_query_groups * shape.kv_channels
        qkv = q * (2 if shape.attention_output_gate else 1) + 2 * kv
        return ((t, h, qkv / tp, 1), (t, q / tp, h, 1))
    if block is Block.MLA:
        return _mla_products(shape, tokens)
    if block is Block.MAMBA:
        inner, groups = mamba_sizes(shape)
        return ((t, h, (2 * inner + groups) / tp, 1), (t, inner / tp, h, 1))
    if block is Block.LINEAR_ATTENTION:
        keys, values = linear_attention_sizes(shape)
        return ((t, h, (2 * keys + 2 * values) / tp, 1), (t, values / tp, h, 1))
    gates = 2 if shape.gated_linear_unit else 1
    if block is Block.MLP:
        f = shape.ffn_hidden_size / tp
        return ((t, h, gates * f, 1), (t, f, h, 1))
    width, f = expert_width(shape), (shape.moe_ffn_hidden_size or shape.ffn_hidden_size) / tokens.etp
    local = max(1, (shape.num_moe_experts or 1) // tokens.ep)
    rows = routed_tokens(shape, tokens, policy) / local
    products = [(rows, width, gates * f, local), (rows, f, width, local)]
    if shape.moe_shared_expert_intermediate_size:
        shared = shape.moe_shared_expert_intermediate_size / tp
        products += [(t, h, gates * shared, 1), (t, shared, h, 1)]
    if shape.moe_latent_size:
        products += [(tokens.outside, h, width, 1), (tokens.outside, width, h, 1)]
    return tuple(products)


def _mla_products(shape: ModelShape, tokens: Tokens) -> tuple[tuple[float, float, float, int], ...]:
    h, t, n, tp, heads = shape.hidden_size, tokens.inside, tokens.outside, tokens.tp, shape.num_attention_heads
    key, value = (shape.qk_head_dim or 128) + (shape.qk_pos_emb_head_dim or 64), shape.v_head_dim or 128
    latent, rope = shape.kv_lora_rank or 512, shape.qk_pos_emb_head_dim or 64
    products: list[tuple[float, float, float, int]] = [
        (n, h, latent + rope, 1),
        (t, latent, heads * ((shape.qk_head_dim or 128) + value) / tp, 1),
        (t, heads * value / tp, h, 1),
    ]
    if shape.q_lora_rank:
        products += [(n, h, shape.q_lora_rank, 1), (t, shape.q_lora_rank, heads * key / tp, 1)]
    else:
        products.append((t, h, heads * key / tp, 1))
    return tuple(products)


def _attention_and_scans(shape: ModelShape, block: Block, tokens: Tokens, gpu: Gpu, c: Coefficients, out: Seconds) -> None:
    flops = block_flops(shape, block, tokens.sequence)
    peak = gpu.peak_flops["bf16"]
    if block in ATTENTION_BLOCKS:
        met = attended_tokens(shape, block, tokens.sequence)
        fill = met / (met + c.attention_fill_tokens / 2)
        scale = c.attention_blackwell if architecture(gpu) == "blackwell" else 1.0
        work = flops.attention * tokens.inside / tokens.tp / (peak * scale * fill)
        out.attention_forward = work / c.attention_forward
        out.attention_backward = 2.5 * work / c.attention_backward
    if flops.scan:
        work = flops.scan * tokens.inside / tokens.tp / (peak * c.scan)
        out.attention_forward += work
        out.attention_backward += 2.5 * work


def _activation_elements(shape: ModelShape, block: Block, tokens: Tokens, policy: ExecutionPolicy) -> float:
    """Elements that activation functions, convolutions and gates read and write."""
    gates = 2 if shape.gated_linear_unit else 1
    if block is Block.MLP:
        return tokens.inside * (gates + 1) * shape.ffn_hidden_size / tokens.tp
    if block is Block.MOE:
        f = (shape.moe_ffn_hidden_size or shape.ffn_hidden_size) / tokens.etp
        shared = (shape.moe_shared_expert_intermediate_size or 0) / tokens.tp
        return (gates + 1) * (routed_tokens(shape, tokens, policy) * f + tokens.inside * shared)
    if block is Block.MAMBA:
        inner, groups = mamba_sizes(shape)
        return tokens.inside * 2 * (3 * inner + groups) / tokens.tp
    if block is Block.LINEAR_ATTENTION:
        keys, values = linear_attention_sizes(shape)
        return tokens.inside * 2 * (4 * keys + 4 * values) / tokens.tp
    return tokens.inside * 2 * (shape.num_attention_heads + 2 * shape.num_query_groups) * shape.kv_channels / tokens.tp
