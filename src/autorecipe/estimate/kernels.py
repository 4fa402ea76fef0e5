"""Seconds of the kernels that one block runs for one micro batch on one GPU.

Formula: products max(FLOPs / (peak x efficiency), bytes / bandwidth) + fill; attention FLOPs / (peak x efficiency x S / (S +
S0)); pointwise kernels bytes / (bandwidth x efficiency). A backward pass does each product twice and attention 2.5 times.
Source: roofline model, Williams et al. 2009; flash attention's backward work, Dao 2023 (arXiv 2307.08691), section 3.
Evidence: derived; the efficiencies are fitted to public measurements (coefficients.py).
Error: printed by bench/estimators.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from autorecipe.estimate.coefficients import Coefficients
from autorecipe.estimate.flops import attended_tokens, block_flops
from autorecipe.estimate.tokens import Tokens, routed_tokens
from autorecipe.schema.blocks import (
    Block,
    expert_width,
    linear_attention_sizes,
    mamba_sizes,
)
from autorecipe.schema.estimate import ExecutionPolicy, Precision
from autorecipe.schema.hardware import Gpu
from autorecipe.schema.model import ModelShape

ATTENTION_BLOCKS = (Block.ATTENTION, Block.WINDOW_ATTENTION, Block.MLA)


QUANTIZE_BYTES = {Precision.FP8: 1.0, Precision.FP8_BLOCK: 1.0, Precision.MXFP8: 0.7, Precision.NVFP4: 0.9}
"""Bytes that quantizing one element moves, against per-tensor FP8 (find the largest value, read again, write both directions).

MXFP8 needs no search for the largest value; NVFP4 rotates and searches, and writes half. Source: Transformer Engine's
quantizers. Evidence: derived.
"""


@dataclass(frozen=True, slots=True)
class Product:
    """One product [rows, inner] x [inner, columns], `count` times; the shares say how much of input and output one rank
    quantizes.

    Under sequence parallelism the input of a column-parallel product is quantized before it is gathered, and so is the
    gradient of a row-parallel one.
    """

    rows: float
    inner: float
    columns: float
    count: int = 1
    input_share: float = 1.0
    output_share: float = 1.0


@dataclass(slots=True)
class Seconds:
    """Seconds of a block, forward and backward apart; `host` is the time to launch the forward pass (`host_experts`: experts
    alone).
    """

    gemm_forward: float = 0.0
    gemm_backward: float = 0.0
    attention_forward: float = 0.0
    attention_backward: float = 0.0
    pointwise_forward: float = 0.0
    pointwise_backward: float = 0.0
    host: float = 0.0
    host_experts: float = 0.0

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
    if float(gpu.compute_capability) >= 10.3:
        peak *= c.blackwell_ultra
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
    compute = 2.0 * count * tiled * (inner + c.gemm_half_inner) * columns / rate
    moved = count * (width * (rows * inner + inner * columns) + 2.0 * rows * columns)
    each = c.expert_fill_seconds * (2.0 if width < 2.0 else 1.0)
    return max(compute, moved / (gpu.hbm_bandwidth * 0.85)) + c.gemm_fill_seconds + each * (count - 1)


def block_seconds(shape: ModelShape, block: Block, tokens: Tokens, policy: ExecutionPolicy, gpu: Gpu, c: Coefficients) -> Seconds:
    """Return the seconds of one block for one micro batch, without communication."""
    out = Seconds()
    bandwidth = gpu.hbm_bandwidth * c.memory
    frozen = policy.adapters is not None
    for product in _products(shape, block, tokens, policy):
        rows, inner, columns, count = product.rows, product.inner, product.columns, product.count
        precision = policy.precision
        rate = gemm_rate(gpu, precision, c) * (c.grouped if count > 1 else 1.0)
        width = 1.0 if precision.is_quantized else 2.0
        forward = gemm_seconds(rows, inner, columns, rate=rate, gpu=gpu, width=width, c=c, count=count)
        out.gemm_forward += forward
        out.gemm_backward += forward
        if not frozen:
            accumulate = 2.0 * policy.grad_bytes * count * inner * columns / (gpu.hbm_bandwidth * 0.85)
            out.gemm_backward += max(forward, accumulate + 0.5 * forward)
        if precision.is_quantized:
            passes = 2.0 * c.quantize * QUANTIZE_BYTES[precision] / bandwidth * (0.5 if frozen else 1.0)
            out.pointwise_forward += passes * count * rows * inner * product.input_share
            out.pointwise_backward += passes * count * rows * columns * product.output_share
    _attention_and_scans(shape, block, tokens, gpu, c, out)
    h = shape.hidden_size
    passes = (c.layer_passes + (c.bias_passes if shape.add_bias_linear else 0.0)) * 2.0 * tokens.outside * h
    if block is Block.MOE:
        if shape.add_bias_linear:
            passes += c.expert_bias_passes * 2.0 * routed_tokens(shape, tokens, policy) * expert_width(shape)
        times = c.moe_passes * (1.0 if policy.permute_fusion else c.unfused_permute)
        if policy.dispatcher == "hybridep":
            times = c.moe_passes * c.hybrid_permute
        passes += times * 2.0 * routed_tokens(shape, tokens, policy) * expert_width(shape)
        passes += 16.0 * tokens.outside * (shape.num_moe_experts or 0)
    passes += 2.0 * _activation_elements(shape, block, tokens, policy)
    out.pointwise_forward += passes / bandwidth
    out.pointwise_backward += 1.7 * passes / bandwidth
    out.host = {
        Block.MOE: c.host_moe_seconds,
        Block.MAMBA: c.host_recurrent_seconds,
        Block.LINEAR_ATTENTION: c.host_recurrent_seconds,
    }.get(block, c.host_block_seconds)
    if block is Block.MOE:
        out.host_experts = _expert_launches(shape, tokens, policy) * c.host_expert_seconds
    return out


def _expert_launches(shape: ModelShape, tokens: Tokens, policy: ExecutionPolicy) -> float:
    """Launches that grow with the experts on a rank: most of them quantize each expert's operands."""
    local = (shape.num_moe_experts or 0) / tokens.ep
    return local * (1.0 if policy.precision.is_quantized else 0.25)


def _products(shape: ModelShape, block: Block, tokens: Tokens, policy: ExecutionPolicy) -> tuple[Product, ...]:
    """Return the products of a block on one rank."""
    h, tp = shape.hidden_size, tokens.tp
    if block in (Block.ATTENTION, Block.WINDOW_ATTENTION):
        q, kv = shape.num_attention_heads * shape.kv_channels, shape.num_query_groups * shape.kv_channels
        return _pair(tokens, h, (q * (2 if shape.attention_output_gate else 1) + 2 * kv) / tp, q / tp)
    if block is Block.MLA:
        return _mla_products(shape, tokens)
    if block is Block.MAMBA:
        inner, groups = mamba_sizes(shape)
        return _pair(tokens, h, (2 * inner + groups) / tp, inner / tp)
    if block is Block.LINEAR_ATTENTION:
        keys, values = linear_attention_sizes(shape)
        return _pair(tokens, h, (2 * keys + 2 * values) / tp, values / tp)
    gates = 2 if shape.gated_linear_unit else 1
    if block is Block.MLP:
        return _pair(tokens, h, gates * shape.ffn_hidden_size / tp, shape.ffn_hidden_size / tp)
    width, f = expert_width(shape), (shape.moe_ffn_hidden_size or shape.ffn_hidden_size) / tokens.etp
    local = max(1, (shape.num_moe_experts or 1) // tokens.ep)
    rows = routed_tokens(shape, tokens, policy) / local
    products = [Product(rows, width, gates * f, local), Product(rows, f, width, local)]
    if shape.moe_shared_expert_intermediate_size:
        shared = shape.moe_shared_expert_intermediate_size / tp
        products += _pair(tokens, h, gates * shared, shared)
    if shape.moe_latent_size:
        products += [Product(tokens.outside, h, width), Product(tokens.outside, width, h)]
    return tuple(products)


def _pair(tokens: Tokens, hidden: float, first: float, second: float) -> tuple[Product, Product]:
    """Return a column-parallel product from hidden and a row-parallel one back to it."""
    share = tokens.outside / tokens.inside
    return (
        Product(tokens.inside, hidden, first, input_share=share),
        Product(tokens.inside, second, hidden, output_share=share),
    )


def _mla_products(shape: ModelShape, tokens: Tokens) -> tuple[Product, ...]:
    h, t, n, tp, heads = shape.hidden_size, tokens.inside, tokens.outside, tokens.tp, shape.num_attention_heads
    key, value = (shape.qk_head_dim or 128) + (shape.qk_pos_emb_head_dim or 64), shape.v_head_dim or 128
    latent, rope = shape.kv_lora_rank or 512, shape.qk_pos_emb_head_dim or 64
    share = n / t
    products = [
        Product(n, h, latent + rope),
        Product(t, latent, heads * ((shape.qk_head_dim or 128) + value) / tp, input_share=share),
        Product(t, heads * value / tp, h, output_share=share),
    ]
    if shape.q_lora_rank:
        products += [Product(n, h, shape.q_lora_rank), Product(t, shape.q_lora_rank, heads * key / tp, input_share=share)]
    else:
        products.append(Product(t, h, heads * key / tp, input_share=share))
    return tuple(products)


def _attention_and_scans(shape: ModelShape, block: Block, tokens: Tokens, gpu: Gpu, c: Coefficients, out: Seconds) -> None:
    flops = block_flops(shape, block, tokens.sequence)
    peak = gpu.peak_flops["bf16"] * (c.blackwell_ultra if float(gpu.compute_capability) >= 10.3 else 1.0)
    if block in ATTENTION_BLOCKS:
        met = attended_tokens(shape, block, tokens.sequence)
        fill = met / (met + c.attention_fill_tokens / 2)
        scale = c.attention_blackwell if architecture(gpu) == "blackwell" else 1.0
        work = flops.attention * tokens.inside / tokens.tp / (peak * scale * fill)
        out.attention_forward = work / c.attention_forward
        out.attention_backward = 2.5 * work / c.attention_backward
    if flops.scan:
        efficiency = c.delta_scan if block is Block.LINEAR_ATTENTION else c.scan
        work = flops.scan * tokens.inside / tokens.tp / (peak * efficiency)
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
