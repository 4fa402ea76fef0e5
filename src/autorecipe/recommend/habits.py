"""What a colleague keeps to beyond what is legal, where it can be kept to. Legality itself is in `autorecipe.rules.layout`."""

from __future__ import annotations

from autorecipe.record import dataclass
from autorecipe.rules.layout import divisors
from autorecipe.schema.hardware import Cluster
from autorecipe.schema.layout import Layout
from autorecipe.schema.model import ModelShape

CP_ABOVE_TOKENS = 8192
"""Sequences longer than this want context parallelism (upstream's decision tree: more than 8K)."""

MAX_PP = 16
"""Deepest pipeline that a recipe of Bridge ships; deeper ones are tried only where nothing else fits. Evidence: derived."""


@dataclass(frozen=True, kw_only=True)
class Habits:
    """Preferences for one recipe and sequence length.

    Attributes:
        shipped: layout of the recipe, which is always good enough.
        seq_length: tokens of a sample as it will run.
        tokens_per_rank: tokens of one sample that a rank may hold before CP is wanted.
    """

    shipped: Layout
    seq_length: int
    tokens_per_rank: int

    def likes_context(self, cp: int) -> bool:
        """Whether CP suits the sequence: only for long ones, and then enough of it."""
        if cp == self.shipped.cp and self.seq_length <= self.tokens_per_rank * cp:
            return True
        if self.seq_length <= CP_ABOVE_TOKENS:
            return cp == 1
        return self.seq_length <= self.tokens_per_rank * cp

    def tensor_parallel_limit(self, shape: ModelShape, cluster: Cluster, *, strictly: bool) -> int:
        """Return the largest TP wanted: NVLink's reach and, strictly, the KV groups, above which heads are replicated."""
        reach = cluster.nvlink_reach
        return min(reach, max(shape.num_query_groups, self.shipped.tp)) if strictly else reach


def valid_tp(shape: ModelShape, *, limit: int) -> tuple[int, ...]:
    """Return the tensor-parallel sizes that split the KV groups, up to a limit.

    Formula: TP divides num_query_groups, the attention heads and the FFN width.
    Source: Megatron-LM transformer_config.py (num_query_groups must be a multiple or divisor of TP; a multiple replicates the KV
    heads and is left out here). Evidence: enforced-upstream.
    """
    sizes = divisors(shape.num_query_groups)
    return tuple(tp for tp in sizes if tp <= limit and shape.num_attention_heads % tp == 0 and shape.ffn_hidden_size % tp == 0)


def valid_ep(shape: ModelShape, world_size: int) -> tuple[int, ...]:
    """Return expert-parallel sizes: divisors of the experts up to the world."""
    return tuple(ep for ep in divisors(shape.num_moe_experts or 1) if ep <= world_size)
