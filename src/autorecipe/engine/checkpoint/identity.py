"""Whether a checkpoint belongs to a run: architecture must agree, and changed training fields are said aloud. No torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from autorecipe.config.variants import read_variant
from autorecipe.config.views import view_model
from autorecipe.engine.adapters.settings import read_adapter
from autorecipe.errors import Problem
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import UNKNOWN, to_jsonable

_EXTRA = (
    "rotary_base",
    "rotary_percent",
    "rotary_interleaved",
    "rope_scaling",
    "rope_scaling_factor",
    "layernorm_zero_centered_gamma",
    "moe_router_score_function",
    "moe_router_topk_scaling_factor",
)
"""Fields outside `ModelShape` that change what the same weights compute."""

_IGNORED = ("max_position_embeddings", "make_vocab_size_divisible_by", "seq_length", "has_post_norms", "norms_all_heads")
"""Facts of `ModelShape` that change neither weights nor function (the sequence length does for learned positions), or follow
from the model class."""

_UNSET: Mapping[str, Any] = {
    "rotary_base": 10000,
    "rotary_percent": 1.0,
    "rotary_interleaved": False,
    "rope_scaling": False,
    "rope_scaling_factor": 1.0,
    "layernorm_zero_centered_gamma": False,
    "moe_router_score_function": "softmax",
    "moe_router_topk_scaling_factor": 1.0,
}
"""What an unset field means: a recipe writes it out, and a converted model leaves it out. Source: Megatron-Core 0.16.1."""

_ACTS_WITH: Mapping[str, str] = {
    **dict.fromkeys(
        ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"), "multi_latent_attention"
    ),
    "rope_scaling_factor": "rope_scaling",
    "window_attn_skip_freq": "window_size",
}
"""Field -> the field without which it changes nothing."""

_CONVERGENCE_PREFIXES = ("optimizer.", "scheduler.", "dataset.", "train.global_batch_size", "train.rampup_batch_size", "rng.seed")
ADAPTER = "adapter"
"""Key of the adapter in an identity; absent where the model itself trains."""

CLASS = "_class"
"""Key of the model class; absent where it adds nothing to the fields."""

_QUIET = ("dataset.num_workers", "dataset.path_to_cache", "dataset.persistent_workers", "dataset.pin_memory")


def describe_identity(run: RunConfig, *, with_adapter: bool = True) -> dict[str, Any]:
    """Return what a checkpoint must share with a run's model, as plain JSON values.

    Args:
        run: with its vocabulary settled.
        with_adapter: whether the adapter counts: it does in a checkpoint of one, and not in the weights that it starts from.
    """
    shape = view_model(run)
    identity = {
        item.name: to_jsonable(getattr(shape, item.name)) for item in dataclasses.fields(shape) if item.name not in _IGNORED
    }
    for name in _EXTRA:
        value = run.get(f"model.{name}", None)
        identity[name] = None if value is UNKNOWN else to_jsonable(value)
    variant = read_variant(run)
    if variant is not None:
        identity[CLASS] = variant.name
        for name in (*sorted(variant.fields), "softmax_scale"):
            value = run.get(f"model.{name}", None)
            identity[name] = None if value is UNKNOWN else to_jsonable(value)
    if shape.position_embedding_type == "learned_absolute":
        identity["seq_length"] = shape.seq_length
    adapter = read_adapter(run) if with_adapter else None
    if adapter is not None:
        identity[ADAPTER] = adapter.identity()
    return identity


def compare_identity(saved: Mapping[str, Any], current: Mapping[str, Any]) -> list[Problem]:
    """Return one problem per field in which a checkpoint's model differs from the run's."""
    problems = []
    old, new = _settle(saved), _settle(current)
    for name in sorted({*old, *new}):
        before, now = old.get(name), new.get(name)
        if before != now:
            problems.append(
                Problem(
                    path="peft" if name == ADAPTER else f"model.{name}",
                    code="other-model",
                    message=f"is {now!r} here and {before!r} in the checkpoint",
                )
            )
    return problems


def _settle(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity without the fields that change nothing in its model, unset ones as what they mean."""
    settled: dict[str, Any] = {
        name: _UNSET.get(name) if value is None else value for name, value in {**dict.fromkeys(_UNSET), **identity}.items()
    }
    owner = dict(_ACTS_WITH)
    if CLASS in identity:
        del owner["rope_scaling_factor"]
    for name in settled:
        if name.startswith("moe_"):
            owner[name] = "num_moe_experts"
        elif name.startswith("mamba_"):
            owner[name] = "hybrid_layer_pattern"
        elif name.startswith("linear_"):
            owner[name] = "experimental_attention_variant"
    if settled.get("multi_latent_attention"):
        settled.pop("kv_channels", None)  # heads have widths of their own
    if settled.get("add_bias_linear"):
        settled["add_qkv_bias"] = True
    frequency = settled.get("window_attn_skip_freq")
    if isinstance(frequency, int):
        settled["window_attn_skip_freq"] = [
            int(layer % frequency != 0) for layer in range(1, (settled.get("num_layers") or 0) + 1)
        ]
    return {name: value for name, value in settled.items() if name not in owner or settled.get(owner[name])}


def describe_changes(saved: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Return the training fields that differ from the checkpoint's run, as `path: before -> now`.

    They do not stop a resume, but the run is then no longer the run that the checkpoint came from.
    """
    lines = []
    for path in sorted({*saved, *current}):
        if not path.startswith(_CONVERGENCE_PREFIXES) or path in _QUIET:
            continue
        before, now = saved.get(path), current.get(path)
        if before != now:
            lines.append(f"{path}: {before!r} -> {now!r}")
    return lines
