"""Derived names: sizes and switches that expressions may use in upper case, and where each comes from."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autorecipe.rules.release import parse_release
from autorecipe.rules.spelling import plain_name
from autorecipe.schema.value import UNKNOWN

if TYPE_CHECKING:
    from autorecipe.rules.context import Context


def _known(value: Any) -> Any:
    return UNKNOWN if value is None else value


def _axis(name: str) -> Callable[[Context], Any]:
    return lambda context: getattr(context.layout, name)


def _dataset_class(context: Context) -> Any:
    value = context.values.get("dataset._class", UNKNOWN)
    return value if value is UNKNOWN or value is None else plain_name(value)


def _is_finetuning(context: Context) -> Any:
    mode = context.given.get("mode") or context.config.mode
    if mode:
        return str(mode) in ("sft", "peft", "lora", "dora", "finetune")
    dataset = _dataset_class(context)
    return UNKNOWN if dataset is UNKNOWN else "sft" in str(dataset) or "finetun" in str(dataset)


def _is_hybrid(context: Context) -> Any:
    for path in ("model.hybrid_layer_pattern", "model.hybrid_override_pattern"):
        if context.values.get(path):
            return True
    return "hybrid" in str(context.get("model._class", "")).lower() or "mamba" in str(context.get("model._class", "")).lower()


def _capability(context: Context) -> Any:
    if context.cluster is None:
        return UNKNOWN
    return parse_release(context.cluster.gpu.compute_capability)


def _fsdp(context: Context) -> Any:
    flags = [context.read(path) for path in ("ddp.use_megatron_fsdp", "dist.use_megatron_fsdp", "ddp.use_custom_fsdp")]
    if any(flag is True for flag in flags):
        return True
    return UNKNOWN if all(flag is UNKNOWN for flag in flags) else False


def _either(context: Context, model_name: str, ddp_name: str) -> Any:
    flags = [context.precision[model_name], context.read(f"ddp.{ddp_name}"), context.read(f"mixed_precision.{ddp_name}")]
    if any(flag is True for flag in flags):
        return True
    return UNKNOWN if all(flag is UNKNOWN for flag in flags) else False


def _overlap(context: Context, name: str) -> Any:
    own = context.values.get(f"comm_overlap.{name}")
    return context.read(f"model.{name}") if own is None else own


def _distributed_optimizer(context: Context) -> Any:
    flags = [context.read("ddp.use_distributed_optimizer"), context.read("optimizer.use_distributed_optimizer")]
    if any(flag is True for flag in flags):
        return True
    return UNKNOWN if all(flag is UNKNOWN for flag in flags) else False


def _is_adapting(context: Context) -> bool:
    mode = str(context.given.get("mode") or context.config.mode)
    return bool(context.values.get("peft._class")) or mode in ADAPTER_MODES


ADAPTER_MODES = ("peft", "lora", "dora")


def _is_padded(context: Context) -> Any:
    flags = [context.read(path) for path in ("dataset.pad_to_max_length", "dataset.dataset_kwargs.pad_to_max_length")]
    if any(flag is True for flag in flags):
        return True
    return UNKNOWN if all(flag is UNKNOWN for flag in flags) else False


def _pad_multiple(context: Context) -> int:
    """Multiple that sequences are padded to: lcm(2 x CP, CP x TP under sequence parallelism) (config.py:1370 @ 067f987d)."""
    layout = context.layout
    other = context.integer("dist.eval_context_parallel_size")
    sizes = {layout.cp, other} if other else {layout.cp}
    factors = [2 * size if size > 1 else 1 for size in sizes]
    if context.model("sequence_parallel") and layout.tp > 1:
        factors += [size * layout.tp for size in sizes]
    return math.lcm(*factors)


EMERGING = ("muon", "lion", "soap", "dion")
"""Optimizers beyond SGD and Adam, by a part of their name."""


def _has_comm_overlap(context: Context) -> Any:
    if context.values.get("comm_overlap", UNKNOWN) not in (None, UNKNOWN):
        return True
    return any(context.values.get(f"comm_overlap.{name}") is not None for name in OVERLAP_NAMES)


MULTIMODAL_WORDS = ("VL", "Omni", "Audio", "45V", "Wan", "Flux")
"""Parts of the names of provider classes that build more than a language model."""

OVERLAP_NAMES = (
    "_class",
    "tp_comm_overlap",
    "overlap_grad_reduce",
    "overlap_param_gather",
    "overlap_p2p_comm",
    "overlap_moe_expert_parallel_comm",
    "delay_wgrad_compute",
    "bucket_size",
)


def _has_experts(context: Context) -> Any:
    """Whether any layer is a mixture of experts; a hybrid pattern says so itself, whatever num_moe_experts is."""
    if "model.num_moe_experts" not in context.values:
        return UNKNOWN
    pattern = context.derived("PATTERN")
    return bool(context.values["model.num_moe_experts"]) and (not pattern or "E" in str(pattern))


DERIVED: dict[str, Callable[[Context], Any]] = {
    "TP": _axis("tp"),
    "PP": _axis("pp"),
    "VP": _axis("vp"),
    "CP": _axis("cp"),
    "EP": _axis("ep"),
    "ETP": _axis("etp"),
    "WORLD": lambda context: _known(context.world),
    "DP": lambda context: _known(context.dp),
    "MBS": lambda context: _known(context.integer("train.micro_batch_size")),
    "GBS": lambda context: _known(context.integer("train.global_batch_size")),
    "SEQ": lambda context: _known(context.seq_length),
    "MICROBATCHES": lambda context: _known(context.microbatches),
    "LAYERS": lambda context: _known(context.integer("model.num_layers")),
    "CORE_GIVEN": lambda context: context.core_given,
    "MULTIMODAL": lambda context: any(word in str(context.get("model._class", "")) for word in MULTIMODAL_WORDS),
    "MOE": _has_experts,
    "GRAPH_IMPL": lambda context: context.graph_impl,
    "GIVEN_GRAPH_IMPL": lambda context: context.before_resolution("model.cuda_graph_impl"),
    "BF16": lambda context: context.precision["bf16"],
    "FP16": lambda context: context.precision["fp16"],
    "FP8": lambda context: context.precision["fp8"],
    "FP8_RECIPE": lambda context: context.precision["fp8_recipe"],
    "FP8_PARAM": lambda context: _either(context, "fp8_param", "fp8_param_gather"),
    "FP4": lambda context: context.precision["fp4"],
    "FP4_PARAM": lambda context: _either(context, "fp4_param", "fp4_param_gather"),
    "OVERLAP_EP": lambda context: _overlap(context, "overlap_moe_expert_parallel_comm"),
    "DELAY_WGRAD": lambda context: _overlap(context, "delay_wgrad_compute"),
    "TP_OVERLAP": lambda context: _overlap(context, "tp_comm_overlap"),
    "DISTRIBUTED": _distributed_optimizer,
    "PADDED": _is_padded,
    "PAD_MULTIPLE": _pad_multiple,
    "PEFT": _is_adapting,
    "ADAPTER": lambda context: plain_name(context.values.get("peft._class") or ""),
    "COMM_OVERLAP": _has_comm_overlap,
    "MUON": lambda context: any(word in str(context.get("optimizer.optimizer", "adam")) for word in EMERGING),
    "FSDP_VERSION": lambda context: context.get("ddp.megatron_fsdp_version", 1),
    "FUSER": lambda context: context.values.get("model.use_transformer_engine_op_fuser", False),
    "PATTERN": lambda context: context.model("hybrid_layer_pattern") or context.model("hybrid_override_pattern"),
    "GRAPHS": lambda context: _known(context.graph_modules),
    "GPU": lambda context: context.cluster.gpu.name if context.cluster else UNKNOWN,
    "CAPABILITY": _capability,
    "TE": lambda context: context.package("transformer-engine"),
    "TORCH": lambda context: context.package("torch"),
    "FSDP": _fsdp,
    "DATASET": _dataset_class,
    "FINETUNING": _is_finetuning,
    "HYBRID": _is_hybrid,
}
"""Derived names that expressions may use."""

AXIS_PATHS = {
    "TP": "model.tensor_model_parallel_size",
    "PP": "model.pipeline_model_parallel_size",
    "VP": "model.virtual_pipeline_model_parallel_size",
    "CP": "model.context_parallel_size",
    "EP": "model.expert_model_parallel_size",
    "ETP": "model.expert_tensor_parallel_size",
    "WORLD": "gpus",
    "MBS": "train.micro_batch_size",
    "GBS": "train.global_batch_size",
    "SEQ": "dataset.seq_length",
    "LAYERS": "model.num_layers",
    "CORE_GIVEN": "given.core",
    "MULTIMODAL": "model._class",
    "MOE": "model.num_moe_experts",
    "GRAPH_IMPL": "model.cuda_graph_impl",
    "GIVEN_GRAPH_IMPL": "model.cuda_graph_impl",
    "BF16": "model.bf16",
    "FP16": "model.fp16",
    "FP8": "model.fp8",
    "FP8_RECIPE": "model.fp8_recipe",
    "FP8_PARAM": "model.fp8_param",
    "FP4": "model.fp4",
    "FP4_PARAM": "model.fp4_param",
    "OVERLAP_EP": "model.overlap_moe_expert_parallel_comm",
    "DELAY_WGRAD": "model.delay_wgrad_compute",
    "TP_OVERLAP": "model.tp_comm_overlap",
    "DISTRIBUTED": "ddp.use_distributed_optimizer",
    "PADDED": "dataset.pad_to_max_length",
    "PAD_MULTIPLE": "model.context_parallel_size",
    "PEFT": "peft._class",
    "ADAPTER": "peft._class",
    "COMM_OVERLAP": "comm_overlap",
    "MUON": "optimizer.optimizer",
    "FSDP_VERSION": "ddp.megatron_fsdp_version",
    "FUSER": "model.use_transformer_engine_op_fuser",
    "PATTERN": "model.hybrid_layer_pattern",
    "GRAPHS": "model.cuda_graph_modules",
    "FSDP": "ddp.use_megatron_fsdp",
    "DATASET": "dataset._class",
    "DP": "gpus",
    "MICROBATCHES": "train.global_batch_size",
    "GPU": "gpu",
    "CAPABILITY": "gpu",
    "TE": "package.transformer-engine",
    "TORCH": "package.torch",
    "FINETUNING": "given.mode",
    "HYBRID": "model.hybrid_layer_pattern",
}
"""Where each derived name comes from."""
