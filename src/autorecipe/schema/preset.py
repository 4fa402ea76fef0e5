"""Dataset presets of the training launcher: who may use which. The one list of their names.

What a preset writes into a configuration is data (`config.datasets`); where its rows lie is `engine.finetune.sources`.

Source: Megatron-Bridge scripts/training/README.md, "Dataset selection". Evidence: published.
"""

from __future__ import annotations

from autorecipe.record import dataclass
from autorecipe.schema.recipe import Mode

_TUNE = frozenset({Mode.SFT, Mode.PEFT})


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One value of `--dataset`.

    Attributes:
        name: as typed.
        modes: goals that may use it.
        modalities: kinds of model that may use it.
        path_override: override that must name the data, or None.
        sources: what a recipe calls its rows: a hub id or a short name.
    """

    name: str
    modes: frozenset[Mode]
    modalities: frozenset[str]
    path_override: str | None = None
    sources: tuple[str, ...] = ()


_TEXT = frozenset({"text"})
_VISION = frozenset({"vlm"})

PRESETS = {
    preset.name: preset
    for preset in (
        Preset(name="mock", modes=frozenset({Mode.PRETRAIN}), modalities=_TEXT),
        Preset(
            name="megatron-indexed",
            modes=frozenset({Mode.PRETRAIN}),
            modalities=_TEXT,
            path_override="dataset.data_path=PATH_PREFIX",
        ),
        Preset(name="tulu3", modes=_TUNE, modalities=_TEXT, sources=("allenai/tulu-3-sft-mixture",)),
        Preset(name="squad", modes=_TUNE, modalities=_TEXT, sources=("rajpurkar/squad", "squad")),
        Preset(
            name="openmathinstruct2",
            modes=_TUNE,
            modalities=_TEXT,
            sources=("nvidia/OpenMathInstruct-2", "openmathinstruct2"),
        ),
        Preset(name="openmathinstruct2-thinking", modes=_TUNE, modalities=_TEXT),
        Preset(name="gsm8k", modes=_TUNE, modalities=_TEXT, sources=("openai/gsm8k", "gsm8k")),
        Preset(name="local-jsonl", modes=_TUNE, modalities=_TEXT, path_override="dataset.dataset_root=DATA_FOLDER"),
        Preset(name="cord-v2", modes=_TUNE, modalities=_VISION),
        Preset(name="medpix", modes=_TUNE, modalities=_VISION),
        Preset(name="raven", modes=_TUNE, modalities=_VISION),
        Preset(name="rdr", modes=_TUNE, modalities=_VISION),
        Preset(
            name="llava-video-178k",
            modes=_TUNE,
            modalities=_VISION,
            path_override="dataset.source.adapter_kwargs.video_root_path=VIDEO_FOLDER",
        ),
        Preset(
            name="local-vlm",
            modes=_TUNE,
            modalities=_VISION,
            path_override="dataset.source.load_kwargs.data_files.train=TRAIN_JSONL",
        ),
        Preset(name="energon", modes=frozenset(Mode), modalities=_VISION, path_override="dataset.path=ENERGON_FOLDER"),
    )
}
"""By name, in the order in which they are offered."""


def _names(modes: frozenset[Mode], modalities: frozenset[str]) -> tuple[str, ...]:
    return tuple(name for name, preset in PRESETS.items() if preset.modes == modes and preset.modalities == modalities)


TEXT_PRETRAINING = _names(frozenset({Mode.PRETRAIN}), _TEXT)
TEXT_FINETUNING = _names(_TUNE, _TEXT)
ANY_MODE = _names(frozenset(Mode), _VISION)
