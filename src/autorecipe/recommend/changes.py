"""The overrides that turn a shipped recipe into the sized one, each with its layer and reason."""

from __future__ import annotations

from collections.abc import Callable

from autorecipe.recommend.sizing import Sizer
from autorecipe.schema.estimate import Recompute
from autorecipe.schema.layer import Layer
from autorecipe.schema.plan import Candidate
from autorecipe.schema.recipe import Mode, RecipeKind
from autorecipe.schema.recommendation import LabelledOverride, Sizing, Statement
from autorecipe.schema.value import FieldValue

AXES = {
    "model.tensor_model_parallel_size": "tp",
    "model.pipeline_model_parallel_size": "pp",
    "model.context_parallel_size": "cp",
    "model.expert_model_parallel_size": "ep",
    "model.expert_tensor_parallel_size": "etp",
}
VP = "model.virtual_pipeline_model_parallel_size"
SP = "model.sequence_parallel"
STAGES = "model.pipeline_model_parallel_layout"
MICRO_BATCH = "train.micro_batch_size"
GRANULARITY = "model.recompute_granularity"
ORDER = (*AXES, VP, SP, STAGES)
"""Paths that come first, in this order."""

CHECKPOINT = "checkpoint.pretrained_checkpoint"
CHECKPOINT_PLACEHOLDER = "CHECKPOINT_FOLDER"


class ChangeList:
    """Collects overrides of one recipe.

    Args:
        sizer: of the recipe.
        classify: gives the layer of a path.
    """

    def __init__(self, sizer: Sizer, classify: Callable[[str], Layer | None]) -> None:
        self.sizer = sizer
        self.classify = classify
        self.found: list[LabelledOverride] = []

    def add(self, path: str, value: FieldValue, code: str, **facts: object) -> None:
        """Add one override unless the recipe has that value already; `etp-kept` writes what would change by itself."""
        before = self.sizer.config.get(path, None)
        if before == value and type(before) is type(value) and code != "etp-kept":
            return
        reason = Statement(code=f"change.{code}", facts=facts)
        self.found.append(LabelledOverride(path=path, value=value, before=before, layer=self.classify(path), reason=reason))


def list_changes(
    sizer: Sizer, sizing: Sizing, classify: Callable[[str], Layer | None], *, mode: Mode | None, kind: RecipeKind
) -> tuple[LabelledOverride, ...]:
    """Return what must be overridden to run the sized recipe, parallel axes first.

    A benchmark recipe is never changed; one with adapters still needs to be told where its base model lies.
    """
    changes = ChangeList(sizer, classify)
    if kind is RecipeKind.BENCHMARK:
        if mode is Mode.PEFT:
            changes.add(CHECKPOINT, CHECKPOINT_PLACEHOLDER, "checkpoint-peft")
        return tuple(changes.found)
    if sizing.candidate is not None and sizing.candidate != sizer.shipped_candidate():
        _list_layout(changes, sizing, sizing.candidate)
    if sizing.seq_length is not None and sizing.seq_length != sizer.shipped_seq_length:
        changes.add("dataset.seq_length", sizing.seq_length, "sequence", tokens=sizing.seq_length)
        changes.add("model.seq_length", sizing.seq_length, "sequence-model", tokens=sizing.seq_length)
    if mode in (Mode.SFT, Mode.PEFT) and not sizer.config.get(CHECKPOINT, None):
        changes.add(CHECKPOINT, CHECKPOINT_PLACEHOLDER, "checkpoint-peft" if mode is Mode.PEFT else "checkpoint-sft")
    return tuple(changes.found)


def _list_layout(changes: ChangeList, sizing: Sizing, candidate: Candidate) -> None:
    """Add what the planner would override for a candidate, each with its reason."""
    from autorecipe.plan.settings import candidate_overrides

    inputs = changes.sizer.inputs
    assert inputs is not None
    overrides = candidate_overrides(candidate, inputs.shape, changes.sizer.config)
    known = {path: place for place, path in enumerate(ORDER)}
    for path in sorted(overrides, key=lambda path: known.get(path, len(ORDER))):
        value = overrides[path]
        code, facts = _reason(path, value, sizing, candidate)
        changes.add(path, value, code, **facts)


def _reason(path: str, value: FieldValue, sizing: Sizing, candidate: Candidate) -> tuple[str, dict[str, object]]:
    """Return the code and the facts of the reason for one override of a layout."""
    layout, shipped = candidate.layout, sizing.shipped
    if path in AXES:
        axis = AXES[path]
        if axis == "etp" and getattr(shipped, axis) == value:
            return "etp-kept", {"etp": value, "ep": layout.ep}
        return axis, {"gpus": sizing.num_gpus, "before": getattr(shipped, axis), "after": value}
    if path == VP:
        return ("vp" if value else "vp-off"), {"pp": layout.pp}
    if path == SP:
        return ("sp" if value else "sp-off"), {"tp": layout.tp}
    if path == MICRO_BATCH:
        return "micro-batch", {}
    if path == GRANULARITY:
        return _recompute_reason(candidate.recompute)
    if path.startswith("model.recompute_"):
        return "recompute-part", {}
    return ("pipeline-split" if value else "pipeline-layout"), {"pp": layout.pp}


def _recompute_reason(recompute: Recompute) -> tuple[str, dict[str, object]]:
    if recompute.is_full:
        return "recompute", {}
    return "recompute-selective", {"modules": sorted(recompute.modules)}
