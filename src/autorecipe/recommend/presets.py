"""Dataset presets of the training launcher, and which of them a goal may use.

Source: Megatron-Bridge scripts/training/README.md, "Dataset selection". Evidence: published.
"""

from __future__ import annotations

from autorecipe.record import dataclass
from autorecipe.schema.recipe import Mode, RecipeKind
from autorecipe.schema.recommendation import DatasetChoice, Statement

_TUNE = frozenset({Mode.SFT, Mode.PEFT})


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One value of `--dataset`.

    Attributes:
        name: as typed.
        modes: goals that may use it.
        modalities: kinds of model that may use it.
        path_override: override that must name the data, or None.
    """

    name: str
    modes: frozenset[Mode]
    modalities: frozenset[str]
    path_override: str | None = None


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
        Preset(name="tulu3", modes=_TUNE, modalities=_TEXT),
        Preset(name="squad", modes=_TUNE, modalities=_TEXT),
        Preset(name="openmathinstruct2", modes=_TUNE, modalities=_TEXT),
        Preset(name="openmathinstruct2-thinking", modes=_TUNE, modalities=_TEXT),
        Preset(name="gsm8k", modes=_TUNE, modalities=_TEXT),
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


def choose_dataset(
    *, asked: str | None, mode: Mode | None, kind: RecipeKind, modality: str
) -> tuple[DatasetChoice, tuple[Statement, ...]]:
    """Choose a preset that is valid for the goal.

    Args:
        asked: preset that was asked for, or None.
        mode: training goal.
        kind: benchmark recipes keep their own data.
        modality: text, vlm, audio, omni or diffusion.

    Returns:
        the choice, and what must be said when the asked one is not valid here.
    """
    if kind is RecipeKind.BENCHMARK:
        notes = (Statement(code="note.dataset-benchmark", facts={"asked": asked}),) if asked else ()
        return DatasetChoice(preset="", alternatives=(), reason=Statement(code="dataset.benchmark")), notes
    valid = [name for name, preset in PRESETS.items() if mode in preset.modes and modality in preset.modalities]
    if not valid or (mode is Mode.PRETRAIN and modality != "text" and asked not in valid):
        notes = (Statement(code="note.dataset-own", facts={"asked": asked}),) if asked else ()
        reason = Statement(code="dataset.own", facts={"modality": modality})
        return DatasetChoice(preset="", alternatives=tuple(valid), reason=reason), notes
    if asked in valid:
        others = tuple(name for name in valid if name != asked)
        return DatasetChoice(
            preset=asked, alternatives=others, reason=Statement(code="dataset.asked", facts={"preset": asked})
        ), ()
    chosen = valid[0]
    if mode is Mode.PRETRAIN:
        reason = Statement(code="dataset.mock", facts={"preset": chosen})
    else:
        reason = Statement(code="dataset.tune" if modality == "text" else "dataset.tune-vision", facts={"preset": chosen})
    notes = ()
    if asked is not None:
        code = "note.dataset-mock" if asked == "mock" else "note.dataset-invalid"
        facts = {"asked": asked, "preset": chosen, "mode": mode.value if mode else "", "valid": valid}
        notes = (Statement(code=code, facts=facts),)
    return DatasetChoice(preset=chosen, alternatives=tuple(valid[1:]), reason=reason), notes
