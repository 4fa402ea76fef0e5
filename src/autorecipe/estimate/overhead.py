"""What lies between allocated tensors and the device's memory: the allocator's reserve, CUDA context and communicators, and
the verdict.
"""

from __future__ import annotations

from autorecipe.schema.estimate import ExecutionPolicy, Verdict
from autorecipe.schema.layout import Layout
from autorecipe.schema.model import ModelShape
from autorecipe.units import GIB, MIB

ALLOCATED_BAND = (0.96, 1.04)
"""Interval of allocated bytes around the closed form.

Source: the median error on measured peaks of known configurations, rounded up (bench/estimators.py). Evidence: measured.
"""

RESERVED_DENSE = (1.005, 1.14)
"""Peak reserved over peak allocated, tensors of static shape.

Source: 14 dense and latent-attention configurations of this project's engine on one H200 (1.005 to 1.139,
tests/golden/estimate/h200_peaks.jsonl); runs of Megatron-LM 2026-08-22 on one H200, 1.24B dense: 54,490 / 49,127 and 43,312 /
39,697 MiB; model verification card nemotron_3_5_lightning SFT: 103.96 / 101.51 GiB.
Evidence: measured.
"""

RESERVED_MOE = (1.03, 1.22)
"""The same with tokens routed between experts.

Source: Bridge verification cards nemotron_3_super (70.336 / 58.079 and 69.344 / 59.0 GiB) and qwen3.5_35b_a3b (67.228 /
63.369 GiB); NeMo issue 14850 (53.715 / 50.226 GiB); Megatron-LM pull request 6429 (68,392 / 60,378 and 62,570 / 60,154 MiB).
Evidence: published.
"""


def reserved_bytes(peak: float, *, shape: ModelShape, policy: ExecutionPolicy) -> tuple[float, float]:
    """Return the interval of what the allocator reserves for a given peak of allocated bytes."""
    dynamic = shape.is_moe and policy.capacity_factor is None
    low, high = RESERVED_MOE if dynamic else RESERVED_DENSE
    return peak * low, peak * high


def outside_bytes(layout: Layout, *, world_size: int, policy: ExecutionPolicy) -> tuple[float, float]:
    """Return the interval of device memory outside the allocator.

    Formula: CUDA context, libraries and loaded kernels 0.6 to 2.5 GiB, and 0.15 to 0.8 GiB for each communicator in use (TP, PP,
    CP, DP, EP, expert DP).
    Source: 17 configurations of this project's engine on one H200, no communicator in use: 2.05 to 2.44 GiB
    (tests/golden/estimate/h200_peaks.jsonl); Megatron-LM pull request 6429: device memory less reserved is 6.3 GiB with every
    group in use. Evidence: measured.
    """
    groups = sum(size > 1 for size in (layout.tp, layout.pp, layout.cp, layout.ep, layout.etp))
    dense = world_size // max(1, layout.dense_model_parallel_size)
    groups += dense > 1
    groups += layout.ep > 1 and world_size > layout.expert_model_parallel_size
    buffers = 2.0 * GIB if policy.dispatcher in ("deepep", "hybridep") and layout.ep > 1 else 0.0
    return 0.6 * GIB + groups * 150 * MIB, 2.5 * GIB + groups * 800 * MIB + buffers


def judge(
    *, allocated: tuple[float, float], reserved: tuple[float, float], outside: tuple[float, float], capacity: int
) -> Verdict:
    """Judge a run against a GPU's memory.

    FITS when the upper ends together fit, OOM when even the lower end of allocated bytes with the smallest overhead does not.
    """
    if reserved[1] + outside[1] <= capacity:
        return Verdict.FITS
    if max(allocated[0], reserved[0] * allocated[0] / max(1.0, allocated[1])) + outside[0] > capacity:
        return Verdict.OOM
    return Verdict.AT_RISK
