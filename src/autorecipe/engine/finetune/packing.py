"""Which rows share a sequence: first fit over shuffled lengths, pack for pack as Megatron Bridge packs them.

Source of the order of draws: Megatron Bridge 0.6.2 data/packing/algorithms.py (`first_fit_shuffle`), data/packing/offline.py.
Evidence: enforced-upstream. Start reading at `pack_rows`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from autorecipe.engine.finetune.packs import Packing


def padded_lengths(ids: numpy.ndarray, packing: Packing) -> numpy.ndarray:
    """Return the tokens that each row takes in a pack: the predicting ones, padded to the multiple.

    Args:
        ids: token ids of each row; the last of a row is predicted only.
        packing: of the run.
    """
    tokens = numpy.asarray(ids) - 1
    longest = packing.longest_row // packing.multiple * packing.multiple
    return numpy.minimum(-(-tokens // packing.multiple) * packing.multiple, longest)


def pack_rows(lengths: Sequence[int], *, size: int, seed: int) -> list[list[int]]:
    """Return packs as lists of row numbers, in order.

    Args:
        lengths: tokens that each row takes; none is longer than a pack.
        size: tokens of a pack.
        seed: of the shuffling.
    """
    generator = numpy.random.RandomState(seed)
    order = sorted(int(length) for length in lengths)
    generator.shuffle(order)
    packs = fit_first(order, size)
    waiting: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        waiting.setdefault(int(length), []).append(row)
    for length in sorted(waiting):
        rows = waiting[length]
        waiting[length] = [rows[place] for place in generator.permutation(len(rows))]
    return [[waiting[length].pop() for length in pack] for pack in packs]


def fit_first(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Put each length into the first pack with room for it; a tree of the largest rooms finds that pack in log(n) steps."""
    leaves = 1
    while leaves < len(lengths):
        leaves *= 2
    rooms = [size] * (2 * leaves)  # rooms[1] is the root; a node holds the largest room below it
    packs: list[list[int]] = []
    for length in lengths:
        node = 1
        while node < leaves:
            node = 2 * node if rooms[2 * node] >= length else 2 * node + 1
        pack = node - leaves
        if pack == len(packs):
            packs.append([])
        packs[pack].append(length)
        rooms[node] -= length
        while node > 1:
            node //= 2
            rooms[node] = max(rooms[2 * node], rooms[2 * node + 1])
    return packs
