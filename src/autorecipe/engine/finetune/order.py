"""Which sequences each step reads, on which rank, in Megatron Bridge's order. Start reading at `GlobalBatchSampler`.

Source: Megatron Bridge 0.6.2 data/samplers.py (`MegatronPretrainingBatchSampler`, `MegatronPretrainingSampler`),
data/datasets/utils.py (`_OnlineSampleMapping`), data/packing/gpt_sft.py (`_build_samples_mapping`). Evidence: enforced-upstream,
but for the batch that grows: Bridge draws whole global batches then, and counts the smaller ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy
import torch

from autorecipe.errors import Problem, UsageError

Item = tuple[int, int]
"""Number of a row or pack in its split, and the tokens that it is padded to. A negative number counts from the end, and teaches
nothing."""

FILLER = -1
"""The sequence that fills a last global batch up: the last one, with no loss."""

BLOCK = 1_000_000
"""Rows that are shuffled among themselves (data/datasets/utils.py)."""


class Sequences(Protocol):
    """What a sampler must know of a dataset."""

    def __len__(self) -> int:
        """Return the number of sequences."""

    def padded_length(self, numbers: Sequence[int]) -> int:
        """Return the length that these sequences are padded to together."""


@dataclass(frozen=True, kw_only=True)
class GlobalBatchSampler:
    """Micro batches of this rank, global batch after global batch.

    Attributes:
        dataset: knows its size and its padding.
        consumed_samples: sequences that earlier steps read, over all epochs and ranks.
        batch_size: sequences of the global batch that follows after so many consumed ones.
        micro_batch_size: sequences of a micro batch.
        data_parallel_rank: this rank.
        data_parallel_size: ranks that read different sequences.
        seed: of the order.
        drops_last: leave the ragged end of an epoch out instead of filling it up.
        shuffles: epochs without end, each in an order of its own; otherwise one pass in the order of the rows.
    """

    dataset: Sequences
    consumed_samples: int
    batch_size: Callable[[int], int]
    micro_batch_size: int
    data_parallel_rank: int
    data_parallel_size: int
    seed: int
    drops_last: bool = True
    shuffles: bool = True

    def __iter__(self) -> Iterator[list[Item]]:
        """Yield the items of one micro batch after another.

        Raises:
            UsageError: there is one pass, and it is over.
        """
        consumed, (epoch, done) = self.consumed_samples, self._find_place()
        while epoch == 0 or self.shuffles:
            order = self._order(epoch)
            while size := self._next_size(consumed, len(order) - done):
                batch = order[done : done + size]
                length = self.dataset.padded_length([*batch, FILLER] if len(batch) < size else batch)
                for numbers in self._share(batch, size):
                    yield [(number, length) for number in numbers]
                done, consumed = done + size, consumed + size
            epoch, done = epoch + 1, 0
        raise UsageError(
            Problem(
                path="train.train_iters",
                code="data-exhausted",
                message=f"dataset.dataloader_type=single is one pass, and its {len(self.dataset)} sequences are read",
                hint="use dataset.dataloader_type=batch for several epochs, or fewer iterations",
            )
        )

    def _order(self, epoch: int) -> list[int]:
        total = len(self.dataset)
        if not self.shuffles:
            return list(range(total))
        order: list[int] = torch.randperm(total, generator=torch.Generator().manual_seed(self.seed + epoch)).tolist()
        return order

    def _next_size(self, consumed: int, room: int) -> int:
        """Return the sequences of the next global batch; 0 where the epoch is over."""
        size = self.batch_size(consumed)
        return size if room >= size or (room > 0 and not self.drops_last) else 0

    def _share(self, batch: list[int], size: int) -> Iterator[list[int]]:
        """Yield this rank's micro batches."""
        micro, rank, ranks = self.micro_batch_size, self.data_parallel_rank, self.data_parallel_size
        if not self.shuffles:
            for start in range(rank * micro, size, micro * ranks):
                yield batch[start : start + micro]
            return
        mine = batch[rank::ranks]
        mine += [FILLER] * (size // ranks - len(mine))
        for start in range(0, len(mine), micro):
            yield mine[start : start + micro]

    def _find_place(self) -> tuple[int, int]:
        """Return the epoch, and the sequences of it that were read, where a run stands.

        A batch that never grows makes every epoch equally long; otherwise the steps before are gone through once more.
        """
        total, consumed, epoch, done = len(self.dataset), 0, 0, 0
        first = self.batch_size(0)
        if first == self.batch_size(self.consumed_samples) or not self.shuffles:
            whole = total // first * first if self.drops_last else -(-total // first) * first
            return divmod(self.consumed_samples, whole) if self.shuffles else (0, self.consumed_samples)
        while consumed < self.consumed_samples:
            size = self._next_size(consumed, total - done)
            if size == 0:
                epoch, done = epoch + 1, 0
                continue
            size = min(size, self.consumed_samples - consumed)
            consumed, done = consumed + size, done + size
        return epoch, done


def draw_rows(count: int, wanted: int) -> numpy.ndarray:
    """Return the row of each of `wanted` samples (`dataset.max_train_samples`): shuffled, and over again where rows are fewer.

    Rows are shuffled in blocks, and the blocks among themselves, from seeds of their own; int64 [wanted].
    """
    needed, block = max(count, wanted), min(BLOCK, count)
    blocks = -(-needed // block)
    order = numpy.random.RandomState(1).permutation(blocks)
    drawn: list[numpy.ndarray] = []
    have = 0
    for place, number in enumerate(order.tolist()):
        if have >= wanted:
            break
        members = numpy.arange(number * block, min((number + 1) * block, needed))
        drawn.append(numpy.random.RandomState(1 + place).permutation(members) % count)
        have += len(members)
    return numpy.concatenate(drawn)[:wanted].astype(numpy.int64)


def draw_packs(count: int, wanted: int, *, seed: int) -> numpy.ndarray:
    """Return the pack of each of `wanted` samples: shuffled epochs one after another; int64 [wanted]."""
    generator = numpy.random.RandomState(seed)
    epochs = [numpy.arange(count) for _ in range(-(-wanted // count))]
    for epoch in epochs:
        generator.shuffle(epoch)
    return numpy.concatenate(epochs)[:wanted].astype(numpy.int64)
