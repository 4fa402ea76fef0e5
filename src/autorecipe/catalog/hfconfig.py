"""Reads a Hugging Face `config.json` as Megatron-side facts, without Bridge.

Covers decoder LLMs in the common spelling (Llama, Qwen, Gemma, GPT-OSS, DeepSeek, GLM, Mistral, Nemotron-H and relatives), and
the text part of multimodal ones. For a model that a release knows, its card is the better source: upstream's own conversion
made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autorecipe.errors import Problem, UsageError
from autorecipe.schema.value import FieldValue

NAMES = {
    "num_layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "ffn_hidden_size": ("intermediate_size", "ffn_dim", "n_inner"),
    "num_attention_heads": ("num_attention_heads", "n_head"),
    "num_query_groups": ("num_key_value_heads", "num_kv_heads", "num_attention_groups"),
    "kv_channels": ("head_dim",),
    "vocab_size": ("vocab_size",),
    "seq_length": ("max_position_embeddings", "n_positions"),
    "layernorm_epsilon": ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps"),
    "rotary_base": ("rope_theta",),
    "share_embeddings_and_output_weights": ("tie_word_embeddings",),
    "init_method_std": ("initializer_range",),
    "num_moe_experts": ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"),
    "moe_router_topk": ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k"),
    "moe_ffn_hidden_size": ("moe_intermediate_size",),
    "q_lora_rank": ("q_lora_rank",),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_head_dim": ("qk_nope_head_dim",),
    "qk_pos_emb_head_dim": ("qk_rope_head_dim",),
    "v_head_dim": ("v_head_dim",),
    "mtp_num_layers": ("num_nextn_predict_layers", "mtp_num_hidden_layers"),
    "mamba_num_heads": ("mamba_num_heads",),
    "mamba_head_dim": ("mamba_head_dim",),
    "mamba_state_dim": ("ssm_state_size",),
    "mamba_num_groups": ("n_groups",),
    "linear_num_key_heads": ("linear_num_key_heads",),
    "linear_num_value_heads": ("linear_num_value_heads",),
    "linear_key_head_dim": ("linear_key_head_dim",),
    "linear_value_head_dim": ("linear_value_head_dim",),
    "linear_conv_kernel_dim": ("linear_conv_kernel_dim",),
    "hybrid_layer_pattern": ("hybrid_override_pattern",),
    "moe_latent_size": ("moe_latent_size",),
}
"""Fact -> keys of `config.json`, the first that is there."""

REQUIRED = ("num_layers", "hidden_size", "num_attention_heads", "vocab_size")

QK_NORM_TYPES = ("qwen3", "gemma3", "exaone4", "exaone_moe", "olmoe", "glm4_moe")
LAYERNORM_TYPES = ("gpt2", "gpt_neox", "opt", "bloom", "falcon", "starcoder2", "phi")
QKV_BIAS_TYPES = ("qwen2", "qwen2_moe", "qwen2_5", "qwen2_audio")
DENSE_GATED_EXCEPTIONS = ("gpt2", "gpt_neox", "opt", "bloom", "falcon", "starcoder2", "phi", "nemotron")

BLOCK_LETTERS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
"""Nemotron-H's block types as Megatron's pattern letters."""


def facts_from_config(config: Mapping[str, Any]) -> tuple[dict[str, FieldValue], tuple[str, ...]]:
    """Return facts and the names of those that the configuration does not state.

    Raises:
        UsageError: an encoder, a diffusion model, or a file without the sizes of a decoder.
    """
    text = text_part(config)
    model_type = str(text.get("model_type", config.get("model_type", "")))
    facts: dict[str, FieldValue] = {}
    for name, keys in NAMES.items():
        value = next((text[key] for key in keys if text.get(key) is not None), None)
        if value is not None:
            facts[name] = value
    kinds = text.get("layers_block_type")
    if isinstance(kinds, list):
        facts.setdefault("hybrid_layer_pattern", "".join(BLOCK_LETTERS.get(str(kind), "?") for kind in kinds))
    if isinstance(facts.get("hybrid_layer_pattern"), str):
        facts.setdefault("num_layers", len(facts["hybrid_layer_pattern"]))
    absent = [name for name in REQUIRED if not isinstance(facts.get(name), int)]
    if absent:
        raise UsageError(
            [
                Problem(
                    code="bad-config",
                    path=" or ".join(NAMES[name]),
                    message=f"is missing: no decoder LLM of model_type {model_type or 'unknown'!r} can be read from this file",
                    hint="give the config.json of a decoder language model",
                )
                for name in absent
            ]
        )
    rope = text.get("rope_parameters") or {}
    if "rotary_base" not in facts and isinstance(rope, Mapping) and isinstance(rope.get("rope_theta"), int | float):
        facts["rotary_base"] = rope["rope_theta"]
    facts.setdefault("share_embeddings_and_output_weights", bool(config.get("tie_word_embeddings", False)))
    facts |= _style(text, model_type)
    if facts.get("num_moe_experts"):
        facts |= _experts(text, facts, model_type)
    if facts.get("kv_lora_rank"):
        facts["multi_latent_attention"] = True
        facts["qk_layernorm"] = True
    if facts.get("linear_num_value_heads"):
        facts |= _linear_attention(text)
    expected = ("ffn_hidden_size", "num_query_groups", "seq_length", "rotary_base")
    return dict(sorted(facts.items())), tuple(name for name in expected if name not in facts)


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the language model's part of a multimodal configuration, or the whole."""
    for key in ("text_config", "llm_config", "language_config", "thinker_config"):
        part = config.get(key)
        if isinstance(part, Mapping):
            return text_part(part)
    return config


def _style(text: Mapping[str, Any], model_type: str) -> dict[str, FieldValue]:
    activation = str(text.get("hidden_act") or text.get("hidden_activation") or text.get("mlp_hidden_act") or "silu")
    layernorm = any(model_type.startswith(name) for name in LAYERNORM_TYPES)
    squared = activation == "relu2"
    attention_bias = text.get("attention_bias")
    return {
        "normalization": "LayerNorm" if layernorm else "RMSNorm",
        "activation_func": activation,
        "gated_linear_unit": not squared and model_type not in DENSE_GATED_EXCEPTIONS,
        "add_bias_linear": model_type in ("gpt_oss", "gpt2", "gpt_neox", "opt", "bloom"),
        "add_qkv_bias": bool(attention_bias) or model_type in QKV_BIAS_TYPES or model_type.startswith("qwen2"),
        "qk_layernorm": bool(text.get("use_qk_norm")) or any(model_type.startswith(name) for name in QK_NORM_TYPES[:4]),
        "softmax_type": "learnable" if model_type == "gpt_oss" else "vanilla",
        "position_embedding_type": "learned_absolute" if model_type in ("gpt2", "opt") else "rope",
        "attention_output_gate": bool(text.get("attn_output_gate")) or model_type in ("qwen3_next",),
    }


def _experts(text: Mapping[str, Any], facts: Mapping[str, Any], model_type: str) -> dict[str, FieldValue]:
    shared = (
        text.get("shared_expert_intermediate_size")
        or text.get("moe_shared_expert_intermediate_size")
        or text.get("share_expert_dim")
    )
    size = facts.get("moe_ffn_hidden_size") or facts.get("ffn_hidden_size")
    count = text.get("n_shared_experts") or text.get("num_shared_experts")
    if not shared and isinstance(count, int) and isinstance(size, int):
        shared = count * size
    layers = int(facts["num_layers"])
    dense = text.get("first_k_dense_replace")
    sparse_step = text.get("decoder_sparse_step", 1)
    flags = [int(index >= (dense or 0)) for index in range(layers)]
    mlp_only = text.get("mlp_only_layers") or []
    flags = [int(flag and index not in mlp_only and (index + 1) % sparse_step == 0) for index, flag in enumerate(flags)]
    result: dict[str, FieldValue] = {"moe_ffn_hidden_size": size, "moe_layer_freq": flags}
    if shared:
        result["moe_shared_expert_intermediate_size"] = shared
        result["moe_shared_expert_gate"] = model_type.startswith(("qwen2_moe", "qwen3_next", "qwen3_5"))
    return result


def _linear_attention(text: Mapping[str, Any]) -> dict[str, FieldValue]:
    kinds = text.get("layer_types")
    if isinstance(kinds, list):
        frequency: FieldValue = [int(kind == "linear_attention") for kind in kinds]
    else:
        frequency = text.get("full_attention_interval", 4)
    return {
        "experimental_attention_variant": "gated_delta_net",
        "linear_attention_freq": frequency,
        "attention_output_gate": True,
        "qk_layernorm": True,
    }
