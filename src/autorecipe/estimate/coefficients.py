"""The few physical numbers that the time estimate needs, fitted once over all public measurements.

Nothing here belongs to one model or one row. `data/calibration/time.json` holds the fitted values; the defaults below are the
priors that the fit starts from and is drawn back to, so that a number which no measurement touches stays plausible.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Coefficients:
    """Efficiencies are parts of the published peak, latencies seconds.

    Attributes:
        gemm_ampere_bf16: large products, A100, 16 bits.
        gemm_hopper_bf16: large products, H100 and H200, 16 bits.
        gemm_hopper_fp8: the same, 8 bits.
        gemm_blackwell_bf16: large products, B200 to GB300, 16 bits.
        gemm_blackwell_fp8: the same, FP8 with one scale per tensor.
        gemm_blackwell_mxfp8: the same, MXFP8.
        gemm_blackwell_nvfp4: the same, NVFP4.
        gemm_fill_seconds: time that a product loses to its first and last tiles.
        gemm_half_inner: contracted size at which a product reaches half of its efficiency.
        expert_fill_seconds: the same for each further expert of a grouped product (twice that where its operands are quantized).
        blackwell_ultra: products and attention on compute capability 10.3 (B300, GB300) against 10.0.
        blackwell_2025: speed of kernels on Blackwell in containers of 2025 against later ones.
        grouped: efficiency of grouped expert products against one product.
        fused_grouped: the same where products, activation and quantization of the experts are one kernel.
        quantize: passes over an operand, in elements read or written, that quantizing it costs.
        attention_forward: flash attention forward, part of the 16-bit peak (Hopper, 128 channels a head).
        attention_backward: the same, backward.
        attention_blackwell: Blackwell's attention efficiency against Hopper's.
        attention_forward_fill: sequence at which the forward pass reaches half of its efficiency.
        attention_backward_fill: the same, backward.
        attention_2024: speed of attention kernels up to 2024 against later ones.
        window_waste: part of the keys outside its window that windowed attention computes all the same.
        attention_fp8: speed of attention with 8-bit products against 16 bits.
        scan: Mamba scans, part of the 16-bit peak.
        scan_blackwell: efficiency of scans on Blackwell against Hopper's: their kernels are not written for its tensor cores.
        delta_scan: gated delta-rule scans, part of the 16-bit peak.
        memory: part of the memory bandwidth that pointwise kernels reach.
        bias_passes: the same for biases and dropout, where the model has them.
        layer_passes: passes over the residual stream of norms, residual additions and rotary embedding, per block.
        moe_passes: passes over the routed tokens of permutation, weighting and un-permutation.
        expert_bias_passes: passes over the routed tokens that biases of experts add.
        fused_expert_passes: part of activation and quantization passes left where the experts are one kernel.
        router_bytes: bytes that the router moves for each token and expert; a fifth of that where it is fused.
        hybrid_permute: part of the permutation passes left where HybridEP permutes while it sends.
        unfused_permute: times as many passes where permutation is not fused.
        host_block_seconds: host time to launch one dense block's forward pass.
        host_router_seconds: host time to launch one router with its preparation of the exchange.
        host_moe_seconds: host time to launch the rest of an expert block's forward pass.
        host_expert_seconds: the same for each expert on the rank (a quarter where nothing is quantized expert by expert).
        host_recurrent_seconds: host time to launch one Mamba or delta-rule block's forward pass.
        host_quantized: host time of a block with quantized operands against one without.
        sync_seconds: time that the device idles after the host has waited for the routed counts of a layer.
        graph_saving: part of the host time of captured modules that CUDA graphs remove.
        nvlink: part of NVLink's bandwidth that collectives reach.
        network: part of the network's bandwidth that collectives reach.
        exchange: efficiency of all-to-all against a ring collective.
        fused_exchange: efficiency of the DeepEP and HybridEP exchange against all-to-all.
        exchange_half_bytes: bytes of one token at which that exchange reaches half of its efficiency.
        collective_seconds: latency of one collective.
        tp_hidden: part of tensor-parallel communication hidden by its overlap with products.
        cp_hidden: part of the attention time that can hide context-parallel transfers.
        ep_hidden: part of the exchange hidden where it overlaps with another micro batch.
        dp_hidden: part of one backward pass that can hide gradient reduction.
        jitter: added part of the step for each doubling of the number of nodes.
        step_seconds: work of each step that scales with nothing: bookkeeping, norms, logging.
        optimizer: part of the memory bandwidth that the optimizer reaches.
    """

    gemm_ampere_bf16: float = 0.80
    gemm_hopper_bf16: float = 0.78
    gemm_hopper_fp8: float = 0.70
    gemm_blackwell_bf16: float = 0.70
    gemm_blackwell_fp8: float = 0.65
    gemm_blackwell_mxfp8: float = 0.62
    gemm_blackwell_nvfp4: float = 0.50
    gemm_fill_seconds: float = 6e-6
    gemm_half_inner: float = 200.0
    expert_fill_seconds: float = 3e-6
    blackwell_ultra: float = 1.15
    blackwell_2025: float = 0.90
    grouped: float = 0.80
    fused_grouped: float = 0.90
    quantize: float = 3.0
    attention_forward: float = 0.60
    attention_backward: float = 0.52
    attention_blackwell: float = 1.0
    attention_forward_fill: float = 800.0
    attention_backward_fill: float = 1200.0
    attention_2024: float = 0.75
    window_waste: float = 0.1
    attention_fp8: float = 1.3
    scan: float = 0.05
    scan_blackwell: float = 0.7
    delta_scan: float = 0.20
    memory: float = 0.70
    bias_passes: float = 3.0
    layer_passes: float = 6.0
    moe_passes: float = 6.0
    expert_bias_passes: float = 24.0
    fused_expert_passes: float = 0.4
    router_bytes: float = 80.0
    hybrid_permute: float = 0.5
    unfused_permute: float = 4.0
    host_block_seconds: float = 150e-6
    host_router_seconds: float = 400e-6
    host_moe_seconds: float = 700e-6
    host_expert_seconds: float = 80e-6
    host_recurrent_seconds: float = 300e-6
    host_quantized: float = 1.5
    sync_seconds: float = 60e-6
    graph_saving: float = 0.8
    nvlink: float = 0.70
    network: float = 0.80
    exchange: float = 0.70
    fused_exchange: float = 1.30
    exchange_half_bytes: float = 1500.0
    collective_seconds: float = 15e-6
    tp_hidden: float = 0.60
    cp_hidden: float = 0.80
    ep_hidden: float = 0.60
    dp_hidden: float = 0.80
    jitter: float = 0.006
    step_seconds: float = 0.02
    optimizer: float = 0.60


@functools.lru_cache(maxsize=1)
def load_coefficients() -> Coefficients:
    """Return the fitted coefficients that this release ships."""
    text = importlib.resources.files("autorecipe").joinpath("data/calibration/time.json").read_text(encoding="utf-8")
    return coefficients_from(json.loads(text)["coefficients"])


def coefficients_from(values: Mapping[str, float]) -> Coefficients:
    """Make coefficients from a mapping; what is absent keeps its prior."""
    known = {field.name for field in dataclasses.fields(Coefficients)}
    return Coefficients(**{name: float(value) for name, value in values.items() if name in known})
