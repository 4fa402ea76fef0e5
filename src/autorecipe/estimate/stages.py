"""Layers on pipeline stages, and how many micro batches each chunk holds at the moment of the peak.

A `Pipeline` is made once for a split and remembered by identity, so that a search can key on it cheaply.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping

from autorecipe.record import dataclass
from autorecipe.schema.blocks import Block
from autorecipe.schema.estimate import StageSplit


@dataclass(frozen=True)
class Chunk:
    """Consecutive layers of one stage.

    Attributes:
        blocks: blocks by kind.
        layers: decoder layers.
        embedding: whether the word embedding is here.
        output: whether final norm, output layer and loss are here.
        mtp_layers: multi-token-prediction depths here.
    """

    blocks: Mapping[Block, int]
    layers: int
    embedding: bool
    output: bool
    mtp_layers: int

    @property
    def composition(self) -> tuple[object, ...]:
        """What makes two chunks alike: blocks by kind and prediction depths."""
        return (tuple(sorted(self.blocks.items())), self.mtp_layers)


@dataclass(frozen=True)
class StagePlan:
    """The chunks of one pipeline stage, in the order of the forward pass."""

    stage: int
    chunks: tuple[Chunk, ...]

    @property
    def layers(self) -> int:
        """Decoder layers of the stage."""
        return sum(chunk.layers for chunk in self.chunks)


@dataclass(frozen=True)
class Pipeline:
    """All stages of one way to split the layers.

    Attributes:
        pp: pipeline stages.
        vp: chunks of each stage.
        stages: every stage, [PP].
        representatives: stages that differ; of equal ones the first, which holds most micro batches.
        weights: stages that each representative stands for; they add up to PP.
        chunks: chunks of each representative that differ, each with how often it occurs.
    """

    pp: int
    vp: int
    stages: tuple[StagePlan, ...]
    representatives: tuple[StagePlan, ...]
    weights: tuple[int, ...]
    chunks: tuple[tuple[tuple[Chunk, int], ...], ...]

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def make_pipeline(layers: tuple[tuple[Block, ...], ...], *, pp: int, vp: int, split: StageSplit, mtp_layers: int) -> Pipeline:
    """Place layers on stages and find the stages and chunks that differ."""
    stages = plan_stages(layers, pp=pp, vp=vp, split=split, mtp_layers=mtp_layers)
    chosen: dict[object, StagePlan] = {}
    counts: Counter[object] = Counter()
    for plan in stages:
        key = tuple((chunk.composition, chunk.embedding, chunk.output) for chunk in plan.chunks)
        chosen.setdefault(key, plan)
        counts[key] += 1
    return Pipeline(
        pp=pp,
        vp=vp,
        stages=stages,
        representatives=tuple(chosen.values()),
        weights=tuple(counts[key] for key in chosen),
        chunks=tuple(_distinct(plan) for plan in chosen.values()),
    )


def _distinct(plan: StagePlan) -> tuple[tuple[Chunk, int], ...]:
    merged: dict[object, tuple[Chunk, int]] = {}
    for chunk in plan.chunks:
        same = (chunk.composition, chunk.output)
        merged[same] = (chunk, merged[same][1] + 1 if same in merged else 1)
    return tuple(merged.values())


@functools.lru_cache(maxsize=4096)
def chunk_sizes(num_layers: int, pp: int, vp: int, split: StageSplit) -> tuple[int, ...]:
    """Return decoder layers per chunk: index = virtual stage x PP + stage, [PP x VP].

    Formula: an even split, or the given first and last stage, or an even split that counts embedding and loss as layers.
    Source: Megatron-Core get_num_layers_to_build (transformer_block.py @ 0.16.1). Evidence: enforced-upstream.
    A remainder (which upstream refuses) goes to the first chunks.
    """
    count = pp * vp
    if len(split.explicit) == count and sum(split.explicit) == num_layers:
        return split.explicit
    if (split.first is not None or split.last is not None) and pp > 1:
        ends = (split.first is not None) + (split.last is not None)
        middle = num_layers - (split.first or 0) - (split.last or 0)
        stages = list(_even(middle, max(1, pp - ends)))
        if split.first is not None:
            stages.insert(0, split.first)
        if split.last is not None:
            stages.append(split.last)
        per_stage = [_even(layers, vp) for layers in stages[:pp]]
        return tuple(per_stage[stage][virtual] for virtual in range(vp) for stage in range(pp))
    padded = num_layers + split.embedding_counts + split.loss_counts
    sizes = list(_even(padded, count))
    if split.embedding_counts:
        sizes[0] -= 1
    if split.loss_counts:
        sizes[-1] -= 1
    return tuple(sizes)


def _even(total: int, parts: int) -> tuple[int, ...]:
    base, extra = divmod(max(0, total), parts)
    return tuple(base + (index < extra) for index in range(parts))


def plan_stages(
    layers: tuple[tuple[Block, ...], ...], *, pp: int, vp: int, split: StageSplit, mtp_layers: int
) -> tuple[StagePlan, ...]:
    """Place layers on stages, [PP]."""
    sizes = chunk_sizes(len(layers), pp, vp, split)
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    mtp_index = split.mtp_chunk if split.mtp_chunk is not None and split.mtp_chunk < pp * vp else pp * vp - 1
    stages = []
    for stage in range(pp):
        chunks = []
        for virtual in range(vp):
            index = virtual * pp + stage
            part = layers[starts[index] : starts[index + 1]]
            is_last = index == pp * vp - 1
            chunks.append(
                Chunk(
                    blocks=dict(Counter(block for layer in part for block in layer)),
                    layers=len(part),
                    embedding=index == 0,
                    output=is_last,
                    mtp_layers=mtp_layers if index == mtp_index else 0,
                )
            )
        stages.append(StagePlan(stage, tuple(chunks)))
    return tuple(stages)


@functools.lru_cache(maxsize=65536)
def in_flight(pp: int, vp: int, stage: int, num_microbatches: int) -> tuple[int, ...]:
    """Return micro batches alive per chunk of a stage when its first backward pass starts, [VP].

    Formula: without interleaving min(m, PP - stage). Interleaved: the first 2 (PP - stage - 1) + (VP - 1) PP + 1 forward
    passes, taken PP at a time from each chunk in turn.
    Source: Megatron-Core schedules.py @ 0.16.1 (warm-up counts of both schedules); Narayanan et al. 2021, section 2.2.
    Evidence: enforced-upstream.
    """
    if pp == 1:
        return (1,) * vp
    if vp == 1:
        return (min(num_microbatches, pp - stage),)
    total = num_microbatches * vp
    forward = min(total, 2 * (pp - stage - 1) + (vp - 1) * pp + 1)
    alive = [0] * vp
    for index in range(forward):
        alive[(index % (pp * vp)) // pp] += 1
    return tuple(alive)
