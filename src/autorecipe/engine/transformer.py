"""From `model.*` of a run to Megatron-Core's transformer configuration.

Every field is used, known not to matter here, adjusted with a note (execution only), or refused by name: nothing is dropped
in silence. Start reading at `plan_transformer`.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from autorecipe.config.layers import layer_of
from autorecipe.config.variants import Variant, read_variant
from autorecipe.config.views import moe_layer_pattern, view_layout
from autorecipe.engine import compat, refusals
from autorecipe.engine.options import EngineOptions, read_options
from autorecipe.engine.precision import parse_dtype, parse_number, view_precision
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.layer import Layer
from autorecipe.schema.run import RunConfig

# Read by `engine.build` where the model is put together.
BUILD_FIELDS = refusals.words(
    """fp16_lm_cross_entropy parallel_output share_embeddings_and_output_weights make_vocab_size_divisible_by
    position_embedding_type rotary_base rotary_percent rope_scaling rope_scaling_factor seq_len_interpolation_factor
    seq_length scatter_embedding_sequence_parallel vocab_size should_pad_vocab"""
)

# Without influence on what this engine builds.
IRRELEVANT_FIELDS = refusals.words(
    """hf_model_id hf_model_revision generation_config tp_comm_overlap_cfg init_model_with_meta_device
    use_arbitrary_attention_mask use_transformer_engine_full_layer_spec transformer_impl mtp_enabled timers
    finalize_model_grads_func grad_scale_func no_sync_func grad_sync_func param_sync_func moe_grad_scale_func
    mtp_grad_scale_func quant_recipe async_tensor_model_parallel_allreduce pipeline_model_parallel_comm_backend
    max_position_embeddings config_logger_dir test_mode high_priority_a2a_comm_stream"""
)

# What a release without the field does; any other value is refused there.
NEWER_DEFAULTS: Mapping[str, Any] = {
    "gtp_weight_remat_size": 1,
    "expert_gtp_weight_remat_size": 1,
    "dsa_indexer_topk_freq": 1,
    "dsa_kernel_backend": "none",
    "dsa_indexer_rotate_activation": True,
    "dsa_indexer_scoring_relu": True,
    "mup_width_mult": 1.0,
    "mup_embedding_mult": 1.0,
    "mup_output_mult": 1.0,
    "mup_attn_scale_power": 1.0,
    "moe_hybridep_num_sms_preprocessing": 108,
    "cuda_graph_modules": "full",
    "inference_grouped_gemm_backend": "vllm",
    "inference_moe_token_dispatcher_type": "nvls",
    "mlp_chunks_for_training": 1,
    "activation_offload_fraction": 1.0,
    "moe_paged_stash_page_size": 64,
    "moe_paged_stash_buffer_size_factor_cuda": 1.1,
    # Llama 3.1's rotary scaling as Megatron-Core has it. Converters wrote the numbers into recipes; nothing reads them.
    "rope_scaling_low_freq_factor": 1.0,
    "rope_scaling_high_freq_factor": 4.0,
    "rope_scaling_original_max_position_embeddings": 8192,
}

_ACTIVATIONS = {
    "gelu": "torch.nn.functional:gelu",
    "silu": "torch.nn.functional:silu",
    "swish": "torch.nn.functional:silu",
    "relu": "torch.nn.functional:relu",
    "squared_relu": "megatron.core.activations:squared_relu",
    "fast_gelu": "megatron.core.activations:fast_gelu",
    "quick_gelu": "megatron.core.activations:quick_gelu",
}


@dataclass(frozen=True, kw_only=True)
class Adjustment:
    """One execution-only setting that this machine cannot honour, and what is used in its place.

    Attributes:
        path: configuration path.
        given: value of the run.
        used: value that acts; None where nothing takes the setting's place.
        why: reason, as a clause.
    """

    path: str
    given: Any
    used: Any
    why: str

    def render(self) -> str:
        """Render as one line."""
        instead = "" if self.used is None else f"; using {self.used}"
        return f"{self.path}={self.given} is not used: {self.why}{instead}"


@dataclass(frozen=True, kw_only=True)
class TransformerPlan:
    """Arguments of the transformer configuration, before it is made.

    Attributes:
        latent: whether it is a latent-attention (MLA) configuration.
        arguments: constructor arguments by name.
        extras: attributes set on the finished configuration (YaRN of plain attention).
        adjustments: execution-only settings that were replaced.
    """

    latent: bool
    arguments: Mapping[str, Any]
    extras: Mapping[str, Any]
    adjustments: tuple[Adjustment, ...]


def build_transformer_config(run: RunConfig) -> Any:
    """Return Megatron-Core's `TransformerConfig` (or `MLATransformerConfig`) of a run.

    Raises:
        UsageError: fields that this engine cannot honour, all at once, and whatever Megatron-Core itself rejects.
    """
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    plan = plan_transformer(run)
    kind = MLATransformerConfig if plan.latent else TransformerConfig
    try:
        config = kind(**plan.arguments)
    except (ValueError, AssertionError, NotImplementedError) as error:
        raise UsageError(Problem(code="megatron-core", path="model", message=str(error) or type(error).__name__)) from error
    for name, value in plan.extras.items():
        setattr(config, name, value)
    config.attention_kernel = read_options(run).attention_kernel
    config.variant = read_variant(run)
    return config


def plan_transformer(run: RunConfig) -> TransformerPlan:
    """Sort every `model.*` value of a run into arguments, adjustments and refusals.

    Raises:
        UsageError: every refused field, and every architecture this engine cannot build.
    """
    compat.prepare()
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    options = read_options(run)
    refusals.check_model(run)
    latent = run.get("model.multi_latent_attention", None) is True
    kind = MLATransformerConfig if latent else TransformerConfig
    known = {item.name: item for item in dataclasses.fields(kind)}
    problems: list[Problem] = []
    variant = read_variant(run)
    theirs = frozenset() if variant is None else variant.fields
    arguments: dict[str, Any] = {}
    extras: dict[str, Any] = {}
    adjustments: list[Adjustment] = []
    for path, value in run.values.items():
        name = path.removeprefix("model.")
        if name == path or "." in name or name.startswith("_") or name in IRRELEVANT_FIELDS or name in theirs:
            continue
        if name == "transformer_layer_spec" and variant is not None and _is_spec_of(variant, value):
            continue
        if name in known and not (name in BUILD_FIELDS and not latent):
            if not (value is None and _has_own_default(known[name])):
                arguments[name] = _decode(name, value)
        elif name.startswith("yarn_"):
            if run.get("model.position_embedding_type", None) == "yarn":
                extras[name] = value  # Megatron-Core reads them off the configuration, unset ones too
        elif name not in BUILD_FIELDS and not refusals.is_inert(name, value, NEWER_DEFAULTS, latent=latent):
            if layer_of(path)[0] in (Layer.EXECUTION, Layer.IO):
                why = f"Megatron-Core {compat.core_release()} has no such setting, and it does not change what is trained"
                adjustments.append(Adjustment(path=path, given=value, used=None, why=why))
            else:
                problems.append(refusals.unknown_field(path, value))
    if problems:
        raise UsageError(problems)
    _complete(run, arguments)
    if variant is not None:
        arguments.update(variant.arguments)
    adjustments += _adjust(arguments, options)
    return TransformerPlan(latent=latent, arguments=arguments, extras=extras, adjustments=tuple(adjustments))


def _is_spec_of(variant: Variant, value: Any) -> bool:
    return variant.layer_spec is not None and str(value).rsplit(":", 1)[-1] == variant.layer_spec


def _has_own_default(item: dataclasses.Field[Any]) -> bool:
    """Return whether unset means the field's default, because the field itself knows no unset state."""
    if item.name == "q_lora_rank":  # typed as a number, and unset means that queries are not compressed
        return False
    return item.default is not None and "Optional" not in str(item.type) and "None" not in str(item.type)


def _decode(name: str, value: Any) -> Any:
    if name.endswith("_dtype") and name not in ("moe_router_dtype",):
        return parse_dtype(value)
    if name == "attention_backend":
        from megatron.core.transformer.enums import AttnBackend

        return AttnBackend[str(value).rsplit(".", 1)[-1]] if value is not None else AttnBackend.auto
    if name == "activation_func" and isinstance(value, str):
        return resolve_callable(_ACTIVATIONS.get(value, value))
    if isinstance(value, str) and (name.endswith("_init_method") or name == "init_method"):
        return resolve_callable(value)
    if name == "window_size" and isinstance(value, list):
        return tuple(value)
    return list(value) if isinstance(value, tuple) else parse_number(value)


def resolve_callable(text: str) -> Any:
    """Import what `module:qualname` names.

    Raises:
        UsageError: nothing by that name.
    """
    module, _, qualname = text.partition(":")
    if not qualname:
        module, _, qualname = text.rpartition(".")
    try:
        target: Any = importlib.import_module(module)
        for part in qualname.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError, ValueError) as error:
        hint = f"use one of {', '.join(sorted(_ACTIVATIONS))}, or module:name"
        raise UsageError(Problem(message=f"no function {text!r} can be imported: {error}", hint=hint)) from error
    return target


def _complete(run: RunConfig, arguments: dict[str, Any]) -> None:
    """Write what follows from the layout and the precision over what the fields say."""
    layout, precision = view_layout(run), view_precision(run)
    arguments.update(
        tensor_model_parallel_size=layout.tp,
        pipeline_model_parallel_size=layout.pp,
        virtual_pipeline_model_parallel_size=layout.vp if layout.vp > 1 else None,
        context_parallel_size=layout.cp,
        expert_model_parallel_size=layout.ep,
        expert_tensor_parallel_size=layout.etp if arguments.get("num_moe_experts") else None,
        sequence_parallel=layout.sequence_parallel,
        bf16=precision.bf16,
        fp16=precision.fp16,
        params_dtype=precision.dtype,
        pipeline_dtype=precision.dtype,
        autocast_dtype=precision.dtype,
        enable_autocast=False,
        use_cpu_initialization=bool(arguments.get("use_cpu_initialization")),
    )
    if layout.vp > 1 and "overlap_p2p_comm" not in run.values:
        arguments["overlap_p2p_comm"] = True
    if arguments.get("overlap_p2p_comm"):
        arguments["batch_p2p_comm"] = False
    if arguments.get("num_moe_experts"):
        pattern = moe_layer_pattern(arguments.get("moe_layer_freq", 1), arguments["num_layers"])
        arguments["moe_layer_freq"] = [int(flag) for flag in pattern]
    else:
        arguments.pop("moe_layer_freq", None)


def _adjust(arguments: dict[str, Any], options: EngineOptions) -> list[Adjustment]:
    """Replace execution-only settings that need a package or a device that is not there."""
    found: list[Adjustment] = []
    stages, virtual = arguments["pipeline_model_parallel_size"], arguments["virtual_pipeline_model_parallel_size"]
    for rule in (*refusals.execution_rules(options), *refusals.pipeline_rules(stages, is_interleaved=virtual is not None)):
        given = arguments.get(rule.name)
        if rule.applies(given):
            arguments[rule.name] = rule.used
            found.append(Adjustment(path=f"model.{rule.name}", given=given, used=rule.used, why=rule.why))
    return found


def describe_adjustments(run: RunConfig) -> list[str]:
    """Return one line for each execution-only setting that is replaced on this machine."""
    return [adjustment.render() for adjustment in plan_transformer(run).adjustments]


def parameter_dtype(config: Any) -> torch.dtype:
    """Return the parameter type of a finished configuration."""
    dtype: torch.dtype = config.params_dtype
    return dtype
