"""What this engine cannot do: refused by name, with the engine that can, or replaced where it only changes execution.

Start reading at `check_model`.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autorecipe.config.variants import variant_names
from autorecipe.config.views import view_layout
from autorecipe.engine import compat, standin
from autorecipe.engine.options import EngineOptions
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.run import RunConfig


def words(text: str) -> frozenset[str]:
    """Return the words of a text as a set (for long lists of field names)."""
    return frozenset(text.split())


BRIDGE_HINT = "add --engine bridge to start Megatron Bridge with this configuration"
CODE = "engine-unsupported"


@dataclass(frozen=True, kw_only=True)
class ExecutionRule:
    """An execution-only field that is replaced on this machine.

    Attributes:
        name: field of the transformer configuration.
        given: value that cannot be honoured, or None for any value that is set.
        used: value used in its place.
        why: reason, as a clause.
    """

    name: str
    given: Any = None
    used: Any = False
    why: str

    def applies(self, value: Any) -> bool:
        """Return whether a value is one that cannot be honoured."""
        if self.given is not None:
            return bool(value == self.given)
        return bool(value) and value != self.used


def check_model(run: RunConfig) -> None:
    """Refuse architectures and layouts that this engine cannot build.

    Raises:
        UsageError: every reason at once.
    """
    problems = [problem for check in _CHECKS if (problem := check(run)) is not None]
    if problems:
        raise UsageError(problems)


def unknown_field(path: str, value: Any) -> Problem:
    """Describe a model field that neither this engine nor the installed Megatron-Core knows."""
    return Problem(
        code=CODE,
        path=path,
        message=f"={value!r} is not known to Megatron-Core {compat.core_release()} and would have no effect here",
        hint=BRIDGE_HINT,
    )


def is_inert(name: str, value: Any, defaults: Mapping[str, Any], *, latent: bool) -> bool:
    """Return whether an unknown field has a value that means "off".

    Args:
        name: field name.
        value: its value.
        defaults: values that mean "off" although they are not empty.
        latent: whether the model uses latent attention; its fields mean nothing elsewhere.
    """
    if name in defaults:
        return value is None or value == [] or bool(value == defaults[name])
    if name == "transformer_layer_spec":
        return value is None or any(spec in re.findall(r"\w+", str(value)) for spec in _STANDARD_SPECS)
    if value is None or value is False or value in (0, "", "none", [], {}):
        return True
    return name in _LATENT_FIELDS and not latent


def execution_rules(options: EngineOptions) -> list[ExecutionRule]:
    """Return the replacements that this machine needs."""
    rules: list[ExecutionRule] = []
    if not compat.has_transformer_engine():
        why = "it needs Transformer Engine, which is not installed"
        rules += [ExecutionRule(name=name, why=why) for name in _NEED_TRANSFORMER_ENGINE]
        rules.append(ExecutionRule(name="cross_entropy_fusion_impl", given="te", used="native", why=why))
        rules.append(ExecutionRule(name="cuda_graph_impl", used="none", why=why))
    if not _has_module("deep_ep"):
        why = "its packages (DeepEP, HybridEP) are not installed"
        rules.append(ExecutionRule(name="moe_token_dispatcher_type", given="flex", used="alltoall", why=why))
        rules.append(ExecutionRule(name="moe_enable_deepep", why=why))
    if not _has_module("apex"):
        why = "it needs Apex's kernels, which are not installed"
        rules += [ExecutionRule(name=name, why=why) for name in ("persist_layer_norm", "memory_efficient_layer_norm")]
        rules.append(ExecutionRule(name="gradient_accumulation_fusion", why=why))
    if not _has_module("scaled_masked_softmax_cuda"):
        rules.append(ExecutionRule(name="masked_softmax_fusion", why="its CUDA extension is not installed"))
    if standin.is_active():
        why = "there is no GPU"
        rules += [ExecutionRule(name=name, why=why) for name in ("cpu_offloading", "fine_grained_activation_offloading")]
    return rules


def pipeline_rules(stages: int, *, is_interleaved: bool) -> list[ExecutionRule]:
    """Return the replacements that interleaved pipeline stages need.

    The interleaved schedule frees a stage's output once its message is under way, and waits for the message later
    (`forward_backward_pipelining_with_interleaving`, megatron/core/pipeline_parallel/schedules.py @ core 0.16.1). On CUDA the
    stream keeps the order; Gloo then sends whatever lies in the freed memory. Messages of one batch to a rank that is both
    neighbours are matched in the wrong order without overlap: Megatron-LM refuses that (megatron/training/arguments.py:1008).

    Args:
        stages: pipeline parallel size.
        is_interleaved: whether a rank holds several stages.
    """
    if not is_interleaved:
        return []
    rules = []
    if stages == 2:
        why = "both neighbours of a stage are the same rank, which would mix up batched messages"
        rules.append(ExecutionRule(name="overlap_p2p_comm", given=False, used=True, why=why))
        rules.append(ExecutionRule(name="batch_p2p_comm", why=why))
    if standin.is_active():
        why = "there is no GPU, and outputs would be freed while they are being sent"
        rules.append(ExecutionRule(name="deallocate_pipeline_outputs", why=why))
    return rules


def _hybrid(run: RunConfig) -> Problem | None:
    pattern = run.get("model.hybrid_layer_pattern", None) or run.get("model.hybrid_override_pattern", None)
    if not pattern and run.get("model.is_hybrid_model", None) is not True:
        return None
    return _refuse("model.hybrid_layer_pattern", "hybrid models (Mamba layers) need the mamba-ssm kernels")


def _linear_attention(run: RunConfig) -> Problem | None:
    variant = run.get("model.experimental_attention_variant", None)
    if not variant:
        return None
    return _refuse("model.experimental_attention_variant", f"attention variant {variant!r} is not built by this engine")


def _vision(run: RunConfig) -> Problem | None:
    towers = [
        name
        for name in ("vision_config", "hf_config", "thinker_config", "sound_config", "vision_model_type")
        if run.get(f"model.{name}", None)
    ]
    if not towers:
        return None
    return _refuse(f"model.{towers[0]}", "multimodal models (vision and audio towers) are not built by this engine")


def _heterogeneous(run: RunConfig) -> Problem | None:
    if run.get("model.heterogeneous_block_specs", None) is not True:
        return None
    return _refuse("model.heterogeneous_block_specs", "layers of different shapes (Nemotron NAS) are not built by this engine")


def _fp8(run: RunConfig) -> Problem | None:
    for name in ("fp8", "fp4"):
        value = run.get(f"model.{name}", None)
        if value:
            message = f"{name}={value!r} needs Transformer Engine's kernels, which this engine does not drive"
            paddings = [f"model.{field}" for field in _PADS_FOR_LOW_PRECISION if run.get(f"model.{field}", None) is True]
            words = " ".join(["mixed_precision=bf16_mixed", *(f"{path}=false" for path in paddings)])
            hint = f"{BRIDGE_HINT}, or choose another arithmetic: {words}"
            return Problem(code=CODE, path=f"model.{name}", message=message, hint=hint)
    return None


def _sharded_data_parallel(run: RunConfig) -> Problem | None:
    for path in ("dist.use_megatron_fsdp", "dist.use_torch_fsdp2", "ddp.use_megatron_fsdp"):
        if run.get(path, None) is True:
            return _refuse(path, "fully sharded data parallelism is not driven by this engine; the distributed optimizer is")
    return None


def _latent_without_sequence_parallel(run: RunConfig) -> Problem | None:
    layout = view_layout(run)
    if run.get("model.multi_latent_attention", None) is not True or layout.tp == 1 or layout.sequence_parallel:
        return None
    return Problem(
        code=CODE,
        path="model.sequence_parallel",
        message=f"is off with tensor_model_parallel_size={layout.tp} and latent attention (MLA): the gradient of the shared "
        "rotary key would lack the other ranks' heads (measured: loss off by 1.6e-3 in 5 steps)",
        hint="set model.sequence_parallel=true",
    )


def _experts_without_sequence_parallel(run: RunConfig) -> Problem | None:
    layout = view_layout(run)
    if not run.get("model.num_moe_experts", None) or layout.tp == 1 or layout.sequence_parallel:
        return None
    return Problem(
        code=CODE,
        path="model.sequence_parallel",
        message=f"is off with tensor_model_parallel_size={layout.tp} and experts, which Megatron-Core refuses in training",
        hint="set model.sequence_parallel=true",
    )


def _own_model_class(run: RunConfig) -> Problem | None:
    name = run.get("model._class", None)
    if name in (None, "GPTModelProvider", "MLAModelProvider", *variant_names()):
        return None
    return _refuse("model", f"{name} builds a model of its own, beyond what its fields say")


def _attention_beyond_sdpa(run: RunConfig) -> Problem | None:
    if run.get("engine.modules", None) in ("core-local", "transformer-engine") or compat.has_transformer_engine():
        return None
    if run.get("model.qk_clip", None) is True or run.get("model.log_max_attention_logit", None) is True:
        return _refuse("model.qk_clip", "torch's scaled dot product attention does not report its largest score")
    return None


def _biased_experts(run: RunConfig) -> Problem | None:
    biased = run.get("model.add_bias_linear", True) is not False
    if not run.get("model.num_moe_experts", None) or not biased or compat.has_transformer_engine():
        return None
    if run.get("model.moe_grouped_gemm", None) is not True:
        message = "is off with model.add_bias_linear=True: single experts add their biases in place, which autograd refuses"
        return Problem(code=CODE, path="model.moe_grouped_gemm", message=message, hint="set model.moe_grouped_gemm=true")
    if view_layout(run).etp > 1:
        message = "is above 1 with model.add_bias_linear=True: every rank would add the experts' output bias"
        hint = "set model.expert_tensor_parallel_size=1"
        return Problem(code=CODE, path="model.expert_tensor_parallel_size", message=message, hint=hint)
    return None


def _refuse(path: str, message: str) -> Problem:
    return Problem(code=CODE, path=path, message=message, hint=BRIDGE_HINT)


@functools.cache
def _has_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


_CHECKS = (
    _own_model_class,
    _attention_beyond_sdpa,
    _biased_experts,
    _hybrid,
    _linear_attention,
    _vision,
    _heterogeneous,
    _fp8,
    _sharded_data_parallel,
    _latent_without_sequence_parallel,
    _experts_without_sequence_parallel,
)

_PADS_FOR_LOW_PRECISION = ("moe_router_padding_for_fp8", "moe_router_padding_for_quantization")

_NEED_TRANSFORMER_ENGINE = (
    "apply_rope_fusion",
    "tp_comm_overlap",
    "moe_permute_fusion",
    "moe_router_fusion",
    "use_te_rng_tracker",
    "use_te_activation_func",
    "use_transformer_engine_op_fuser",
    "fused_residual_rmsnorm",
    "delay_wgrad_compute",
    "overlap_moe_expert_parallel_comm",
    "enable_cuda_graph",
    "external_cuda_graph",
    "mla_down_proj_fusion",
    "fused_single_qkv_rope",
)

_LATENT_FIELDS = words(
    """q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim rope_type rotary_scaling_factor
    original_max_position_embeddings beta_fast beta_slow mscale mscale_all_dim cache_mla_latents mla_down_proj_fusion"""
)

# Layer specifications of Megatron Bridge that describe Megatron-Core's own layers.
_STANDARD_SPECS = words(
    """default_layer_spec transformer_engine_layer_spec transformer_engine_full_layer_spec local_layer_spec
    get_gpt_decoder_block_spec get_gpt_layer_with_transformer_engine_spec get_gpt_layer_local_spec"""
)
