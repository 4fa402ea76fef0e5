"""Tokens of one rank: those of a micro batch, and those that reach its experts."""

from __future__ import annotations

from typing import NamedTuple

from autorecipe.schema.batch import Batch
from autorecipe.schema.estimate import ExecutionPolicy
from autorecipe.schema.layout import Layout
from autorecipe.schema.model import ModelShape


class Tokens(NamedTuple):
    """Token counts of one rank for one micro batch, and the sizes that attention needs; a tuple, since searches key on it.

    Attributes:
        inside: tokens inside tensor-parallel regions, micro batch x sequence / CP.
        outside: tokens outside them: the same, or 1 / TP of it under sequence parallelism.
        sequence: length of one whole sample.
        samples: samples in the micro batch.
        tp: tensor parallel size.
        cp: context parallel size.
        etp: expert tensor parallel size.
        ep: expert parallel size.
    """

    inside: float
    outside: float
    sequence: int
    samples: int
    tp: int
    cp: int
    etp: int
    ep: int


def count_tokens(layout: Layout, batch: Batch) -> Tokens:
    """Split a micro batch over the ranks of a layout."""
    inside = batch.micro_batch_size * batch.seq_length / layout.cp
    return Tokens(
        inside=inside,
        outside=inside / layout.tp if layout.sequence_parallel else inside,
        sequence=batch.seq_length,
        samples=batch.micro_batch_size,
        tp=layout.tp,
        cp=layout.cp,
        etp=layout.etp,
        ep=layout.ep,
    )


def routed_tokens(shape: ModelShape, tokens: Tokens, policy: ExecutionPolicy) -> float:
    """Tokens that one rank's experts process for one micro batch: N x top-k x ETP, spread by the capacity factor or the
    imbalance.

    An even split gives each expert-parallel rank as many tokens as it sends, whatever EP is.
    """
    per_rank = tokens.inside / tokens.tp if tokens.tp > 1 else tokens.outside
    factor = policy.capacity_factor if policy.capacity_factor is not None else policy.imbalance
    return per_rank * (shape.moe_router_topk or 1) * tokens.etp * factor
