"""A candidate as overrides of the recipe it started from, each labelled by layer of change."""

from __future__ import annotations

from collections.abc import Mapping

from autorecipe.estimate.pipeline_layout import parse_pipeline_layout
from autorecipe.plan.splits import render_pipeline_layout
from autorecipe.schema.estimate import Recompute, StageSplit
from autorecipe.schema.layer import Layer
from autorecipe.schema.model import ModelShape
from autorecipe.schema.plan import Candidate
from autorecipe.schema.run import OriginKind, RunConfig
from autorecipe.schema.value import UNKNOWN, FieldValue

STAGE_PATHS = (
    "model.num_layers_in_first_pipeline_stage",
    "model.num_layers_in_last_pipeline_stage",
    "model.account_for_embedding_in_pipeline_split",
    "model.account_for_loss_in_pipeline_split",
)
"""Older ways to split layers unevenly; cleared, because the planner writes one explicit layout where the split is uneven."""

EXPERT_TENSOR = "model.expert_tensor_parallel_size"


def candidate_settings(candidate: Candidate, shape: ModelShape) -> dict[str, FieldValue]:
    """Return every path that a candidate decides, with its value."""
    layout = candidate.layout
    settings: dict[str, FieldValue] = {
        "model.tensor_model_parallel_size": layout.tp,
        "model.pipeline_model_parallel_size": layout.pp,
        "model.virtual_pipeline_model_parallel_size": layout.vp if layout.vp > 1 else None,
        "model.context_parallel_size": layout.cp,
        "model.sequence_parallel": layout.sequence_parallel,
        "train.micro_batch_size": candidate.micro_batch_size,
        "model.pipeline_model_parallel_layout": _layout_text(candidate, shape),
        **_recompute_settings(candidate.recompute),
    }
    if shape.is_moe:
        settings["model.expert_model_parallel_size"] = layout.ep
        settings[EXPERT_TENSOR] = layout.etp
    if candidate.fsdp:
        settings["ddp.use_megatron_fsdp"] = True
        settings["ddp.data_parallel_sharding_strategy"] = "optim_grads_params"
    return settings


def candidate_overrides(candidate: Candidate, shape: ModelShape, base: RunConfig | None) -> dict[str, FieldValue]:
    """Return only the settings that differ from the configuration it started from.

    Args:
        candidate: what the search chose.
        shape: the model.
        base: resolved recipe, or None for all settings.
    """
    settings = candidate_settings(candidate, shape)
    if base is None:
        return {path: value for path, value in settings.items() if value is not None}
    changed = {path: value for path, value in settings.items() if not _same(base, path, value)}
    if EXPERT_TENSOR in settings and _is_unset(base, EXPERT_TENSOR) and candidate.layout.etp != _unset_etp(candidate):
        changed[EXPERT_TENSOR] = candidate.layout.etp
    if not _keeps_stage_paths(candidate.split):
        for path in STAGE_PATHS:
            if base.get(path, None) not in (None, False, UNKNOWN):
                changed[path] = None if path.endswith("stage") else False
    return changed


def _is_unset(base: RunConfig, path: str) -> bool:
    """Return whether nobody wrote a path: what stands there was derived from the layout that the candidate replaces."""
    origin = base.origins.get(path)
    return base.get(path, None) in (None, UNKNOWN) or (origin is not None and origin.kind is OriginKind.DERIVED)


def _unset_etp(candidate: Candidate) -> int:
    """Return what an unset expert tensor size becomes at a candidate's layout (as `config.views.view_layout`)."""
    return 1 if candidate.layout.ep > 1 else candidate.layout.tp


def _keeps_stage_paths(split: StageSplit) -> bool:
    """Return whether a split is written in the older ways: then it is the recipe's own, as the planner makes none."""
    return split.first is not None or split.last is not None or split.embedding_counts or split.loss_counts


def label_overrides(overrides: Mapping[str, FieldValue]) -> dict[str, Layer]:
    """Return the layer of change of what the planner touches: the micro batch size is fingerprint, the rest execution."""
    return {path: Layer.FINGERPRINT if path == "train.micro_batch_size" else Layer.EXECUTION for path in overrides}


def render_override(path: str, value: FieldValue) -> str:
    """Render one override in the grammar that recipes accept."""
    if value is None:
        text = "null"
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, list | tuple):
        text = "[" + ",".join(str(item) for item in value) + "]"
    elif isinstance(value, str) and "|" in value:
        text = f'"{value}"'
    else:
        text = str(value)
    return f"{path}={text}"


def _layout_text(candidate: Candidate, shape: ModelShape) -> FieldValue:
    if not candidate.split.explicit or candidate.layout.pp == 1:
        return None
    return render_pipeline_layout(candidate.split, mtp_layers=shape.mtp_num_layers)


def _recompute_settings(recompute: Recompute) -> dict[str, FieldValue]:
    if recompute.is_full:
        return {
            "model.recompute_granularity": "full",
            "model.recompute_method": recompute.method,
            "model.recompute_num_layers": recompute.num_layers,
            "model.recompute_modules": None,
        }
    if recompute.modules:
        return {
            "model.recompute_granularity": "selective",
            "model.recompute_modules": sorted(recompute.modules),
            "model.recompute_method": None,
            "model.recompute_num_layers": None,
        }
    return {
        "model.recompute_granularity": None,
        "model.recompute_method": None,
        "model.recompute_num_layers": None,
    }


def _same(base: RunConfig, path: str, value: FieldValue) -> bool:
    current = base.get(path, None)
    if current is UNKNOWN:
        current = None
    if path.endswith("_parallel_size") and value in (None, 1):
        return current in (None, 1)
    if path == "model.recompute_modules" and isinstance(current, list | tuple):
        return value is None or sorted(current) == value
    if path == "model.sequence_parallel":
        return bool(current) == bool(value)
    if path == "model.pipeline_model_parallel_layout" and current and value:
        return parse_pipeline_layout(current) == parse_pipeline_layout(value)
    return bool(current == value)
