"""A recipe as an upstream release ships it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from autorecipe.record import dataclass, field
from autorecipe.schema.layout import Layout
from autorecipe.schema.value import FieldValue


class RecipeKind(enum.StrEnum):
    """LIBRARY recipes train; BENCHMARK recipes measure an upper bound of throughput and are never offered for training."""

    LIBRARY = "library"
    BENCHMARK = "benchmark"


class Mode(enum.StrEnum):
    """Training goal that a recipe is written for."""

    PRETRAIN = "pretrain"
    SFT = "sft"
    PEFT = "peft"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One exported recipe name, evaluated.

    Attributes:
        name: upstream's name, verbatim (`NAME@library` where both packages export NAME and this is the library one).
        release: such as `0.6.2`.
        kind: library or benchmark.
        mode: pretrain, sft or peft; None where the name does not say.
        alias_of: canonical name this one stands for, or None.
        family: upstream's folder, such as `qwen`.
        modality: text, vlm, audio, omni or diffusion.
        hf_model_ids: Hugging Face ids that the recipe names.
        gpus: GPU count in the (canonical) name, or None.
        gpu_type: GPU in the name, or None.
        precision: precision in the name, or None.
        variant: trailing variant in the name, or None.
        forward_step: upstream's step function that the launcher infers.
        status: `ok`, or `failed` when the function raises.
        error: why it failed; empty otherwise.
        source: `path:line` in the upstream release.
        fields: every resolved field, flat: `train.global_batch_size` -> 512. `model.*` is complete.
        model_set: model fields that the recipe itself wrote (the rest comes from the Hugging Face configuration).
        dora_fields: fields that change when the PEFT scheme is DoRA; empty where the recipe takes no scheme.
        dora_removed: fields that its configuration does not have.
        notes: further facts of the evaluation, by name.
    """

    name: str
    release: str
    kind: RecipeKind
    mode: Mode | None
    alias_of: str | None
    family: str
    modality: str
    hf_model_ids: tuple[str, ...]
    gpus: int | None
    gpu_type: str | None
    precision: str | None
    variant: str | None
    forward_step: str
    status: str
    error: str
    source: str
    fields: Mapping[str, FieldValue]
    model_set: tuple[str, ...] = ()
    dora_fields: Mapping[str, FieldValue] = field(default_factory=dict)
    dora_removed: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def canonical_name(self) -> str:
        """The name that defines the recipe."""
        return self.alias_of or self.name


def bare_recipe(name: str, fields: Mapping[str, FieldValue], *, release: str, hf_model_ids: tuple[str, ...] = ()) -> Recipe:
    """Return fields that no release ships (of a file, or of a model) as a recipe without goal, hardware or family."""
    return Recipe(
        name=name,
        release=release,
        kind=RecipeKind.LIBRARY,
        mode=None,
        alias_of=None,
        family="",
        modality="text",
        hf_model_ids=hf_model_ids,
        gpus=None,
        gpu_type=None,
        precision=None,
        variant=None,
        forward_step="",
        status="ok",
        error="",
        source=name,
        fields=fields,
    )


@dataclass(frozen=True, kw_only=True)
class RecipeSummary:
    """What a listing shows of one recipe name, without its fields.

    Attributes:
        model: model part of the canonical name, such as `qwen3_30b_a3b`.
        layout: parallel layout as shipped, or None where the recipe fails or has none.
        minimum_gpus: smallest world that the layout allows, or None.
        seq_length: sequence length that takes effect, or None.
        global_batch_size: samples per step, or None.
        micro_batch_size: samples per forward pass, or None.
        dataset: dataset configuration class as shipped, or None.
        (others): as in `Recipe`.
    """

    name: str
    model: str
    kind: RecipeKind
    mode: Mode | None
    alias_of: str | None
    family: str
    modality: str
    hf_model_ids: tuple[str, ...]
    gpus: int | None
    gpu_type: str | None
    precision: str | None
    variant: str | None
    status: str
    layout: Layout | None
    minimum_gpus: int | None
    seq_length: int | None
    global_batch_size: int | None
    micro_batch_size: int | None
    dataset: str | None
