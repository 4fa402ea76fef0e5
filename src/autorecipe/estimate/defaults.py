"""The settings of a tuned run, for when no recipe says more: what benchmark recipes switch on for this class of model and GPU.

They are written as a configuration, so that every command reads the same run, and an override of the user wins as anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from autorecipe.schema.hardware import Gpu
from autorecipe.schema.value import FieldValue

TUNED_NOTE = (
    "settings of a tuned run where none is given, as benchmark recipes have them (overlap, fused exchange, no recomputation)"
)


def tuned_fields(*, is_moe: bool, gpu: Gpu | None) -> dict[str, FieldValue]:
    """Return path -> value of a tuned run; without a GPU type, what does not depend on it.

    Gradients, parameters and stages overlap their communication, dense models also that of tensor parallelism; experts exchange
    tokens through HybridEP where NVLink spans racks and through DeepEP elsewhere, with fused permutation, and Blackwell runs
    attention and routers under partial CUDA graphs.
    Source: settings that the benchmark recipes of Megatron Bridge 0.6.2 share. Evidence: published.
    """
    fields: dict[str, FieldValue] = {
        "ddp.overlap_grad_reduce": True,
        "ddp.overlap_param_gather": True,
        "comm_overlap._class": "megatron.bridge.training.comm_overlap.CommOverlapConfig",
        "comm_overlap.tp_comm_overlap": not is_moe,
        "model.cross_entropy_loss_fusion": True,
        "model.cross_entropy_fusion_impl": "te",
    }
    if not is_moe:
        return fields
    fields["model.moe_permute_fusion"] = True
    if gpu is None:
        return fields
    fields["model.moe_token_dispatcher_type"] = "flex"
    fields["model.moe_flex_dispatcher_backend"] = "hybridep" if gpu.has_rack_scale_nvlink else "deepep"
    if float(gpu.compute_capability) >= 10.0:
        fields |= BLACKWELL_GRAPHS
    return fields


BLACKWELL_GRAPHS: Mapping[str, FieldValue] = {
    "model.cuda_graph_impl": "transformer_engine",
    "model.cuda_graph_scope": ["attn", "moe_router", "moe_preprocess"],
    "model.use_te_rng_tracker": True,
    "rng.te_rng_tracker": True,
}
