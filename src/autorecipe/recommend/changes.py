"""The overrides that turn a shipped recipe into the sized one, each with its layer and reason."""

from __future__ import annotations

from collections.abc import Callable

from autorecipe.recommend.sizing import Sizer
from autorecipe.schema.layer import Layer
from autorecipe.schema.recipe import Mode, RecipeKind
from autorecipe.schema.recommendation import LabelledOverride, Sizing, Statement
from autorecipe.schema.value import FieldValue

AXES = {
    "tp": "model.tensor_model_parallel_size",
    "pp": "model.pipeline_model_parallel_size",
    "cp": "model.context_parallel_size",
    "ep": "model.expert_model_parallel_size",
    "etp": "model.expert_tensor_parallel_size",
}
VP = "model.virtual_pipeline_model_parallel_size"
SP = "model.sequence_parallel"
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
        """Add one override unless the recipe has that value already."""
        before = self.sizer.config.get(path, None)
        if before == value and type(before) is type(value):
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
    _list_layout(changes, sizing)
    if (
        sizing.micro_batch_size is not None
        and sizer.batch is not None
        and sizing.micro_batch_size != sizer.batch.micro_batch_size
    ):
        changes.add("train.micro_batch_size", sizing.micro_batch_size, "micro-batch")
    if sizing.recompute:
        changes.add("model.recompute_granularity", "full", "recompute")
        changes.add("model.recompute_method", "uniform", "recompute-part")
        changes.add("model.recompute_num_layers", 1, "recompute-part")
    if sizing.seq_length is not None and sizing.seq_length != sizer.shipped_seq_length:
        changes.add("dataset.seq_length", sizing.seq_length, "sequence", tokens=sizing.seq_length)
        changes.add("model.seq_length", sizing.seq_length, "sequence-model", tokens=sizing.seq_length)
    if mode in (Mode.SFT, Mode.PEFT) and not sizer.config.get(CHECKPOINT, None):
        changes.add(CHECKPOINT, CHECKPOINT_PLACEHOLDER, "checkpoint-peft" if mode is Mode.PEFT else "checkpoint-sft")
    return tuple(changes.found)


def _list_layout(changes: ChangeList, sizing: Sizing) -> None:
    layout, shipped = sizing.layout, sizing.shipped
    if layout == shipped:
        return
    for axis, path in AXES.items():
        value = getattr(layout, axis)
        if value != getattr(shipped, axis):
            changes.add(path, value, axis, gpus=sizing.num_gpus, before=getattr(shipped, axis), after=value)
    if layout.vp != shipped.vp:
        value = layout.vp if layout.vp > 1 else None
        changes.add(VP, value, "vp" if value else "vp-off", pp=layout.pp)
    if layout.sequence_parallel != shipped.sequence_parallel:
        changes.add(SP, layout.sequence_parallel, "sp" if layout.sequence_parallel else "sp-off", tp=layout.tp)
    if (layout.pp, layout.vp) != (shipped.pp, shipped.vp):
        for path in (
            "model.pipeline_model_parallel_layout",
            "model.num_layers_in_first_pipeline_stage",
            "model.num_layers_in_last_pipeline_stage",
        ):
            if changes.sizer.config.get(path, None) not in (None, [], ""):
                changes.add(path, None, "pipeline-layout", pp=layout.pp)
