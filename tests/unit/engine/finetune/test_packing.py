"""Packs are Megatron Bridge's, keep every row, and never overflow."""

import numpy
from hypothesis import given
from hypothesis import strategies as st

from autorecipe.engine.finetune.packing import fit_first, pack_rows, padded_lengths
from autorecipe.engine.finetune.spec import Packing


def test_packs_equal_upstreams() -> None:
    """Recorded from Megatron Bridge 0.6.2 data/packing/algorithms.py with the same lengths, size and seed."""
    assert pack_rows([3, 5, 2, 7, 7, 1, 4, 4, 6, 2], size=10, seed=5678) == [[5, 9, 3], [0, 7, 2], [4], [1, 6], [8]]


@given(st.lists(st.integers(1, 32), max_size=80), st.integers(32, 64), st.integers(0, 9))
def test_every_row_is_in_one_pack_and_no_pack_overflows(lengths: list[int], size: int, seed: int) -> None:
    packs = pack_rows(lengths, size=size, seed=seed)
    assert sorted(row for pack in packs for row in pack) == list(range(len(lengths)))
    assert all(sum(lengths[row] for row in pack) <= size for pack in packs)


@given(st.lists(st.integers(1, 20), max_size=60))
def test_each_length_goes_into_the_first_pack_with_room(lengths: list[int]) -> None:
    packs: list[list[int]] = []
    for length in lengths:
        place = next((pack for pack in packs if sum(pack) + length <= 20), None)
        if place is None:
            packs.append(place := [])
        place.append(length)
    assert fit_first(lengths, 20) == packs


def test_rows_take_the_tokens_that_predict_padded_to_the_multiple() -> None:
    ids = numpy.array([2, 5, 9, 18])
    assert padded_lengths(ids, Packing(length=16, multiple=1, longest_row=17)).tolist() == [1, 4, 8, 17]
    assert padded_lengths(ids, Packing(length=16, multiple=4, longest_row=16)).tolist() == [4, 4, 8, 16]
