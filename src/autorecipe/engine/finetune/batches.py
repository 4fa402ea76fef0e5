"""Rows and packs as tensors, in Megatron Bridge's order. Start reading at `open_stream`.

Order: every epoch is a permutation of its own, cut into whole global batches; data-parallel ranks take turns within one. Rows of
one global batch are padded to one length, over all ranks, so that a layout changes neither shapes nor losses.
Source: Megatron Bridge 0.6.2 data/samplers.py, data/datasets/gpt_sft.py, data/packing/gpt_sft.py.
Evidence: enforced-upstream (order, shifts, masks); the common length over ranks is this project's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from autorecipe.engine.finetune.packing import padded_lengths
from autorecipe.engine.finetune.spec import FinetuneSpec, Packing
from autorecipe.engine.finetune.store import Store
from autorecipe.errors import Problem, UsageError

Item = tuple[int, int]
"""Number of a row or pack in its split, and the tokens that it is padded to."""


class RowDataset(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """One row to a sequence."""

    def __init__(self, store: Store, rows: numpy.ndarray, *, spec: FinetuneSpec, pad_id: int) -> None:
        """Keep what is needed.

        Args:
            store: tokenized rows.
            rows: those of this split.
            spec: padding.
            pad_id: id of padding; it is never learned.
        """
        self._store = store
        self._rows = rows
        self._spec = spec
        self._pad_id = pad_id
        self._tokens = store.lengths()[rows] - 1

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self._rows)

    def padded_length(self, numbers: Sequence[int]) -> int:
        """Return the length that these sequences are padded to together."""
        if self._spec.pads_whole:
            return self._spec.seq_length
        longest = int(self._tokens[list(numbers)].max())
        multiple = self._spec.multiple
        return min(-(-longest // multiple) * multiple, max(self._spec.seq_length, longest))

    def __getitem__(self, item: Item) -> dict[str, torch.Tensor]:
        """Return one padded sequence: tokens, labels, loss_mask, position_ids, each [length]."""
        number, length = item
        ids, learned = self._store.row(int(self._rows[number]))
        tokens = torch.full((length,), self._pad_id, dtype=torch.int64)
        labels = torch.full((length,), self._pad_id, dtype=torch.int64)
        mask = torch.zeros(length)
        count = len(ids) - 1
        tokens[:count] = torch.from_numpy(ids[:-1].astype(numpy.int64))
        labels[:count] = torch.from_numpy(ids[1:].astype(numpy.int64))
        mask[:count] = torch.from_numpy(learned[1:].astype(numpy.float32))
        return {"tokens": tokens, "labels": labels, "loss_mask": mask, "position_ids": torch.arange(length)}


class PackDataset(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Several rows to a sequence, each with positions and attention of its own."""

    def __init__(
        self,
        store: Store,
        rows: numpy.ndarray,
        packs: Sequence[Sequence[int]],
        *,
        spec: FinetuneSpec,
        packing: Packing,
        pad_id: int,
    ) -> None:
        """Keep what is needed.

        Args:
            store: tokenized rows.
            rows: those of this split.
            packs: places in `rows` that share a sequence.
            spec: padding.
            packing: lengths.
            pad_id: id of padding; it is never learned.
        """
        self._store = store
        self._rows = rows
        self._packs = packs
        self._spec = spec
        self._packing = packing
        self._pad_id = pad_id
        self._tokens = padded_lengths(store.lengths()[rows], packing)
        self._filled = numpy.array([int(self._tokens[list(pack)].sum()) for pack in packs], dtype=numpy.int64)

    def __len__(self) -> int:
        """Return the number of packs."""
        return len(self._packs)

    @property
    def filled_share(self) -> float:
        """Share of all packs' tokens that rows take."""
        return float(self._filled.sum() / (len(self._packs) * self._packing.length)) if len(self._packs) else 0.0

    def padded_length(self, numbers: Sequence[int]) -> int:
        """Return the length that these packs are padded to together."""
        if self._spec.pads_whole:
            return self._packing.length
        multiple = self._spec.multiple
        return min(-(-int(self._filled[list(numbers)].max()) // multiple) * multiple, self._packing.length)

    def __getitem__(self, item: Item) -> dict[str, torch.Tensor]:
        """Return one pack: tokens, labels, loss_mask, position_ids [length], and cu_seqlens [sequences + 1] (int32)."""
        number, length = item
        tokens = torch.full((length,), self._pad_id, dtype=torch.int64)
        labels = torch.full((length,), self._pad_id, dtype=torch.int64)
        mask, positions = torch.zeros(length), torch.zeros(length, dtype=torch.int64)
        bounds, at = [0], 0
        for place in self._packs[number]:
            ids, learned = self._store.row(int(self._rows[place]))
            room = int(self._tokens[place])
            # Aligned rows also read their last id, with no loss; it sits where padding would.
            count, shown = min(len(ids) - 1, room), min(len(ids), room)
            tokens[at : at + shown] = torch.from_numpy(ids[:shown].astype(numpy.int64))
            labels[at : at + count] = torch.from_numpy(ids[1 : count + 1].astype(numpy.int64))
            mask[at : at + count] = torch.from_numpy(learned[1 : count + 1].astype(numpy.float32))
            positions[at : at + room] = torch.arange(room)
            at += room
            bounds.append(at)
        if at < length:
            positions[at:] = torch.arange(length - at)
            bounds.append(length)
        boundaries = torch.tensor(bounds, dtype=torch.int32)
        return {"tokens": tokens, "labels": labels, "loss_mask": mask, "position_ids": positions, "cu_seqlens": boundaries}


@dataclass(frozen=True, kw_only=True)
class GlobalBatchSampler:
    """Micro batches of this rank, global batch after global batch, without end.

    Attributes:
        dataset: knows its size and its padding.
        consumed_samples: sequences that earlier steps read, over all epochs and ranks.
        global_batch_size: sequences of a global batch.
        micro_batch_size: sequences of a micro batch.
        data_parallel_rank: this rank.
        data_parallel_size: ranks that read different sequences.
        seed: of the order.
    """

    dataset: RowDataset | PackDataset
    consumed_samples: int
    global_batch_size: int
    micro_batch_size: int
    data_parallel_rank: int
    data_parallel_size: int
    seed: int

    def __iter__(self) -> Iterator[list[Item]]:
        """Yield the items of one micro batch after another; the ragged end of an epoch is left out."""
        total, size = len(self.dataset), self.global_batch_size
        whole = total // size * size
        epoch, done = divmod(self.consumed_samples, whole)
        while True:
            generator = torch.Generator().manual_seed(self.seed + epoch)
            order = torch.randperm(total, generator=generator).tolist()[done:]
            for start in range(0, len(order) - size + 1, size):
                batch = order[start : start + size]
                length = self.dataset.padded_length(batch)
                mine = batch[self.data_parallel_rank :: self.data_parallel_size]
                for first in range(0, len(mine), self.micro_batch_size):
                    yield [(number, length) for number in mine[first : first + self.micro_batch_size]]
            epoch, done = epoch + 1, 0


def open_stream(
    dataset: RowDataset | PackDataset,
    *,
    called: str,
    consumed: int,
    global_batch_size: int,
    micro_batch_size: int,
    data_parallel_rank: int,
    data_parallel_size: int,
    seed: int,
    num_workers: int,
) -> Iterator[dict[str, torch.Tensor]]:
    """Open a stream of micro batches: tokens, labels, position_ids [B, S] int64, loss_mask [B, S], of packs also cu_seqlens.

    Args:
        dataset: sequences of a split.
        called: the split, for messages.
        consumed: sequences that were read before.
        global_batch_size: sequences of a global batch.
        micro_batch_size: sequences of a micro batch.
        data_parallel_rank: this rank.
        data_parallel_size: ranks that read different sequences.
        seed: of the order.
        num_workers: loader processes.

    Raises:
        UsageError: there are fewer sequences than one global batch.
    """
    if len(dataset) < global_batch_size:
        raise UsageError(_too_few(dataset, called, global_batch_size))
    sampler = GlobalBatchSampler(
        dataset=dataset,
        consumed_samples=consumed,
        global_batch_size=global_batch_size,
        micro_batch_size=micro_batch_size,
        data_parallel_rank=data_parallel_rank,
        data_parallel_size=data_parallel_size,
        seed=seed,
    )
    # Without an accelerator the loader would only compete with the step for the same cores.
    workers = num_workers if torch.cuda.is_available() else 0
    loader: Any = torch.utils.data.DataLoader(
        dataset,
        batch_sampler=sampler,
        collate_fn=collate,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        persistent_workers=workers > 0,
    )
    return iter(loader)


def collate(sequences: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Stack sequences; a pack stands alone, and its boundaries belong to the whole micro batch."""
    first = sequences[0]
    batch = {name: torch.stack([row[name] for row in sequences]) for name in first if name != "cu_seqlens"}
    if "cu_seqlens" in first:
        assert len(sequences) == 1
        batch["cu_seqlens"] = first["cu_seqlens"]
    return batch


def _too_few(dataset: RowDataset | PackDataset, called: str, size: int) -> Problem:
    noun = "packs" if isinstance(dataset, PackDataset) else "rows"
    field = "train.global_batch_size" if called == "training" else "validation.eval_global_batch_size"
    other = "" if called == "training" else f", or dataset.do_{called}=false"
    return Problem(
        path=field,
        code="data-too-small",
        message=f"{size} is more than the {len(dataset)} {noun} of {called} data: not one global batch",
        hint=f"give more rows, or a smaller batch ({field}={max(1, len(dataset))}){other}",
    )
