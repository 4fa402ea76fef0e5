"""The grammar of recipe names: `MODEL_TASK[_INFIX]_Ngpu_GPU_PRECISION[_VARIANT]_config`, and what upstream infers from it."""

from __future__ import annotations

import re

from autorecipe.record import dataclass
from autorecipe.schema.recipe import Mode

PRECISIONS = ("bf16", "fp8cs", "fp8ds", "fp8mx", "fp8sc", "nvfp4", "mxfp8", "fp16", "fp8")
_SPELLINGS = {"mxfp8": "fp8mx", "fp4": "nvfp4"}
"""Spellings of a precision in flags and prose -> id in recipe names."""

LIBRARY_SUFFIX = "@library"
"""Marks the library recipe of a name that both packages export."""

_CANONICAL = re.compile(
    r"^(?P<model>.+?)_(?P<task>pretrain|sft|peft|finetune|lora|dora)_(?:(?P<infix>[a-z0-9_]+?)_)?"
    r"(?P<gpus>[1-9]\d*)gpu_(?P<gpu>[a-z0-9]+)_(?P<precision>" + "|".join(PRECISIONS) + r")(?:_(?P<variant>[a-z0-9_]+))?_config$"
)

_MODES = (
    ("_pretrain_", Mode.PRETRAIN),
    ("_sft_", Mode.SFT),
    ("_finetune_", Mode.SFT),
    ("_peft_", Mode.PEFT),
    ("_lora_", Mode.PEFT),
    ("_dora_", Mode.PEFT),
)

_STEP_BY_NAME = {
    "qwen3_vl_8b_peft_1gpu_h100_bf16_energon_config": "vlm_step",
    "qwen3_vl_8b_peft_energon_config": "vlm_step",
}
_STEP_BY_PREFIX = (
    ("nemotron_nano_v2_vl_", "llava_step"),
    ("nemotron_omni_", "nemotron_omni_step"),
    ("qwen2_audio_", "audio_lm_step"),
    ("qwen3_omni_", "qwen3_omni_step"),
    ("qwen3_vl_", "qwen3_vl_step"),
    ("qwen35_vl_", "qwen3_vl_step"),
    ("step37_", "step37_flickr8k_step"),
    ("exaone45_vl_", "vlm_step"),
    ("gemma3_vl_", "vlm_step"),
    ("gemma4_vl_", "vlm_step"),
    ("glm_45v_", "vlm_step"),
    ("kimi_k25_vl_", "vlm_step"),
    ("ministral3_", "vlm_step"),
    ("qwen25_vl_", "vlm_step"),
    ("flux_", "flux_step"),
    ("wan_", "wan_step"),
)
_MODALITY_BY_STEP = {
    "audio_lm_step": "audio",
    "vlm_step": "vlm",
    "qwen3_vl_step": "vlm",
    "step37_flickr8k_step": "vlm",
    "llava_step": "vlm",
    "qwen3_omni_step": "omni",
    "nemotron_omni_step": "omni",
    "flux_step": "diffusion",
    "wan_step": "diffusion",
}


@dataclass(frozen=True, kw_only=True)
class NameParts:
    """What a recipe name says.

    Attributes:
        model: leading part before the task; empty where the name has none.
        mode: training goal, or None.
        gpus: GPU count, or None for names without hardware.
        gpu_type: GPU id, or None.
        precision: precision id, or None.
        variant: infix and trailing variant joined, or None.
    """

    model: str
    mode: Mode | None
    gpus: int | None
    gpu_type: str | None
    precision: str | None
    variant: str | None


def parse_name(name: str) -> NameParts:
    """Split a recipe name; names outside the grammar give the mode alone."""
    match = _CANONICAL.match(name.removesuffix(LIBRARY_SUFFIX))
    if match is None:
        model = re.split(r"_(?:pretrain|sft|peft|finetune|lora|dora)_", name)[0]
        return NameParts(
            model=model.removesuffix("_config"), mode=mode_of(name), gpus=None, gpu_type=None, precision=None, variant=None
        )
    variant = "_".join(part for part in (match["infix"], match["variant"]) if part)
    return NameParts(
        model=match["model"],
        mode=mode_of(name),
        gpus=int(match["gpus"]),
        gpu_type=match["gpu"],
        precision=match["precision"],
        variant=variant or None,
    )


def precision_id(text: str) -> str:
    """Return the id in recipe names of a precision as people and launchers write it: `FP8_MX`, `mxfp8` -> `fp8mx`."""
    folded = re.sub(r"[-_ ]", "", text.lower())
    return _SPELLINGS.get(folded, folded)


def is_own_recipe(name: str) -> bool:
    """Return whether a name points to a function in a file."""
    return ".py:" in name or name.endswith(".py")


def mode_of(name: str) -> Mode | None:
    """Return the training goal in a name, as upstream infers it."""
    text = f"_{name.lower()}_"
    return next((mode for part, mode in _MODES if part in text), None)


def forward_step_of(name: str) -> str:
    """Return the forward step that upstream's launcher selects for a recipe name.

    Source: Megatron-Bridge scripts/training/recipe_metadata.py (RECIPE_FORWARD_STEPS, RECIPE_FORWARD_STEP_PREFIXES).
    Evidence: published.
    """
    name = name.removesuffix(LIBRARY_SUFFIX)
    if name in _STEP_BY_NAME:
        return _STEP_BY_NAME[name]
    return next((step for prefix, step in _STEP_BY_PREFIX if name.startswith(prefix)), "llm_step")


def modality_of(name: str) -> str:
    """Return the modality that the forward step implies: text, vlm, audio, omni or diffusion."""
    return _MODALITY_BY_STEP.get(forward_step_of(name), "text")
