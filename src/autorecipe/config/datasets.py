"""Dataset presets of the launcher: what `--dataset NAME` puts in place of a recipe's own data, before overrides.

The presets are data (`data/dataset_presets.jsonl`), recorded from the release by `scripts/build_dataset_presets.py`. Covers text
fine-tuning; leaves out pretraining and multimodal presets.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from autorecipe.config.keys import CLASS_MARK
from autorecipe.config.state import Resolution
from autorecipe.datafiles import data_file, read_lines
from autorecipe.record import dataclass
from autorecipe.schema.recipe import Mode, Recipe, RecipeKind
from autorecipe.schema.run import Origin, OriginKind
from autorecipe.schema.value import FieldValue

SECTION = "dataset"
FALLBACK_SEQUENCE = 4096
"""Tokens where a recipe's model names no sequence length (megatron/bridge/recipes/utils/dataset_utils.py @ 0.6.2)."""


@dataclass(frozen=True, kw_only=True)
class DatasetPreset:
    """One fine-tuning preset of a release.

    Attributes:
        name: as typed after `--dataset`.
        release: that it was recorded from.
        config_class: class of the section.
        fields: what the preset writes, by path inside the section; the sequence length is the model's.
        defaults: what the classes that it builds hold besides.
    """

    name: str
    release: str
    config_class: str
    fields: Mapping[str, FieldValue]
    defaults: Mapping[str, FieldValue]


@functools.cache
def _all_presets() -> Mapping[str, Mapping[str, DatasetPreset]]:
    presets: dict[str, dict[str, DatasetPreset]] = {}
    for row in read_lines(data_file("dataset_presets.jsonl")):
        preset = DatasetPreset(
            name=row["name"],
            release=row["release"],
            config_class=row["class"],
            fields=row["fields"],
            defaults=row["defaults"],
        )
        presets.setdefault(preset.release, {})[preset.name] = preset
    return presets


def load_dataset_presets(release: str = "") -> Mapping[str, DatasetPreset]:
    """Return the fine-tuning presets of a release by name; of the newest release known where this one is not."""
    presets = _all_presets()
    newest = max(presets, key=lambda name: tuple(int(part) for part in name.split(".") if part.isdecimal()))
    return presets.get(release, presets[newest])


def takes_preset(recipe: Recipe, name: str | None) -> bool:
    """Return whether a preset takes the place of a recipe's data: text for fine-tuning, on a library recipe for it.

    What does not fit is for the rules to name (LCH001, LCH003).
    """
    is_tuned = recipe.kind is RecipeKind.LIBRARY and recipe.mode in (Mode.SFT, Mode.PEFT)
    return is_tuned and name in load_dataset_presets(recipe.release)


def apply_dataset_preset(state: Resolution, name: str) -> None:
    """Replace the recipe's data by a fine-tuning preset; the sequence length stays the model's.

    Args:
        state: before any override.
        name: preset that the recipe takes (see `takes_preset`).
    """
    preset = load_dataset_presets(state.recipe.release)[name]
    sequence = state.get("model.seq_length")
    for path in list(state.children(SECTION)):
        del state.values[path]
        state.origins.pop(path, None)
    state.values.pop(SECTION, None)
    state.origins.pop(SECTION, None)
    written = Origin(kind=OriginKind.PRESET, detail=f"--dataset {name}")
    _fill(state, {CLASS_MARK.removeprefix("."): preset.config_class, **preset.fields}, written)
    _fill(state, preset.defaults, Origin(kind=OriginKind.DEFAULT))
    state.values[f"{SECTION}.seq_length"] = sequence if isinstance(sequence, int) else FALLBACK_SEQUENCE
    state.origins[f"{SECTION}.seq_length"] = Origin(kind=OriginKind.PRESET, detail=f"--dataset {name}: the model's seq_length")


def _fill(state: Resolution, fields: Mapping[str, FieldValue], origin: Origin) -> None:
    for path, value in fields.items():
        state.values[f"{SECTION}.{path}"] = value
        state.origins[f"{SECTION}.{path}"] = origin
