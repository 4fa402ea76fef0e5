"""Layers on pipeline stages for the search: even where that is as good, else balanced against output layer and loss."""

from __future__ import annotations

import functools
from itertools import groupby

from autorecipe.estimate.flops import block_flops
from autorecipe.schema.blocks import layer_blocks, mtp_blocks, padded_vocab
from autorecipe.schema.estimate import StageSplit
from autorecipe.schema.model import ModelShape

UNEVEN_VP = (1, 2, 4, 8)
"""Virtual stages tried where layers do not divide evenly."""

WORTH_IT = 1.02
"""An explicit layout must shorten the slowest stage by more than this to replace an even split."""


def head_layers(shape: ModelShape, seq_length: int) -> float:
    """Return the work of the last stage beyond its layers, in layers of average work.

    Formula: (FLOPs of output layer and of prediction depths) / (mean FLOPs of a decoder layer).
    Source: estimate/flops.py. Evidence: derived.
    """
    layers = layer_blocks(shape)
    if not layers:
        return 0.0
    mean = sum(block_flops(shape, block, seq_length).total for layer in layers for block in layer) / len(layers)
    output = 2.0 * shape.hidden_size * padded_vocab(shape, 1)
    depth = sum(block_flops(shape, block, seq_length).total for block in mtp_blocks(shape)) + output
    return (output + shape.mtp_num_layers * depth) / mean


@functools.lru_cache(maxsize=4096)
def choose_split(num_layers: int, pp: int, vp: int, mtp_layers: int = 0, head: float = 0.0) -> StageSplit | None:
    """Return how layers fall on PP x VP chunks, or None where the planner does not try it.

    Formula: an even split when PP x VP divides the layers and no other split makes the slowest stage 2% faster. Else the last
    stage gets the number of layers for which the larger of (its layers + head) and (the most layers of another stage) is
    smallest; the other stages share the rest, the first one last, and each stage deals its layers to its chunks, the last
    chunk last. VP is then 1, 2, 4 or 8. Not tried: uneven virtual stages where even pipeline stages are as good.
    Source: Megatron-Core's pipeline layouts take any split, chunks without layers included
    (pipeline_parallel_layer_layout.py @ 0.16.1).
    Evidence: derived.

    Args:
        num_layers: decoder layers.
        pp: pipeline stages.
        vp: chunks of each stage.
        mtp_layers: multi-token-prediction depths, which stay with the loss.
        head: work of the last stage beyond its layers, in layers.
    """
    if pp == 1:
        return StageSplit() if vp == 1 else None
    stages = _stage_layers(num_layers, pp, head)
    is_even = num_layers % pp == 0
    if is_even and num_layers // pp + head <= WORTH_IT * max(*stages[:-1], stages[-1] + head):
        return StageSplit() if num_layers % (pp * vp) == 0 else None
    if vp not in UNEVEN_VP or min(stages[:-1]) < vp or stages[-1] < vp - 1:
        return StageSplit() if num_layers % (pp * vp) == 0 else None
    chunks = [_deal(layers, vp) for layers in stages]
    chunks[0].reverse()
    explicit = tuple(chunks[stage][virtual] for virtual in range(vp) for stage in range(pp))
    return StageSplit(explicit=explicit, mtp_chunk=pp * vp - 1 if mtp_layers else None)


def _stage_layers(num_layers: int, pp: int, head: float) -> list[int]:
    """Return layers of each stage, [PP]."""
    best: tuple[float, int] | None = None
    for last in range(num_layers // pp, -1, -1):
        most = -(-(num_layers - last) // (pp - 1))
        slowest = max(most, last + head)
        if best is None or slowest < best[0]:
            best = (slowest, last)
    assert best is not None
    last = best[1]
    base, extra = divmod(num_layers - last, pp - 1)
    stages = [base] * (pp - 1)
    for index in [*range(1, pp - 1), 0][:extra]:
        stages[index] += 1
    return [*stages, last]


def _deal(layers: int, chunks: int) -> list[int]:
    base, extra = divmod(layers, chunks)
    return [base + (index < extra) for index in range(chunks)]


def render_pipeline_layout(split: StageSplit, *, mtp_layers: int) -> str:
    """Render an explicit split as Megatron-Core's layout text, such as `Et*3|(t*4|)*14t*2mL`.

    Chunks are separated by `|`; `E` is the embedding, `t` a decoder layer, `m` a multi-token-prediction depth, `L` the loss; a
    group in parentheses is repeated.
    """
    first, *middle, last = [f"t*{layers}" if layers > 1 else "t" * layers for layers in split.explicit]
    text = f"E{first}|"
    for chunk, group in groupby(middle):
        count = sum(1 for _ in group)
        text += f"({chunk}|)*{count}" if count > 1 else f"{chunk}|"
    return f"{text}{last}{'m' * mtp_layers}L"
