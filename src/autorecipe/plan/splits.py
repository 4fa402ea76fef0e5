"""Layers on pipeline stages for the search: even where they divide, an explicit layout where they do not."""

from __future__ import annotations

import functools

from autorecipe.schema.estimate import StageSplit


@functools.lru_cache(maxsize=4096)
def choose_split(num_layers: int, pp: int, vp: int, mtp_layers: int) -> StageSplit | None:
    """Return how layers fall on PP x VP chunks, or None where the planner does not try it.

    Formula: an even split when PP x VP divides the layers. Where PP alone does not divide them, each chunk gets floor or ceil
    of the mean, and the chunks with the embedding and with the loss are the last to get one more, since embedding and output
    layer cost memory and the output layer costs time there; VP is then 1, 2, 4 or 8. Not tried: uneven virtual stages where
    even pipeline stages are possible, and fewer layers than chunks.
    Source: Megatron-Core's pipeline layouts take any split (pipeline_parallel_layer_layout.py @ 0.16.1).
    Evidence: derived.
    """
    chunks = pp * vp
    if num_layers < chunks:
        return None
    base, extra = divmod(num_layers, chunks)
    if extra == 0:
        return StageSplit()
    if num_layers % pp == 0 or vp not in (1, 2, 4, 8):
        return None
    order = [*range(1, chunks - 1), 0, chunks - 1] if chunks > 1 else [0]
    sizes = [base] * chunks
    for index in order[:extra]:
        sizes[index] += 1
    return StageSplit(explicit=tuple(sizes), mtp_chunk=chunks - 1 if mtp_layers else None)


def render_pipeline_layout(split: StageSplit, *, mtp_layers: int) -> str:
    """Render an explicit split as Megatron-Core's layout text, such as `Et*3|(t*4|)*14,t*2mL`.

    Chunks are separated by `|`; `E` is the embedding, `t` a decoder layer, `m` a multi-token-prediction depth, `L` the loss.
    """
    chunks = []
    last = len(split.explicit) - 1
    for index, layers in enumerate(split.explicit):
        text = "E" if index == 0 else ""
        text += f"t*{layers}" if layers > 1 else "t" * layers
        if index == last:
            text += "m" * mtp_layers + "L"
        chunks.append(text)
    return "|".join(chunks)
