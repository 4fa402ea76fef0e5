"""Layer patterns of hybrid models in one spelling, with the layers and prediction depths that they imply.

Upstream joins the pattern of the decoder and that of multi-token prediction to `MAIN/DEPTH/DEPTH`, and counts the decoder's
layers from it. Combinations that it refuses are left as they are, so that the rules can name them.

Source: Megatron Bridge models/hybrid/hybrid_provider.py:170 @ 0.6.2, models/mamba/mamba_provider.py @ 0.5.1 and 0.4.2.
Evidence: enforced-upstream.
"""

from __future__ import annotations

from autorecipe.config.state import Resolution

PATTERN, OLD_PATTERN, DEPTH_PATTERN = (
    f"model.{name}" for name in ("hybrid_layer_pattern", "hybrid_override_pattern", "mtp_hybrid_override_pattern")
)
LAYERS, DEPTHS = "model.num_layers", "model.mtp_num_layers"
DEPTH_SEPARATOR, STAGE_SEPARATOR = "/", "|"


def join_layer_pattern(state: Resolution) -> None:
    """Give a hybrid model the one pattern that upstream builds it from, and the numbers that follow from it."""
    old = state.get(OLD_PATTERN)
    if isinstance(old, str) and state.has(PATTERN):
        if state.get(PATTERN) is not None:
            return
        state.respell(PATTERN, old, detail=f"takes {OLD_PATTERN} (deprecated)")
        state.respell(OLD_PATTERN, None, detail=f"moved to {PATTERN}")
    pattern = state.get(PATTERN)
    if not isinstance(pattern, str):
        return
    main = pattern.partition(DEPTH_SEPARATOR)[0]
    depth, depths = state.get(DEPTH_PATTERN), state.get(DEPTHS)
    if isinstance(depth, str) and depth and (depths is None or isinstance(depths, int)):
        # A repeated depth is one shared layer at least, whatever the number of passes through it.
        copies = max(int(state.get("model.mtp_use_repeated_layer") is True), depths or 0)
        joined = main + DEPTH_SEPARATOR + DEPTH_SEPARATOR.join([depth] * copies)
        state.respell(PATTERN, joined, detail=f"{copies} x {DEPTH_PATTERN} behind the decoder's pattern")
        if depths is None and copies:
            state.respell(DEPTHS, copies, detail=f"depths in {PATTERN}")
    if state.has(LAYERS) and state.get(LAYERS) is None:
        count = len(main.replace(STAGE_SEPARATOR, ""))
        state.respell(LAYERS, count, detail=f"layers in {PATTERN}")
