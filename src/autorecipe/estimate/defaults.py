"""The execution policy of a tuned run, for when no recipe says more: what benchmark recipes switch on for this class of model
and GPU.
"""

from __future__ import annotations

from autorecipe.schema.estimate import ExecutionPolicy, Precision
from autorecipe.schema.hardware import Gpu
from autorecipe.schema.layout import Layout
from autorecipe.schema.model import ModelShape


def tuned_policy(
    shape: ModelShape, *, layout: Layout, gpu: Gpu, precision: Precision = Precision.BF16
) -> tuple[ExecutionPolicy, tuple[str, ...]]:
    """Return a policy and what it assumes.

    Dense models overlap tensor-parallel communication; experts exchange tokens through HybridEP where NVLink spans racks and
    through DeepEP elsewhere, with fused permutation, and Blackwell runs them under partial CUDA graphs.
    Source: settings that the benchmark recipes of Megatron Bridge 0.6.2 share. Evidence: published.
    """
    rack = gpu.has_rack_scale_nvlink
    dispatcher = "alltoall"
    if shape.is_moe and layout.ep > 1:
        dispatcher = "hybridep" if rack else "deepep"
    blackwell = float(gpu.compute_capability) >= 10.0
    policy = ExecutionPolicy(
        precision=precision,
        quantized_params=precision in (Precision.MXFP8, Precision.FP8),
        overlap_grad_reduce=True,
        overlap_param_gather=True,
        tp_comm_overlap=layout.tp > 1 and not shape.is_moe,
        overlap_p2p=layout.vp > 1,
        dispatcher=dispatcher,
        permute_fusion=shape.is_moe,
        cuda_graph="te" if shape.is_moe and blackwell else "none",
        cross_entropy="te",
        rope_fusion=True,
    )
    notes = ["settings of a tuned run, as benchmark recipes have them (overlap, fused exchange, no recomputation)"]
    if shape.is_moe:
        notes.append("tokens spread evenly over the experts (natural routing is uneven, most of all early in training)")
    return policy, tuple(notes)
