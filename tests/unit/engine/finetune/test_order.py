"""Which sequences a step reads; the numbers were drawn by Megatron Bridge 0.6.2's own classes."""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch

from autorecipe.engine.finetune.order import FILLER, GlobalBatchSampler, draw_packs, draw_rows
from autorecipe.engine.loop.batch import running_batch
from autorecipe.engine.loop.settings import read_settings
from autorecipe.errors import UsageError
from autorecipe.schema.run import RunConfig


class Rows:
    """Rows whose number is their length."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def padded_length(self, numbers: Sequence[int]) -> int:
        return max(number % self.count for number in numbers)


def sampler(count: int, *, rank: int = 0, ranks: int = 1, consumed: int = 0, **fields: Any) -> GlobalBatchSampler:
    fields.setdefault("batch_size", lambda _consumed: 8)
    place = {"data_parallel_rank": rank, "data_parallel_size": ranks, "micro_batch_size": 2, "seed": 7}
    return GlobalBatchSampler(dataset=Rows(count), consumed_samples=consumed, **place, **fields)


def draw(count: int, steps: int, *, ranks: int = 1, **fields: Any) -> list[list[tuple[int, int]]]:
    """Return what all ranks read in each of the first steps of 8."""
    streams = [iter(sampler(count, rank=rank, ranks=ranks, **fields)) for rank in range(ranks)]
    return [[item for stream in streams for _ in range(4 // ranks) for item in next(stream)] for _ in range(steps)]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_share_each_global_batch_and_every_epoch_is_shuffled_anew(ranks: int) -> None:
    batches = draw(19, 5, ranks=ranks)
    numbers = [[number for number, _ in batch] for batch in batches]
    assert all(len({length for _, length in batch}) == 1 for batch in batches)
    first = torch.randperm(19, generator=torch.Generator().manual_seed(7)).tolist()
    second = torch.randperm(19, generator=torch.Generator().manual_seed(8)).tolist()
    assert [sorted(batch) for batch in numbers[:2]] == [sorted(first[:8]), sorted(first[8:16])]
    assert [sorted(batch) for batch in numbers[2:4]] == [sorted(second[:8]), sorted(second[8:16])]
    assert draw(19, 2, ranks=ranks, consumed=24) == batches[3:]  # a resumed run goes on where it was


def test_the_ragged_end_is_filled_up_where_it_is_kept() -> None:
    batches = [[number for number, _ in batch] for batch in draw(19, 4, ranks=2, drops_last=False)]
    first = torch.randperm(19, generator=torch.Generator().manual_seed(7)).tolist()
    assert sorted(batches[2]) == sorted([*first[16:], *[FILLER] * 5])
    assert sorted(batches[0] + batches[1] + batches[2]) == sorted([*range(19), *[FILLER] * 5])
    assert [[number for number, _ in batch] for batch in draw(19, 2, ranks=2, drops_last=False, consumed=16)] == batches[2:]


def test_one_pass_keeps_the_order_of_the_rows_and_ends() -> None:
    shared = [iter(sampler(19, rank=rank, ranks=2, shuffles=False)) for rank in range(2)]
    drawn = [[number for number, _ in next(stream)] for _ in range(4) for stream in shared]
    assert drawn == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15]]
    with pytest.raises(UsageError, match="one pass, and its 19 sequences are read"):
        next(shared[0])
    assert [number for number, _ in next(iter(sampler(19, shuffles=False, consumed=8)))] == [8, 9]


def test_a_growing_batch_reads_on_and_resumes_anywhere() -> None:
    values = {
        "train.train_iters": 9,
        "train.global_batch_size": 8,
        "train.micro_batch_size": 2,
        "train.rampup_batch_size": [2, 2, 12],
        "dataset.seq_length": 8,
    }
    settings = read_settings(RunConfig(values=values))
    size = partial(running_batch, settings, data_parallel_size=1)
    consumed, steps = 0, []
    for _ in range(9):
        steps.append(size(consumed))
        consumed += steps[-1]
    assert steps[0] == 2 and steps[-1] == 8 and len(set(steps)) == 4
    stream = iter(sampler(19, batch_size=size))
    whole = [[number for _ in range(step // 2) for number in next(stream)] for step in steps]
    first = torch.randperm(19, generator=torch.Generator().manual_seed(7)).tolist()
    assert [number for step in whole[:3] for number, _ in step] == first[: sum(steps[:3])]
    for done in range(1, 9):
        resumed = sampler(19, batch_size=size, consumed=sum(steps[:done]))
        assert list(itertools.islice(iter(resumed), steps[done] // 2)) == [
            whole[done][at : at + 2] for at in range(0, steps[done], 2)
        ]


def test_samples_are_drawn_as_upstream_draws_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert draw_rows(7, 3).tolist() == [6, 2, 1]
    assert draw_packs(5, 12, seed=3).tolist() == [3, 4, 1, 0, 2, 2, 1, 3, 4, 0, 0, 4]
    monkeypatch.setattr("autorecipe.engine.finetune.order.BLOCK", 7)
    assert draw_rows(25, 12).tolist() == [24, 23, 21, 22, 18, 15, 17, 16, 20, 19, 14, 4]
