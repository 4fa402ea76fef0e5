"""Pure predicates about sizes, shared by the rules and by whoever enumerates layouts.

Each takes plain integers and returns a bool, so that it can be called for one configuration or vectorised by the caller.
"""

from __future__ import annotations

import math

from autorecipe.rules.release import DEFAULT_CORE, parse_release

REPLICATED_GROUPS = (0, 16)
"""First core release in which TP may exceed the key-value groups (they are then replicated)."""


def tensor_parallel_fits(tp: int, groups: int, core: str = DEFAULT_CORE) -> bool:
    """Return whether TP fits the key-value groups.

    Formula: groups % TP == 0; from core 0.16 also TP % groups == 0.
    Source: megatron/core/transformer/transformer_config.py:1466 @ d98e8a64; the old form from core 0.15 users.
    Evidence: enforced-upstream.
    """
    if tp <= 0 or groups <= 0:
        return False
    return groups % tp == 0 or (parse_release(core) >= REPLICATED_GROUPS and tp % groups == 0)


def heads_fit(tp: int, heads: int) -> bool:
    """Return whether TP divides the attention heads (transformer_config.py:1448 @ d98e8a64)."""
    return tp > 0 and heads % tp == 0


def layers_fit(
    layers: int,
    pp: int,
    vp: int = 1,
    *,
    first: int | None = None,
    last: int | None = None,
    account_for_embedding: bool = False,
    account_for_loss: bool = False,
) -> bool:
    """Return whether decoder layers split over pipeline stages and virtual stages.

    Formula: plain: L % PP == 0 and (L / PP) % VP == 0. With edge counts: the rest over the middle stages, each count
    divisible by VP. With accounting flags: L + flags takes the place of L.
    Source: transformer_config.py:2236-2384, transformer_block.py:158-176 @ d98e8a64. Evidence: enforced-upstream.
    """
    if pp < 1 or vp < 1 or layers < 1:
        return False
    if first is None and last is None:
        total = layers + account_for_embedding + account_for_loss
        return total % pp == 0 and (total // pp) % vp == 0
    edges = [count for count in (first, last) if count is not None]
    if any(count <= 0 or count % vp for count in edges):
        return False
    middle_layers, middle_stages = layers - sum(edges), pp - len(edges)
    if middle_layers < 0 or middle_stages < 0 or (middle_layers == 0) != (middle_stages == 0):
        return False
    return middle_stages == 0 or (middle_layers % middle_stages == 0 and (middle_layers // middle_stages) % vp == 0)


def microbatches_fit(microbatches: int, pp: int, vp: int, group: int | None = None) -> bool:
    """Return whether the interleaved schedule accepts this number of microbatches.

    Formula: with VP > 1 and g = group size (PP unless set): PP <= g <= M, and M % g is 0 or at least PP.
    Source: megatron/core/pipeline_parallel/schedules.py:1166-1174 @ d98e8a64. Evidence: enforced-upstream.
    """
    if microbatches < 1:
        return False
    if vp <= 1:
        return True
    size = group or pp
    return pp <= size <= microbatches and (microbatches % size == 0 or microbatches % size >= pp)


def sequence_fits(seq_length: int, cp: int) -> bool:
    """Return whether the sequence splits into 2 x CP equal chunks (arguments.py:1337, Bridge config.py:1576)."""
    return cp <= 1 or seq_length % (2 * cp) == 0


def sequence_parallel_fits(seq_length: int, tp: int, cp: int) -> bool:
    """Return whether the local sequence splits over TP ranks under sequence parallelism: S % (TP x CP) == 0."""
    return seq_length % (tp * cp) == 0


def experts_fit(experts: int, ep: int) -> bool:
    """Return whether EP divides the experts (megatron/core/transformer/moe/moe_layer.py:186 @ d98e8a64)."""
    return ep > 0 and experts > 0 and experts % ep == 0


def linear_heads_fit(key_heads: int, value_heads: int, tp: int, cp: int) -> bool:
    """Return whether linear-attention heads shard over TP x CP (transformer_config.py:1503 @ d98e8a64)."""
    return key_heads % (tp * cp) == 0 and value_heads % (tp * cp) == 0


def batch_fits(global_batch_size: int, micro_batch_size: int, dp: int) -> bool:
    """Return whether accumulation is a whole number of at least one: GBS % (MBS x DP) == 0."""
    return global_batch_size >= 1 and global_batch_size % (micro_batch_size * dp) == 0


def divisors(number: int) -> list[int]:
    """Return the divisors of a positive number, ascending."""
    if number < 1:
        return []
    small = [candidate for candidate in range(1, math.isqrt(number) + 1) if number % candidate == 0]
    return small + [number // candidate for candidate in reversed(small) if candidate * candidate != number]
