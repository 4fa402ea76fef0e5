"""How long samples of fine-tuning data become: padded to one length, or to a multiple that the layout divides.

Source: Megatron Bridge training/config.py:1206 @ 0.6.2 (earlier releases have no such fields), and its launcher,
scripts/training/recipe_runner.py:467.
Evidence: enforced-upstream.
"""

from __future__ import annotations

import math

from autorecipe.config.state import Resolution
from autorecipe.schema.run import OriginKind

COLLATED = ("DirectHFSFTDatasetConfig", "EnergonDatasetConfig", "MockVLMSFTDatasetConfig")
"""Datasets whose batches upstream pads while it collates them."""


def padding_multiple(state: Resolution) -> int:
    """Return what a sample's length must divide by: 2 x CP, and CP x TP with sequence parallelism, in training and evaluation."""
    tp = state.size("model.tensor_model_parallel_size")
    sizes = {state.size("model.context_parallel_size"), state.size("dist.eval_context_parallel_size")}
    factors = [2 * size if size > 1 else 1 for size in sizes]
    if state.get("model.sequence_parallel") is True and tp > 1:
        factors += [size * tp for size in sizes]
    return math.lcm(*factors)


def pad_samples(state: Resolution) -> None:
    """Pad samples to one length where pipeline stages or expert ranks exchange them, and to the layout's multiple elsewhere."""
    path = "dataset.pad_to_max_length"
    wide = [name for name, axis in (("PP", "pipeline"), ("EP", "expert")) if state.size(f"model.{axis}_model_parallel_size") > 1]
    if state.get(path) is False and wide:
        detail = f"{' and '.join(wide)} > 1 exchange samples of one length"
        state.overrule(path, True, trap="TRAP-PACK", kind=OriginKind.DERIVED, detail=detail)
    detail = "what CP and SP divide"
    if state.get("dataset.enable_in_batch_packing") is True:
        path = "dataset.in_batch_packing_pad_to_multiple_of"
        if state.has(path):
            state.replace(path, padding_multiple(state), kind=OriginKind.DERIVED, detail=detail)
    elif state.get("dataset._class") in COLLATED:
        path = "dataset.pad_to_multiple_of"
        own = state.get(path)
        if isinstance(own, int) and own > 0:
            state.replace(path, math.lcm(own, padding_multiple(state)), kind=OriginKind.DERIVED, detail=detail)
