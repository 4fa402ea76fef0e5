"""Which dataset preset a goal gets. Start at `choose_dataset`; the presets are listed in `schema.preset`."""

from __future__ import annotations

from autorecipe.schema.preset import PRESETS
from autorecipe.schema.recipe import Mode, RecipeKind
from autorecipe.schema.recommendation import DatasetChoice, Statement


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
