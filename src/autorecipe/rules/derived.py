"""Derived names: sizes and switches that expressions may use in upper case, and where each comes from."""

from __future__ import annotations

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


EMERGING = ("muon", "lion", "soap", "dion")
"""Optimizers beyond SGD and Adam, by a part of their name."""


def _has_comm_overlap(context: Context) -> Any:
    if context.values.get("comm_overlap", UNKNOWN) not in (None, UNKNOWN) or context.values.get("comm_overlap._class"):
        return True
    return any(path.startswith("comm_overlap.") and value is not None for path, value in context.values.items())


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
    "MOE": lambda context: (
        UNKNOWN if "model.num_moe_experts" not in context.values else bool(context.values["model.num_moe_experts"])
    ),
    "GRAPH_IMPL": lambda context: context.graph_impl,
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
    "MOE": "model.num_moe_experts",
    "GRAPH_IMPL": "model.cuda_graph_impl",
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
