"""What the training launcher changes after overrides and before the configuration starts.

Source: Megatron-Bridge scripts/training/recipe_runner.py and run_recipe.py (2026-08-22). Leaves out: dataset presets (see
`datasets`) and tokenizer flags, which replace whole sections before overrides.
"""

from __future__ import annotations

import math

from autorecipe.config.keys import CLASS_MARK
from autorecipe.config.padding import padding_multiple
from autorecipe.config.state import Resolution, show
from autorecipe.schema.recipe import Mode, RecipeKind
from autorecipe.schema.run import Origin, OriginKind

SEQUENCE = "dataset.seq_length"
PP_PATH = "model.pipeline_model_parallel_size"
VP_PATH = "model.virtual_pipeline_model_parallel_size"
LAYOUT_PATH = "model.pipeline_model_parallel_layout"
STAGE_PATHS = ("model.num_layers_in_first_pipeline_stage", "model.num_layers_in_last_pipeline_stage")
PACKING = "dataset.offline_packing_specs"
KEEP_A_COPY = ("Wan", "Flux")
"""Datasets of diffusion models: what their recipe writes to `sequence_length` stays."""


def sync_launcher(state: Resolution) -> None:
    """Apply the launcher's synchronisations, in its order."""
    _scale_benchmark_batch(state)
    _use_precision_aware_optimizer(state)
    _sync_finetuning_context_parallel(state)
    _sync_pipeline_layout(state)
    _sync_sequence(state)
    _align_packing(state)


def _sync_sequence(state: Resolution) -> None:
    owner = SEQUENCE if isinstance(state.get(SEQUENCE), int) else "dataset.sequence_length"
    length = state.get(owner)
    if not isinstance(length, int) or isinstance(length, bool):
        return
    followers = ["model.seq_length"]
    if not str(state.get("dataset._class")).startswith(KEEP_A_COPY):
        followers.append("dataset.sequence_length")
    for path in followers:
        if path == owner or not state.has(path):
            continue
        given = state.get(path)
        remedy = f"set {owner}={show(given)}" if path in state.typed else ""
        state.overrule(
            path,
            length,
            trap="TRAP-SEQ",
            kind=OriginKind.DERIVED,
            detail=f"{owner}={length} owns the sequence and is copied over it",
            remedy=remedy,
        )


def _sync_finetuning_context_parallel(state: Resolution) -> None:
    if state.recipe.mode not in (Mode.SFT, Mode.PEFT):
        return
    if not (state.has("dataset.enable_offline_packing") or state.has("dataset.enable_in_batch_packing")):
        return
    if max(state.size("model.context_parallel_size"), state.size("dist.eval_context_parallel_size")) < 2:
        return
    detail = "fine-tuning with context parallelism averages the loss per token"
    for path, value in (("model.calculate_per_token_loss", True), ("ddp.average_in_collective", False)):
        if state.has(path):
            state.overrule(path, value, trap="TRAP-SFTCP", kind=OriginKind.DERIVED, detail=detail)


def _sync_pipeline_layout(state: Resolution) -> None:
    if PP_PATH not in state.typed and VP_PATH not in state.typed:
        return
    if LAYOUT_PATH in state.typed:
        return
    layout = state.get(LAYOUT_PATH)
    if layout is not None:
        state.note(
            "TRAP-LAYOUT",
            f"{LAYOUT_PATH} was written for the recipe's own PP and VP; Megatron Bridge rebuilds it only where the recipe "
            "has a layout builder",
            remedy=f"set {LAYOUT_PATH} (or null) with the pipeline size",
        )
        return
    if PP_PATH not in state.typed or all(path in state.typed for path in STAGE_PATHS):
        return
    stages = [state.get(path) for path in STAGE_PATHS]
    layers = state.get("model.num_layers")
    if stages == [None, None] or not isinstance(layers, int):
        return
    middle_stages = state.size(PP_PATH) - sum(count is not None for count in stages)
    middle_layers = layers - sum(count or 0 for count in stages)
    fits = middle_stages >= 0 and middle_layers >= 0 and bool(middle_stages) == bool(middle_layers)
    if fits and (middle_stages == 0 or middle_layers % middle_stages == 0):
        return
    for path in STAGE_PATHS:
        if state.get(path) is not None and path not in state.typed:
            detail = f"does not fit {PP_PATH}={state.size(PP_PATH)}, so the launcher clears it"
            state.replace(path, None, kind=OriginKind.DERIVED, detail=detail)
            state.note("TRAP-LAYOUT", f"{path} {detail}")


def _align_packing(state: Resolution) -> None:
    if state.get("dataset.enable_offline_packing") is not True:
        return
    _build_packing(state)
    length = state.get(SEQUENCE)
    if isinstance(length, int) and state.has(f"{PACKING}.packed_sequence_size"):
        state.overrule(
            f"{PACKING}.packed_sequence_size",
            length,
            trap="TRAP-PACK",
            kind=OriginKind.DERIVED,
            detail=f"packs are as long as {SEQUENCE}={length}",
            remedy=f"set {SEQUENCE}",
        )
    path = f"{PACKING}.pad_seq_to_mult"
    if not state.has(path):
        return
    given = state.get(path)
    aligned = math.lcm(given if isinstance(given, int) and given > 0 else 1, padding_multiple(state))
    detail = "the least common multiple with 2 x CP, and with CP x TP where sequence parallelism is on"
    state.overrule(path, aligned, trap="TRAP-PACK", kind=OriginKind.DERIVED, detail=detail)


def _build_packing(state: Resolution) -> None:
    """Give packing that was switched on alone its specification: the class defaults."""
    if state.has_section(PACKING) or PACKING not in state.values:
        return
    del state.values[PACKING]
    state.origins.pop(PACKING, None)
    origin = Origin(kind=OriginKind.DERIVED, detail="the launcher builds it where dataset.enable_offline_packing is on")
    defaults = {path: field.default for path, field in state.schema.items() if path.startswith(f"{PACKING}.")}
    for path, default in {f"{PACKING}{CLASS_MARK}": "PackedSequenceSpecs", **defaults}.items():
        state.values[path] = default
        state.origins[path] = origin


def _scale_benchmark_batch(state: Resolution) -> None:
    recipe = state.recipe
    path = "train.global_batch_size"
    if recipe.kind is not RecipeKind.BENCHMARK or recipe.gpus is None or state.world_size in (None, recipe.gpus):
        return
    if path in state.typed:
        return
    own = recipe.fields
    axes = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    own_model = math.prod(value for axis in axes if isinstance(value := own.get(f"model.{axis}") or 1, int))
    model = math.prod(state.size(f"model.{axis}") for axis in axes)
    batch = own.get(path)
    assert state.world_size is not None
    if not isinstance(batch, int) or recipe.gpus % own_model or state.world_size % model:
        return
    own_dp, dp = recipe.gpus // own_model, state.world_size // model
    scaled = batch * dp // own_dp
    if scaled == batch or scaled < 1:
        return
    detail = f"a benchmark recipe for {recipe.gpus} GPUs on {state.world_size}: {batch} x DP {dp} / {own_dp}"
    state.replace(path, scaled, kind=OriginKind.DERIVED, detail=detail)
    state.note(
        "TRAP-GBS", f"{path} is {scaled}, not {batch}: {detail}", remedy=f"set {path} to keep it (a new experiment otherwise)"
    )


def _use_precision_aware_optimizer(state: Resolution) -> None:
    recipe = state.recipe
    path = "optimizer.use_precision_aware_optimizer"
    if recipe.kind is not RecipeKind.BENCHMARK or (recipe.precision or "bf16") != "bf16" or not state.has(path):
        return
    if state.get("optimizer.optimizer") == "adam":
        detail = "the launcher switches it on for BF16 Adam benchmark recipes"
        state.replace(path, True, kind=OriginKind.DERIVED, detail=detail)
