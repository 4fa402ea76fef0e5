"""A model without a recipe: its configuration from a Hugging Face id of the catalog, or from a local `config.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autorecipe.errors import EnvironmentProblem, Problem, UsageError
from autorecipe.estimate.defaults import tuned_fields
from autorecipe.schema.hardware import Gpu
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import FieldValue

BATCH_DEFAULTS: Mapping[str, FieldValue] = {
    "train.global_batch_size": 512,
    "train.micro_batch_size": 1,
    "dataset.seq_length": 4096,
    "model.seq_length": 4096,
}
"""What a run needs and a model does not say."""

QK_NORM_FAMILIES = ("qwen3", "olmo2", "olmoe", "gemma3", "gemma4", "glm4_moe", "exaone4", "minimax")
"""`model_type` prefixes whose attention normalizes queries and keys. Source: transformers' modeling files. Evidence:
published.
"""


def resolve_model(
    model: str,
    overrides: Sequence[str] = (),
    *,
    release: str | None = None,
    world_size: int | None = None,
    gpu: Gpu | None = None,
) -> RunConfig:
    """Return a configuration that trains a model, with the settings of a tuned run for what neither the model nor an override
    decides.

    Args:
        model: Hugging Face id that the catalog knows, or a path to a `config.json` or its directory.
        overrides: texts in the override grammar.
        release: Bridge release of the catalog; the newest shipped one by default.
        world_size: number of GPUs, or None.
        gpu: GPU type, or None; some of the settings depend on it.

    Raises:
        UsageError: an unknown id, or a file that is not a model configuration.
    """
    from autorecipe.catalog.store import open_catalog
    from autorecipe.config.resolve import resolve_config
    from autorecipe.schema.recipe import bare_recipe

    catalog = open_catalog(release)
    fields = {f"model.{name}": value for name, value in _facts(model, catalog).items()}
    fields |= {**BATCH_DEFAULTS, "mixed_precision.bf16": True, "optimizer.use_distributed_optimizer": True}
    fields |= {"ddp.use_distributed_optimizer": True, **tuned_fields(is_moe=bool(fields.get("model.num_moe_experts")), gpu=gpu)}
    recipe = bare_recipe(model, fields, release=catalog.release, hf_model_ids=(model,))
    return resolve_config(recipe, catalog.schema(), overrides, world_size=world_size)


def _facts(model: str, catalog: Any) -> Mapping[str, FieldValue]:
    path = Path(model)
    if path.exists():
        return read_model_config(path / "config.json" if path.is_dir() else path)
    facts: Mapping[str, FieldValue] = catalog.model_card(model).facts
    return facts


def read_model_config(path: Path) -> Mapping[str, FieldValue]:
    """Translate a Hugging Face `config.json` of a decoder model to Megatron's field names.

    Covers dense and mixture-of-experts transformers with grouped-query or multi-latent attention; the text part of a
    multimodal one.

    Raises:
        UsageError: keys that are needed are absent.
        EnvironmentProblem: the file is not a JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EnvironmentProblem(Problem(code="bad-config", path=str(path), message=f"cannot be read: {error}")) from None
    if not isinstance(content, dict):
        raise EnvironmentProblem(Problem(code="bad-config", path=str(path), message="not a JSON object"))
    text = content.get("text_config")
    config: Mapping[str, Any] = text if isinstance(text, dict) else content
    needed = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    missing = [name for name in needed if not isinstance(config.get(name), int)]
    if missing:
        raise UsageError(
            [Problem(code="bad-config", path=str(path), message=f"{name} is absent: not a decoder model") for name in missing]
        )
    return _translate(config)


def _translate(config: Mapping[str, Any]) -> dict[str, FieldValue]:
    kind = str(config.get("model_type", ""))
    activation = str(config.get("hidden_act") or config.get("mlp_hidden_act") or "silu")
    layers = config["num_hidden_layers"]
    facts: dict[str, FieldValue] = {
        "num_layers": layers,
        "hidden_size": config["hidden_size"],
        "ffn_hidden_size": config.get("intermediate_size") or 4 * config["hidden_size"],
        "num_attention_heads": config["num_attention_heads"],
        "num_query_groups": config.get("num_key_value_heads") or config["num_attention_heads"],
        "kv_channels": config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        "vocab_size": config["vocab_size"],
        "share_embeddings_and_output_weights": bool(config.get("tie_word_embeddings", False)),
        "normalization": "LayerNorm" if "layer_norm_eps" in config or "norm_eps" in config else "RMSNorm",
        "activation_func": activation,
        "gated_linear_unit": activation not in ("relu2", "gelu_new", "relu"),
        "add_qkv_bias": bool(config.get("attention_bias") or config.get("qkv_bias") or kind in ("qwen2", "qwen2_moe")),
        "add_bias_linear": bool(config.get("mlp_bias", False)),
        "position_embedding_type": "rope",
        "qk_layernorm": kind.startswith(QK_NORM_FAMILIES) or bool(config.get("use_qk_norm")),
    }
    if isinstance(config.get("sliding_window"), int) and config.get("use_sliding_window", True):
        facts["window_size"] = [config["sliding_window"] - 1, 0]
    experts = config.get("num_experts") or config.get("num_local_experts") or config.get("n_routed_experts")
    if experts:
        expert_ffn = config.get("moe_intermediate_size") or config.get("intermediate_size")
        shared = config.get("shared_expert_intermediate_size") or (config.get("n_shared_experts") or 0) * (expert_ffn or 0)
        dense = config.get("first_k_dense_replace") or 0
        facts |= {
            "num_moe_experts": experts,
            "moe_router_topk": config.get("num_experts_per_tok") or 1,
            "moe_ffn_hidden_size": expert_ffn,
            "moe_shared_expert_intermediate_size": shared or None,
            "moe_layer_freq": [0] * dense + [1] * (layers - dense),
        }
    if config.get("kv_lora_rank"):
        facts |= {
            "multi_latent_attention": True,
            "q_lora_rank": config.get("q_lora_rank"),
            "kv_lora_rank": config["kv_lora_rank"],
            "qk_head_dim": config.get("qk_nope_head_dim"),
            "qk_pos_emb_head_dim": config.get("qk_rope_head_dim"),
            "v_head_dim": config.get("v_head_dim"),
        }
    if config.get("num_nextn_predict_layers"):
        facts["mtp_num_layers"] = config["num_nextn_predict_layers"]
    return facts
