from types import SimpleNamespace

import torch

from autorecipe.engine.checkpoint.buckets import align_states


def buffer(*sizes: tuple[int, int]) -> SimpleNamespace:
    """Make a gradient buffer of buckets given as (size without padding, size)."""
    buckets, offset = [], 0
    for unpadded, size in sizes:
        buckets.append(SimpleNamespace(offset=offset, numel_unpadded=unpadded, grad_data=torch.zeros(size)))
        offset += size
    return SimpleNamespace(buckets=buckets)


def test_states_after_a_padded_bucket_move_to_where_core_cuts_them() -> None:
    tensors = {"param": torch.tensor([1.0, 2.0, 3.0, 4.0]), "numel_unpadded": 4}
    align_states(tensors, buffer((3, 5), (1, 4)))
    assert tensors["param"].tolist() == [1.0, 2.0, 3.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0]
    assert tensors["numel_unpadded"] == 4


def test_one_bucket_or_no_padding_is_left_alone() -> None:
    for case in (buffer((3, 5)), buffer((2, 2), (1, 4))):
        tensors = {"exp_avg": torch.tensor([1.0, 2.0, 3.0])}
        before = tensors["exp_avg"]
        align_states(tensors, case)
        assert tensors["exp_avg"] is before
