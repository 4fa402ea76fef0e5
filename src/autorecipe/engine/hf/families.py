"""What a Hugging Face `config.json` means for this engine's model, strictly: what is not understood is refused. No torch.

Source: transformers 5.12 configuration classes of the families below. Evidence: measured (equal logits, tests/e2e).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autorecipe.errors import EnvironmentProblem, Problem, UsageError
from autorecipe.schema.run import RunConfig

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe")

_LLAMA3_SCALING = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Constants of Llama 3.1's scaled positions that Megatron-Core has built in. Source: its rotary_pos_embedding.py, 0.16.1."""


@dataclass(frozen=True, kw_only=True)
class HfModel:
    """A model as its Hugging Face folder describes it.

    Attributes:
        family: `model_type`.
        dtype: of the weights: `float32`, `bfloat16` or `float16`.
        values: `model.*` and precision fields of a run that builds it.
    """

    family: str
    dtype: str
    values: Mapping[str, Any]

    def as_run(self) -> RunConfig:
        """Return a run that builds the model on one process, out of this project's modules."""
        return RunConfig(values={**self.values, "engine.modules": "own"})


def read_hf_model(folder: Path) -> HfModel:
    """Read `config.json` of a folder.

    Raises:
        EnvironmentProblem: the file is not there or not JSON.
        UsageError: a family or a setting that is not converted, all at once.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        hint = "give a folder that a transformers model was saved to"
        raise EnvironmentProblem(
            Problem(path=str(path), code="bad-config", message=f"cannot be read: {error}", hint=hint)
        ) from None
    family = str(config.get("model_type", ""))
    if family not in FAMILIES:
        message, hint = f"model_type {family!r} is not converted", f"use one of {', '.join(FAMILIES)}"
        raise UsageError(Problem(path=str(path), code="hf-unsupported", message=message, hint=hint))
    problems: list[Problem] = []
    rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    scaling = _read_scaling(rope, path, problems)
    for name, neutral in _neutral_values(family).items():
        if config.get(name) not in neutral:
            message = f"{name}={config[name]!r} is not converted for {family}"
            problems.append(Problem(path=str(path), code="hf-unsupported", message=message))
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    if dtype not in ("float32", "bfloat16", "float16"):
        problems.append(Problem(path=str(path), code="hf-unsupported", message=f"weights of type {dtype!r} are not converted"))
    if problems:
        raise UsageError(problems)
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    model: dict[str, Any] = {
        "num_layers": config["num_hidden_layers"],
        "hidden_size": hidden,
        "ffn_hidden_size": config["intermediate_size"],
        "num_attention_heads": heads,
        "num_query_groups": config.get("num_key_value_heads") or heads,
        "kv_channels": config.get("head_dim") or hidden // heads,
        "vocab_size": config["vocab_size"],
        "seq_length": config["max_position_embeddings"],
        "layernorm_epsilon": config["rms_norm_eps"],
        "normalization": "RMSNorm",
        "activation_func": "torch.nn.functional:silu",
        "gated_linear_unit": True,
        "add_bias_linear": False,
        "add_qkv_bias": family == "qwen2",
        "qk_layernorm": family.startswith("qwen3"),
        "position_embedding_type": "rope",
        "rotary_base": rope.get("rope_theta") or config.get("rope_theta") or 10000,
        "share_embeddings_and_output_weights": bool(config.get("tie_word_embeddings", False)),
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        **scaling,
    }
    window = config.get("sliding_window") if family == "mistral" else None
    if window is not None:
        model["window_size"] = [window - 1, 0]
    if family == "qwen3_moe":
        model |= {
            "num_moe_experts": config.get("num_experts") or config["num_local_experts"],
            "moe_router_topk": config["num_experts_per_tok"],
            "moe_ffn_hidden_size": config["moe_intermediate_size"],
            "moe_router_load_balancing_type": "none",
            "moe_router_pre_softmax": not config.get("norm_topk_prob", False),
            "moe_token_dispatcher_type": "alltoall",
            "moe_grouped_gemm": False,
        }
    values = {f"model.{name}": value for name, value in model.items()}
    values |= {"mixed_precision.bf16": dtype == "bfloat16", "mixed_precision.fp16": dtype == "float16"}
    return HfModel(family=family, dtype=dtype, values=values)


def _read_scaling(rope: Mapping[str, Any], path: Path, problems: list[Problem]) -> dict[str, Any]:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return {}
    if kind != "llama3" or any(rope.get(name) != value for name, value in _LLAMA3_SCALING.items()):
        problems.append(Problem(path=str(path), code="hf-unsupported", message=f"rotary scaling {dict(rope)!r} is not converted"))
        return {}
    return {"rope_scaling": True, "rope_scaling_factor": float(rope["factor"])}


def _neutral_values(family: str) -> dict[str, tuple[Any, ...]]:
    """Return fields that are not converted -> values that ask for nothing."""
    off = (None, False)
    fields: dict[str, tuple[Any, ...]] = {"hidden_act": ("silu",), "mlp_bias": off, "use_sliding_window": off}
    if family != "qwen2":
        fields["attention_bias"] = off
    if family == "qwen3_moe":
        fields |= {"decoder_sparse_step": (None, 1), "mlp_only_layers": (None, [])}
    return fields
