"""What a person wants to know of a recipe, in sections, with the values that take effect.

`describe_recipe` is what `recipes show` prints; `describe_workload` is the compact view that upstream's performance scripts
derive from a benchmark recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autorecipe.config.views import view_layout, view_seq_length
from autorecipe.errors import NegativeAnswer, Problem
from autorecipe.schema.preset import PRESETS
from autorecipe.schema.recipe import Recipe, RecipeKind
from autorecipe.schema.run import RunConfig

Section = dict[str, Any]

PRESET_BY_SOURCE = {source: preset.name for preset in PRESETS.values() for source in preset.sources}
"""Dataset name in a recipe -> preset of the launcher."""


def describe_recipe(recipe: Recipe, effective: RunConfig | None) -> dict[str, Section]:
    """Return sections of facts.

    Args:
        recipe: as shipped.
        effective: the recipe resolved without overrides, for values that upstream changes after the recipe; None where it
            cannot be resolved.
    """
    sections: dict[str, Section] = {"identity": _identity(recipe)}
    if not recipe.fields:
        return sections
    values = effective.values if effective is not None else recipe.fields
    config = RunConfig(values=values)
    sections["parallelism"] = _parallelism(recipe, config)
    sections["batch"] = _batch(recipe, config)
    sections["optimizer"] = _optimizer(values)
    sections["performance"] = _performance(values)
    sections["data"] = _data(values, recipe)
    if values.get("peft._class"):
        sections["peft"] = _peft(values, recipe)
    sections["environment"] = {path[9:]: value for path, value in sorted(values.items()) if path.startswith("env_vars.")}
    return {name: section for name, section in sections.items() if section}


def describe_workload(recipe: Recipe) -> Section:
    """Return GPUs, precision, layout, batch, recompute, graphs and dispatcher of a benchmark recipe.

    Raises:
        NegativeAnswer: not a benchmark recipe, or one without GPUs in its name.
    """
    if recipe.kind is not RecipeKind.BENCHMARK or recipe.gpus is None:
        raise NegativeAnswer(
            Problem(
                code="no-workload",
                path=recipe.name,
                message="only benchmark recipes with a GPU count in their name have a workload",
                hint="`autorecipe recipes list --kind benchmark` lists them",
            )
        )
    values = recipe.fields
    layout = view_layout(RunConfig(values=values))
    moe = values.get("model.num_moe_experts")
    return {
        "num_gpus": recipe.gpus,
        "gpu": recipe.gpu_type,
        "precision": recipe.precision,
        "tensor_model_parallel_size": layout.tp,
        "pipeline_model_parallel_size": layout.pp,
        "context_parallel_size": layout.cp,
        "virtual_pipeline_model_parallel_size": values.get("model.virtual_pipeline_model_parallel_size"),
        "expert_model_parallel_size": layout.ep,
        "expert_tensor_parallel_size": values.get("model.expert_tensor_parallel_size"),
        "global_batch_size": values.get("train.global_batch_size"),
        "micro_batch_size": values.get("train.micro_batch_size"),
        "seq_length": view_seq_length(RunConfig(values=values)),
        "use_megatron_fsdp": values.get("ddp.use_megatron_fsdp"),
        "recompute_granularity": values.get("model.recompute_granularity"),
        "recompute_num_layers": values.get("model.recompute_num_layers"),
        "recompute_modules": values.get("model.recompute_modules"),
        "cuda_graph_impl": values.get("model.cuda_graph_impl"),
        "cuda_graph_scope": _graph_scope(values),
        "moe_token_dispatcher_type": values.get("model.moe_token_dispatcher_type") if moe else None,
        "moe_flex_dispatcher_backend": values.get("model.moe_flex_dispatcher_backend") if moe else None,
        "moe_a2a_overlap": values.get("comm_overlap.overlap_moe_expert_parallel_comm") if moe else None,
    }


def _identity(recipe: Recipe) -> Section:
    return {
        "name": recipe.name,
        "release": recipe.release,
        "kind": recipe.kind.value,
        "alias_of": recipe.alias_of,
        "aliases": recipe.notes.get("aliases", []),
        "derived_from": recipe.notes.get("derived_from"),
        "status": recipe.status,
        "error": recipe.error or None,
        "mode": recipe.mode.value if recipe.mode else None,
        "family": recipe.family,
        "modality": recipe.modality,
        "hf_model_ids": list(recipe.hf_model_ids),
        "forward_step": recipe.forward_step,
        "source": recipe.source,
        "inputs": recipe.notes.get("inputs"),
        "model_class": recipe.notes.get("model_class"),
    }


def _parallelism(recipe: Recipe, config: RunConfig) -> Section:
    layout = view_layout(config)
    fits = recipe.gpus is not None and layout.fits_world(recipe.gpus)
    return {
        "gpus": recipe.gpus,
        "gpu_type": recipe.gpu_type,
        "minimum_gpus": layout.minimum_world_size,
        "tp": layout.tp,
        "pp": layout.pp,
        "vp": layout.vp,
        "cp": layout.cp,
        "ep": layout.ep,
        "etp": layout.etp,
        "sequence_parallel": layout.sequence_parallel,
        "dp": layout.data_parallel_size(recipe.gpus) if fits and recipe.gpus else None,
        "fits_its_gpus": fits if recipe.gpus is not None else None,
    }


def _batch(recipe: Recipe, config: RunConfig) -> Section:
    layout = view_layout(config)
    gbs, mbs = config.get("train.global_batch_size", None), config.get("train.micro_batch_size", None)
    accumulation = None
    if recipe.gpus is not None and layout.fits_world(recipe.gpus) and isinstance(gbs, int) and isinstance(mbs, int):
        per_step = mbs * layout.data_parallel_size(recipe.gpus)
        accumulation = gbs // per_step if gbs % per_step == 0 else None
    return {
        "seq_length": view_seq_length(config),
        "global_batch_size": gbs,
        "micro_batch_size": mbs,
        "num_microbatches": accumulation,
        "train_iters": config.get("train.train_iters", None),
        "train_samples": config.get("train.train_samples", None),
    }


def _optimizer(values: Mapping[str, Any]) -> Section:
    return {
        "optimizer": values.get("optimizer.optimizer"),
        "lr": values.get("optimizer.lr"),
        "min_lr": values.get("optimizer.min_lr"),
        "schedule": values.get("scheduler.lr_decay_style"),
        "warmup_iters": values.get("scheduler.lr_warmup_iters"),
        "warmup_fraction": values.get("scheduler.lr_warmup_fraction"),
        "decay_iters": values.get("scheduler.lr_decay_iters"),
        "weight_decay": values.get("optimizer.weight_decay"),
        "scheduled_weight_decay": [values.get("scheduler.start_weight_decay"), values.get("scheduler.end_weight_decay")],
        "adam_betas": [values.get("optimizer.adam_beta1"), values.get("optimizer.adam_beta2")],
        "adam_eps": values.get("optimizer.adam_eps"),
        "clip_grad": values.get("optimizer.clip_grad"),
        "use_distributed_optimizer": values.get("ddp.use_distributed_optimizer"),
        "use_precision_aware_optimizer": values.get("optimizer.use_precision_aware_optimizer"),
    }


def _performance(values: Mapping[str, Any]) -> Section:
    moe = values.get("model.num_moe_experts")
    preset = values.get("mixed_precision")
    return {
        "precision": preset if isinstance(preset, str) else _precision(values),
        "grad_reduce_in_fp32": values.get("mixed_precision.grad_reduce_in_fp32"),
        "recompute": values.get("model.recompute_granularity"),
        "recompute_method": values.get("model.recompute_method"),
        "recompute_num_layers": values.get("model.recompute_num_layers"),
        "recompute_modules": values.get("model.recompute_modules") if values.get("model.recompute_granularity") else None,
        "cuda_graph": values.get("model.cuda_graph_impl"),
        "cuda_graph_scope": _graph_scope(values),
        "attention_backend": values.get("model.attention_backend"),
        "moe_dispatcher": values.get("model.moe_token_dispatcher_type") if moe else None,
        "moe_dispatcher_backend": values.get("model.moe_flex_dispatcher_backend") if moe else None,
        "use_megatron_fsdp": values.get("ddp.use_megatron_fsdp"),
        "tp_comm_overlap": values.get("comm_overlap.tp_comm_overlap"),
        "overlap_grad_reduce": values.get("ddp.overlap_grad_reduce"),
        "overlap_param_gather": values.get("ddp.overlap_param_gather"),
    }


def _graph_scope(values: Mapping[str, Any]) -> Any:
    """Return what is captured; None without graphs.

    The deprecated `cuda_graph_scope` replaces `cuda_graph_modules` wherever it is set.
    Source: Megatron-Core transformer_config.py:2383 @ 0.19.2. Evidence: enforced-upstream.
    """
    if values.get("model.cuda_graph_impl") in (None, "none"):
        return None
    scope = values.get("model.cuda_graph_scope")
    captured = values.get("model.cuda_graph_modules") if scope is None else scope
    return [str(item).rpartition(".")[2] for item in captured] if isinstance(captured, list) else captured


def _precision(values: Mapping[str, Any]) -> str | None:
    if values.get("mixed_precision._class") is None:
        return "bf16" if values.get("model.bf16") else None
    base = "bf16" if values.get("mixed_precision.bf16") else "fp16" if values.get("mixed_precision.fp16") else "fp32"
    for name in ("fp4", "fp8"):
        if values.get(f"mixed_precision.{name}"):
            return f"{base} with {name} ({values.get(f'mixed_precision.{name}_recipe')})"
    return base


def _data(values: Mapping[str, Any], recipe: Recipe) -> Section:
    name = next(
        (
            values[path]
            for path in (
                "dataset.hf_dataset.dataset_name",
                "dataset.hf_dataset.path_or_dataset",
                "dataset.source.path_or_dataset",
            )
            if isinstance(values.get(path), str)
        ),
        None,
    )
    mock = values.get("dataset._class") == "GPTDatasetConfig" and values.get("dataset.blend") is None
    return {
        "dataset": values.get("dataset._class"),
        "default_preset": "mock" if mock else PRESET_BY_SOURCE.get(str(name), name),
        "packed": bool(values.get("dataset.enable_offline_packing") or values.get("dataset.packed_sequence_specs._class")),
        "tokenizer": values.get("tokenizer.tokenizer_type"),
        "tokenizer_model": values.get("tokenizer.tokenizer_model"),
        "tokenizers_read": recipe.notes.get("tokenizers_read"),
    }


def _peft(values: Mapping[str, Any], recipe: Recipe) -> Section:
    fields = {path[5:]: value for path, value in sorted(values.items()) if path.startswith("peft.")}
    return {**fields, "with_dora": dict(recipe.dora_fields)} if recipe.dora_fields else fields
