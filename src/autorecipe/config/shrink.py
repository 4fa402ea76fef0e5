"""A smoke-run form of a configuration: fewer layers, smaller hidden size, same structure.

Purpose: the same code paths (attention kind, experts, pipeline, parallel axes) on a machine that could never hold the model.
The parallel layout stays where the processes can hold it; otherwise each axis is cut to what they can.
The result trains a toy: its losses say nothing about the recipe.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autorecipe.config.views import moe_layer_pattern, view_layout, view_model, view_seq_length
from autorecipe.schema.layout import Layout
from autorecipe.schema.run import RunConfig

HEAD_SIZE = 32
MAX_GROUPS = 4
MAX_HEADS_PER_GROUP = 4
MAX_SEQUENCE = 256
MAX_VOCABULARY = 8192
TRAIN_ITERS = 10
PER_LAYER_LISTS = ("no_rope_freq", "window_attn_skip_freq", "linear_attention_freq")
LAYOUT_PATHS: Mapping[str, str] = {
    "tp": "model.tensor_model_parallel_size",
    "pp": "model.pipeline_model_parallel_size",
    "vp": "model.virtual_pipeline_model_parallel_size",
    "cp": "model.context_parallel_size",
    "ep": "model.expert_model_parallel_size",
    "etp": "model.expert_tensor_parallel_size",
    "sequence_parallel": "model.sequence_parallel",
}
NEED_AN_AXIS = {
    "defer_embedding_wgrad_compute": "pp",
    "overlap_moe_expert_parallel_comm": "ep",
    "delay_wgrad_compute": "ep",
}
"""Overlap switches that upstream refuses where their parallel axis is not used."""

LONGEST_ROW = "dataset.offline_packing_specs.max_single_sequence_length"
OPTIMIZER_TYPES = ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")


def shrink_overrides(run: RunConfig, *, world_size: int) -> tuple[str, ...]:
    """Return overrides that turn a configuration into its smoke run.

    Kept: kinds of layers (at least one of each), query heads per group (up to 4), experts' top-k, gating, biases, norms,
    positions, precision, and every parallel size that the processes can hold. Reduced: layers, hidden size, heads, FFN, experts,
    vocabulary, sequence, batch, steps.

    Args:
        run: resolved configuration.
        world_size: processes of the smoke run.
    """
    shape, given = view_model(run), view_layout(run)
    layout = fit_layout(given, world_size=world_size)
    stages = layout.pp * layout.vp
    groups = _near(min(shape.num_query_groups, MAX_GROUPS), multiple=_axis_multiple(layout.tp, shape.num_query_groups))
    per_group = min(max(1, shape.num_attention_heads // max(1, shape.num_query_groups)), MAX_HEADS_PER_GROUP)
    heads = _near(groups * per_group, multiple=layout.tp * groups // math.gcd(layout.tp, groups))
    hidden = heads * HEAD_SIZE
    ffn = _near(round(shape.ffn_hidden_size / shape.hidden_size * hidden), multiple=32 * layout.tp)
    changes: dict[str, Any] = {
        "model.hidden_size": hidden,
        "model.num_attention_heads": heads,
        "model.ffn_hidden_size": ffn,
    }
    if run.get("model.num_query_groups", None) is not None:
        changes["model.num_query_groups"] = groups
    if run.get("model.kv_channels", None) is not None:
        changes["model.kv_channels"] = HEAD_SIZE
    changes.update(_shrink_layers(run, stages=stages))
    if shape.num_moe_experts:
        changes.update(_shrink_experts(run, hidden=hidden, ep=layout.ep, etp=layout.etp))
    if shape.multi_latent_attention:
        changes.update(_shrink_latent(run))
    changes.update(_shrink_training(run, layout, world_size=world_size))
    changes.update(_shrink_layout(run, given, layout, num_layers=changes["model.num_layers"]))
    known = {path: value for path, value in changes.items() if run.known(path)}
    return tuple(f"{path}={_render(value)}" for path, value in known.items())


def fit_layout(layout: Layout, *, world_size: int) -> Layout:
    """Return the layout, or where the processes cannot hold it the one that keeps most of its axes.

    Every axis becomes a divisor of itself. Of the layouts that fit, one with the most axes in use is taken, then one that uses
    the most ranks for model parallelism, then the one that keeps TP, PP, EP, CP, ETP in this order.

    Args:
        layout: of the whole model.
        world_size: processes of the smoke run.
    """
    if layout.fits_world(world_size):
        return layout
    axes = (layout.tp, layout.pp, layout.ep, layout.cp, layout.etp)
    best = Layout()
    best_rank: tuple[int, ...] = (-1,)
    for sizes in itertools.product(*(_divisors(axis, largest=world_size) for axis in axes)):
        tp, pp, ep, cp, etp = sizes
        candidate = Layout(tp=tp, pp=pp, ep=ep, cp=cp, etp=etp)
        used = candidate.minimum_world_size
        rank = (sum(size > 1 for size in sizes), used, *sizes)
        if candidate.fits_world(world_size) and rank > best_rank:
            best, best_rank = candidate, rank
    return dataclasses.replace(
        best,
        vp=layout.vp if best.pp > 1 else 1,
        sequence_parallel=layout.sequence_parallel and best.tp > 1,
    )


def _divisors(size: int, *, largest: int) -> list[int]:
    return [number for number in range(1, min(size, largest) + 1) if size % number == 0]


def _shrink_layout(run: RunConfig, given: Layout, layout: Layout, *, num_layers: int) -> dict[str, Any]:
    """Return the changes from one layout to the other, and what else a narrower one needs."""
    changes: dict[str, Any] = {
        path: getattr(layout, axis) for axis, path in LAYOUT_PATHS.items() if getattr(layout, axis) != getattr(given, axis)
    }
    if changes.get(LAYOUT_PATHS["vp"]) == 1:
        changes[LAYOUT_PATHS["vp"]] = None
    if layout.pp != given.pp:
        changes["model.pipeline_model_parallel_layout"] = None  # written for the whole model's stages
        if layout.pp > 1:  # recipes with a table of uneven stages ask for a size: an even one
            changes["model.num_layers_in_first_pipeline_stage"] = num_layers // layout.pp
    if changes and layout.etp == 1 and run.get(LAYOUT_PATHS["etp"], None) not in (None, 1):
        changes[LAYOUT_PATHS["etp"]] = 1
    for name, size in NEED_AN_AXIS.items():
        if getattr(layout, size) == 1:
            paths = (f"model.{name}", f"comm_overlap.{name}")  # upstream lets the second write over the first
            changes.update({path: False for path in paths if run.get(path, None) is True})
    if layout.cp == 1 and run.get("model.hierarchical_context_parallel_sizes", None):
        changes["model.hierarchical_context_parallel_sizes"] = None
    return changes


def _shrink_layers(run: RunConfig, *, stages: int) -> dict[str, Any]:
    layers = int(run.get("model.num_layers"))
    hybrid = run.get("model.hybrid_layer_pattern", None) or run.get("model.hybrid_override_pattern", None)
    if hybrid:
        return _shrink_hybrid(run, str(hybrid), stages=stages)
    frequency = run.get("model.moe_layer_freq", None)
    changes: dict[str, Any] = {}
    least = 2
    if isinstance(frequency, list | str) and run.get("model.num_moe_experts", None):
        pattern = moe_layer_pattern(frequency, layers)
        dense_first = next((index for index, is_moe in enumerate(pattern) if is_moe), 0)
        kept = min(dense_first, 1)
        count = _near(max(least, kept + 1), multiple=stages)
        changes["model.moe_layer_freq"] = [0] * kept + [1] * (count - kept)
    else:
        count = _near(least, multiple=stages)
    changes["model.num_layers"] = min(count, layers) if layers % stages == 0 else count
    for path in PER_LAYER_LISTS:
        listed = run.get(f"model.{path}", None)
        if isinstance(listed, list):
            changes[f"model.{path}"] = [int(item) for item in listed[: changes["model.num_layers"]]]
    for path in ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"):
        if run.get(f"model.{path}", None) is True:
            changes[f"model.{path}"] = False
    changes.update(_clear_stage_sizes(run))
    return changes


def _shrink_hybrid(run: RunConfig, pattern: str, *, stages: int) -> dict[str, Any]:
    """Keep one layer of each kind (M state space, * attention, - MLP, E experts), repeated until pipeline stages divide them."""
    kinds = "".join(dict.fromkeys(symbol for symbol in pattern.split("/")[0] if symbol != "|"))
    count = _near(len(kinds), multiple=stages)
    short = (kinds * count)[:count]
    changes: dict[str, Any] = {"model.num_layers": count, "model.mtp_num_layers": None}
    for path in ("model.hybrid_layer_pattern", "model.hybrid_override_pattern"):
        if run.get(path, None):
            changes[path] = short
    return {**changes, **_clear_stage_sizes(run)}


def _clear_stage_sizes(run: RunConfig) -> dict[str, Any]:
    """Drop uneven pipeline splits, which were written for the whole model."""
    names = ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage", "pipeline_model_parallel_layout")
    return {f"model.{name}": None for name in names if run.get(f"model.{name}", None) is not None}


def _shrink_experts(run: RunConfig, *, hidden: int, ep: int, etp: int) -> dict[str, Any]:
    shape = view_model(run)
    topk = shape.moe_router_topk or 1
    node_groups = run.get("model.moe_router_num_groups", None) or 1
    group_topk = run.get("model.moe_router_group_topk", None) or 1
    topk = min(topk, 2 * group_topk)
    experts = _near(max(2 * topk, 4), multiple=ep * node_groups // math.gcd(ep, node_groups))
    ratio = (shape.moe_ffn_hidden_size or shape.ffn_hidden_size) / shape.hidden_size
    width = _near(round(ratio * hidden), multiple=32 * etp)
    changes: dict[str, Any] = {
        "model.num_moe_experts": experts,
        "model.moe_router_topk": topk,
        "model.moe_ffn_hidden_size": width,
    }
    if shape.moe_shared_expert_intermediate_size:
        changes["model.moe_shared_expert_intermediate_size"] = width
    return changes


def _shrink_latent(run: RunConfig) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "model.kv_lora_rank": 32,
        "model.qk_head_dim": 32,
        "model.qk_pos_emb_head_dim": 16,
        "model.v_head_dim": 32,
    }
    if run.get("model.q_lora_rank", None):
        changes["model.q_lora_rank"] = 48
    return changes


def _shrink_training(run: RunConfig, layout: Layout, *, world_size: int) -> dict[str, Any]:
    dp = max(1, layout.data_parallel_size(world_size))
    micro_batches = max(2, layout.pp if layout.vp > 1 else 2)
    step = 2 * layout.cp * layout.tp
    sequence = _near(min(view_seq_length(run) or MAX_SEQUENCE, MAX_SEQUENCE), multiple=step)
    changes: dict[str, Any] = {
        "dataset.seq_length": sequence,
        "model.seq_length": sequence,
        "train.micro_batch_size": 1,
        "train.global_batch_size": dp * micro_batches,
        "train.rampup_batch_size": None,
        "train.train_iters": TRAIN_ITERS,
        "train.train_samples": None,
        "scheduler.lr_warmup_iters": 1,
        "scheduler.lr_decay_iters": TRAIN_ITERS,
        "optimizer.use_precision_aware_optimizer": False,  # its kernels need Transformer Engine; a toy has no use for them
        "validation.eval_interval": TRAIN_ITERS,
        "validation.eval_iters": 1,
        "validation.eval_global_batch_size": dp * micro_batches,
        "validation.eval_micro_batch_size": 1,
        "logger.log_interval": 1,
        "checkpoint.save_interval": TRAIN_ITERS,
    }
    longest = run.get(LONGEST_ROW, None)
    if isinstance(longest, int) and longest > sequence:
        changes[LONGEST_ROW] = sequence
    for name in OPTIMIZER_TYPES:
        if run.get(f"optimizer.{name}", None) not in (None, "torch.float32"):
            changes[f"optimizer.{name}"] = "torch.float32"
    text = _shrink_tokenizer(run)
    if text is None:
        return changes  # a tokenizer of this machine keeps its vocabulary
    changes.update(text)
    for path in ("model.vocab_size", "tokenizer.vocab_size"):
        size = run.get(path, None)
        if isinstance(size, int) and size > MAX_VOCABULARY:
            changes[path] = MAX_VOCABULARY
    return changes


def _shrink_tokenizer(run: RunConfig) -> dict[str, Any] | None:
    """Let fine-tuning text go without tokenizer files: bytes are read instead. None where the files are here."""
    is_text = run.get("dataset._class", None) == "GPTSFTDatasetConfig"
    if not is_text or run.get("tokenizer.tokenizer_type", None) != "HuggingFaceTokenizer":
        return {}
    if Path(str(run.get("tokenizer.tokenizer_model", None))).expanduser().is_dir():
        return None
    return {"tokenizer.tokenizer_type": "ByteTokenizer", "tokenizer.tokenizer_model": None}


def _axis_multiple(tp: int, groups: int) -> int:
    """Return what the shrunk group count must be a multiple of: TP where it divided the original, else nothing."""
    return tp if groups % tp == 0 else 1


def _near(value: int, *, multiple: int) -> int:
    """Return a value rounded up to a multiple."""
    return max(1, -(-value // multiple)) * multiple


def _render(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(map(_render, value)) + "]"
    return str(value)
