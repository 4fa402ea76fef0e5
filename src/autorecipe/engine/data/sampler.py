"""Which samples each rank reads, in which order; exactly as Megatron-LM's samplers, and resumable at any sample.

Source: Megatron-LM megatron/training/datasets/data_samplers.py @ core 0.19.2 (order, sharding and seeds; behaviour only).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autorecipe.errors import Problem, UsageError


@dataclass(frozen=True, kw_only=True)
class SequentialSampler:
    """Samples in dataset order (`dataset.dataloader_type=single`).

    Each block of `micro_batch_size` x `data_parallel_size` samples is cut into contiguous micro batches, one per rank.

    Attributes:
        total_samples: samples of the dataset.
        consumed_samples: samples that earlier steps read.
        micro_batch_size: samples per micro batch.
        data_parallel_rank: this rank.
        data_parallel_size: ranks.
    """

    total_samples: int
    consumed_samples: int
    micro_batch_size: int
    data_parallel_rank: int
    data_parallel_size: int

    def __post_init__(self) -> None:
        _check_left(self.total_samples, self.consumed_samples)

    def __len__(self) -> int:
        """Return the micro batches that are left for this rank."""
        return (self.total_samples - self.consumed_samples) // (self.micro_batch_size * self.data_parallel_size)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the indices of one micro batch after another; a last incomplete block is dropped."""
        block = self.micro_batch_size * self.data_parallel_size
        offset = self.data_parallel_rank * self.micro_batch_size
        for start in range(self.consumed_samples, self.total_samples - block + 1, block):
            yield list(range(start + offset, start + offset + self.micro_batch_size))


@dataclass(frozen=True, kw_only=True)
class ShuffledSampler:
    """Samples reshuffled every epoch (`dataset.dataloader_type=cyclic`); one pass of the iterator is one epoch.

    Attributes:
        total_samples: samples of the dataset.
        consumed_samples: samples that earlier steps read, over all epochs.
        micro_batch_size: samples per micro batch.
        data_parallel_rank: this rank.
        data_parallel_size: ranks.
        data_sharding: each rank keeps to its own contiguous shard; otherwise ranks take turns in one global order.
    """

    total_samples: int
    consumed_samples: int
    micro_batch_size: int
    data_parallel_rank: int
    data_parallel_size: int
    data_sharding: bool = True

    def __post_init__(self) -> None:
        if self.total_samples < self.micro_batch_size * self.data_parallel_size:
            block = self.micro_batch_size * self.data_parallel_size
            raise UsageError(
                Problem(
                    path="dataset",
                    code="data-too-small",
                    message=f"{self.total_samples} samples are fewer than one block of {block} "
                    f"(train.micro_batch_size={self.micro_batch_size} x {self.data_parallel_size} data-parallel ranks)",
                    hint="give more data, or a smaller train.micro_batch_size",
                )
            )

    def __len__(self) -> int:
        """Return the micro batches of a whole epoch for this rank."""
        return self.total_samples // (self.micro_batch_size * self.data_parallel_size)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the rest of the epoch that `consumed_samples` has reached."""
        yield from self.iterate(self.consumed_samples)

    def iterate(self, consumed: int) -> Iterator[list[int]]:
        """Yield micro batches from a sample count to the end of its epoch."""
        import torch

        block = self.micro_batch_size * self.data_parallel_size
        active = self.total_samples - self.total_samples % block
        epoch, done = divmod(consumed, active)
        generator = torch.Generator()
        generator.manual_seed(epoch)
        if self.data_sharding:
            shard = active // self.data_parallel_size
            base = self.data_parallel_rank * shard
            order = torch.randperm(shard, generator=generator).tolist()
            indices = [base + index for index in order[done // self.data_parallel_size :]]
        else:
            # The permutation covers every whole micro batch, as upstream's does; the ragged end that not all ranks share is cut.
            whole = self.total_samples // self.micro_batch_size * self.micro_batch_size
            order = torch.randperm(whole, generator=generator).tolist()[:active]
            indices = order[done:][self.data_parallel_rank :: self.data_parallel_size]
        size = self.micro_batch_size
        for start in range(0, len(indices) - size + 1, size):
            yield indices[start : start + size]


@dataclass(frozen=True, kw_only=True)
class EndlessSampler:
    """Epoch after epoch of a `ShuffledSampler`, as one stream that a data loader can hold open."""

    epochs: ShuffledSampler

    def __iter__(self) -> Iterator[list[int]]:
        """Yield micro batches without end."""
        block = self.epochs.micro_batch_size * self.epochs.data_parallel_size
        consumed = self.epochs.consumed_samples
        while True:
            for batch in self.epochs.iterate(consumed):
                yield batch
                consumed += block


def _check_left(total: int, consumed: int) -> None:
    if consumed >= total:
        raise UsageError(
            Problem(
                path="train.train_iters",
                code="data-exhausted",
                message=f"the dataset has {total} samples and {consumed} are consumed: none is left",
                hint="raise train.train_iters or train.train_samples before resuming, or start over with --fresh",
            )
        )
