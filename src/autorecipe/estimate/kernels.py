"""Seconds of the kernels that one block runs for one micro batch on one GPU.

Formula: products max(FLOPs / (peak x efficiency), bytes / bandwidth) + fill; attention FLOPs / (peak x efficiency x S / (S +
S0)); pointwise kernels bytes / (bandwidth x efficiency). A backward pass does each product twice and attention 2.5 times.
Source: roofline model, Williams et al. 2009; flash attention's backward work, Dao 2023 (arXiv 2307.08691), section 3.
Evidence: derived; the efficiencies are fitted to public measurements (coefficients.py).
Error: printed by bench/estimators.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from autorecipe.estimate.adapters import adapter_targets
from autorecipe.estimate.coefficients import Coefficients
from autorecipe.estimate.flops import attended_tokens, block_flops
from autorecipe.estimate.tokens import Tokens, routed_tokens
from autorecipe.schema.blocks import (
    Block,
    expert_width,
    linear_attention_sizes,
    mamba_sizes,
)
from autorecipe.schema.estimate import Adapters, ExecutionPolicy, Precision
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
    """Seconds of a block, forward and backward apart.

    Attributes:
        host: time to launch the forward pass, as far as no graph captures it.
        idle: time that the device waits after the host has read something back from it.
    """

    gemm_forward: float = 0.0
    gemm_backward: float = 0.0
    attention_forward: float = 0.0
    attention_backward: float = 0.0
    pointwise_forward: float = 0.0
    pointwise_backward: float = 0.0
    host: float = 0.0
    idle: float = 0.0

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
    bandwidth = gpu.hbm_bandwidth * c.memory * _software(gpu, policy, c)
    frozen = policy.adapters is not None
    is_fused = policy.fused_experts and block is Block.MOE
    for product in _products(shape, block, tokens, policy):
        rows, inner, columns, count = product.rows, product.inner, product.columns, product.count
        precision = policy.precision
        grouped = (c.fused_grouped if is_fused else c.grouped) if count > 1 else 1.0
        rate = gemm_rate(gpu, precision, c) * grouped * _software(gpu, policy, c)
        width = 1.0 if precision.is_quantized else 2.0
        forward = gemm_seconds(rows, inner, columns, rate=rate, gpu=gpu, width=width, c=c, count=count)
        out.gemm_forward += forward
        out.gemm_backward += forward
        if not frozen:
            accumulate = 2.0 * policy.grad_bytes * count * inner * columns / (gpu.hbm_bandwidth * 0.85)
            out.gemm_backward += max(forward, accumulate + 0.5 * forward)
        if precision.is_quantized:
            passes = 2.0 * c.quantize * QUANTIZE_BYTES[precision] / bandwidth * (0.5 if frozen else 1.0)
            passes *= c.fused_expert_passes if is_fused and count > 1 else 1.0
            out.pointwise_forward += passes * count * rows * inner * product.input_share
            out.pointwise_backward += passes * count * rows * columns * product.output_share
    if policy.adapters is not None:
        _add_adapters(shape, block, tokens, policy.adapters, gpu, bandwidth, c, out)
    _attention_and_scans(shape, block, tokens, policy, gpu, c, out)
    h = shape.hidden_size
    passes = (c.layer_passes + (c.bias_passes if shape.add_bias_linear else 0.0)) * 2.0 * tokens.outside * h
    if block is Block.MOE:
        routed = 2.0 * routed_tokens(shape, tokens, policy) * expert_width(shape)
        if shape.add_bias_linear:
            passes += c.expert_bias_passes * routed * (c.fused_expert_passes if is_fused else 1.0)
        times = c.moe_passes * (1.0 if policy.permute_fusion else c.unfused_permute)
        if policy.dispatcher == "hybridep":
            times = c.moe_passes * c.hybrid_permute
        passes += times * routed
        passes += c.router_bytes * (0.2 if policy.router_fusion else 1.0) * tokens.outside * (shape.num_moe_experts or 0)
    activations = 2.0 * _activation_elements(shape, block, tokens, policy)
    passes += activations * (c.fused_expert_passes if is_fused else 1.0)
    out.pointwise_forward += passes / bandwidth
    out.pointwise_backward += 1.7 * passes / bandwidth
    out.host = _host_seconds(shape, block, tokens, policy, c)
    if block is Block.MOE and policy.cuda_graph != "full" and policy.capacity_factor is None:
        out.idle = c.sync_seconds
    return out


def _software(gpu: Gpu, policy: ExecutionPolicy, c: Coefficients) -> float:
    """Speed of kernels under the container's year: those for Blackwell were young in 2025."""
    return c.blackwell_2025 if policy.software_year <= 2025 and architecture(gpu) == "blackwell" else 1.0


CAPTURED_AS = {
    Block.ATTENTION: "attn",
    Block.WINDOW_ATTENTION: "attn",
    Block.MLA: "attn",
    Block.LINEAR_ATTENTION: "attn",
    Block.MAMBA: "mamba",
    Block.MLP: "mlp",
    Block.MOE: "moe_router",
}
"""Module of partial CUDA graphs that captures a block (of an expert block: its router)."""


def _host_seconds(shape: ModelShape, block: Block, tokens: Tokens, policy: ExecutionPolicy, c: Coefficients) -> float:
    """Return the host's time to launch the forward pass of a block, less what CUDA graphs capture.

    Launches of experts, which depend on how many tokens each gets, are captured by a graph of the whole iteration alone.
    """
    if policy.cuda_graph == "full":
        return 0.0
    captures = policy.cuda_graph != "none" and (not policy.graph_modules or CAPTURED_AS[block] in policy.graph_modules)
    left = 1.0 - c.graph_saving if captures else 1.0
    slow = c.host_quantized if policy.precision.is_quantized else 1.0
    if policy.adapters is not None:
        slow += 1.0
    if block is Block.MOE:
        local = (shape.num_moe_experts or 0) / tokens.ep
        experts = local * c.host_expert_seconds * (1.0 if policy.precision.is_quantized else 0.25)
        if policy.fused_experts:
            experts = 0.0
        return c.host_router_seconds * left + slow * c.host_moe_seconds + experts
    if block in (Block.MAMBA, Block.LINEAR_ATTENTION):
        return c.host_recurrent_seconds * left
    return c.host_block_seconds * slow * left


def _add_adapters(
    shape: ModelShape,
    block: Block,
    tokens: Tokens,
    adapters: Adapters,
    gpu: Gpu,
    bandwidth: float,
    c: Coefficients,
    out: Seconds,
) -> None:
    """Add two thin products and an addition to the base for each adapter; they run in 16 bits and are trained."""
    rate = gemm_rate(gpu, Precision.BF16, c)
    routed = routed_tokens(shape, tokens, ExecutionPolicy()) if block is Block.MOE else 0.0
    for target in adapter_targets(shape, block):
        if target.name not in adapters.targets:
            continue
        rows = routed if target.routed else tokens.inside
        inner, columns = target.local(tp=tokens.tp, etp=tokens.etp)
        forward = gemm_seconds(rows, inner, adapters.rank, rate=rate, gpu=gpu, width=2.0, c=c)
        forward += gemm_seconds(rows, adapters.rank, columns, rate=rate, gpu=gpu, width=2.0, c=c)
        out.gemm_forward += forward
        out.gemm_backward += 2.0 * forward
        out.pointwise_forward += 6.0 * rows * columns / bandwidth
        out.pointwise_backward += 6.0 * rows * inner / bandwidth


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


HALF_CHANNELS = 50
"""Channels of a head at which attention kernels reach half of their efficiency.

Source: FlashAttention-3 (arXiv 2407.08608), figures 5 and 6: 64 channels reach 0.78 of the speed of 128 on one H100. Evidence:
published.
"""


def _channel_efficiency(shape: ModelShape, block: Block) -> float:
    """Return the efficiency of attention for a head's channels against 128 of them."""
    channels = float(shape.kv_channels)
    if block is Block.MLA:
        channels = ((shape.qk_head_dim or 128) + (shape.qk_pos_emb_head_dim or 64) + (shape.v_head_dim or 128)) / 2
    channels = min(channels, 256.0)
    return channels / (channels + HALF_CHANNELS) * (128 + HALF_CHANNELS) / 128


def _attention_and_scans(
    shape: ModelShape, block: Block, tokens: Tokens, policy: ExecutionPolicy, gpu: Gpu, c: Coefficients, out: Seconds
) -> None:
    sequence = round(min(tokens.sequence, policy.packed_tokens or tokens.sequence))
    flops = block_flops(shape, block, sequence)
    ultra = float(gpu.compute_capability) >= 10.3
    peak = gpu.peak_flops["bf16"] * (c.blackwell_ultra if ultra else 1.0) * _software(gpu, policy, c)
    is_blackwell = architecture(gpu) == "blackwell"
    if block in ATTENTION_BLOCKS:
        met = 2.0 * attended_tokens(shape, block, sequence)
        waste = 1.0 + c.window_waste * max(0.0, sequence / met - 1.0) if block is Block.WINDOW_ATTENTION else 1.0
        scale = _channel_efficiency(shape, block) * (c.attention_blackwell if is_blackwell else 1.0)
        scale *= c.attention_2024 if policy.software_year <= 2024 else 1.0
        scale *= c.attention_fp8 if policy.fp8_attention else 1.0
        work = waste * flops.attention * tokens.inside / tokens.tp / (peak * scale)
        out.attention_forward = work / (c.attention_forward * met / (met + c.attention_forward_fill))
        out.attention_backward = 2.5 * work / (c.attention_backward * met / (met + c.attention_backward_fill))
    if flops.scan:
        efficiency = c.delta_scan if block is Block.LINEAR_ATTENTION else c.scan
        efficiency *= c.scan_blackwell if is_blackwell else 1.0
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
