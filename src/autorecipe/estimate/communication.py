"""Seconds of the collectives of one block, one micro batch or one step.

Formula: ring collectives (n - 1) / n x bytes / bandwidth + latency. A group's bandwidth is NVLink's while it fits the domain;
beyond it, the smaller of NVLink's and (members per domain) x the network's, since each GPU brings its own adapter.
Source: Thakur, Rabenseifner and Gropp 2005; rank order TP, CP, (EP,) DP, PP of Megatron-Core parallel_state.py @ 0.16.1.
Evidence: derived; efficiencies fitted (coefficients.py).
Error: printed by bench/estimators.py.
"""

from __future__ import annotations

from autorecipe.estimate.coefficients import Coefficients
from autorecipe.schema.hardware import Gpu


def group_bandwidth(gpu: Gpu, c: Coefficients, *, size: int, stride: int) -> float:
    """Return bytes/s of one rank of a group in a ring collective.

    Args:
        gpu: link bandwidths and the NVLink domain.
        c: efficiencies.
        size: ranks of the group.
        stride: distance between its members in rank order.
    """
    if size * stride <= gpu.nvlink_domain_size:
        return gpu.nvlink_bandwidth * c.nvlink
    members = max(1, gpu.nvlink_domain_size // stride)
    return min(gpu.nvlink_bandwidth * c.nvlink, min(members, size) * gpu.network_bandwidth * c.network)


def ring_seconds(num_bytes: float, *, gpu: Gpu, c: Coefficients, size: int, stride: int) -> float:
    """Seconds of an all-gather or reduce-scatter whose whole result or input is `num_bytes`."""
    if size <= 1 or num_bytes <= 0:
        return 0.0
    return (size - 1) / size * num_bytes / group_bandwidth(gpu, c, size=size, stride=stride) + c.collective_seconds


def exchange_seconds(
    num_bytes: float,
    *,
    gpu: Gpu,
    c: Coefficients,
    size: int,
    stride: int,
    fused: bool,
    copies: float = 1.0,
    token_bytes: float = 0.0,
    share: float = 1.0,
) -> float:
    """Seconds of an all-to-all in which one rank sends `num_bytes` in all.

    Args:
        num_bytes: bytes that the rank sends, one copy for each expert.
        gpu: link bandwidths and the NVLink domain.
        c: efficiencies.
        size: ranks of the group.
        stride: distance between its members in rank order.
        fused: whether one kernel sends a token once to each rank and each domain (DeepEP, HybridEP).
        copies: experts of a token.
        token_bytes: bytes of one token, which a fused kernel sends as one message.
        share: part of the ranks that one token may reach.
    """
    if size <= 1 or num_bytes <= 0:
        return 0.0
    inside = max(1, min(size, gpu.nvlink_domain_size // max(1, stride)))
    domains = -(-size // inside)
    far = (domains - 1) / domains
    efficiency = c.exchange
    if fused:
        efficiency *= c.fused_exchange * token_bytes / (token_bytes + c.exchange_half_bytes)
    local_bytes, far_bytes = num_bytes * (1 - far), num_bytes * far
    if fused:
        once = num_bytes / max(1.0, copies)
        local_bytes = once * _distinct(copies, max(1, round(size * share)))
        far_bytes = once * _distinct(copies, max(1, round(domains * share))) * far
    near = local_bytes / (gpu.nvlink_bandwidth * c.nvlink * efficiency)
    distant = far_bytes / (gpu.network_bandwidth * c.network * efficiency)
    return max(near, distant) + c.collective_seconds * (1 + domains / 8)


def _distinct(copies: float, places: int) -> float:
    """Expected number of distinct places that `copies` random choices reach."""
    return float(places * (1 - (1 - 1 / places) ** copies))
