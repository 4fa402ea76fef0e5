"""Rows and packs as tensors. Start reading at `open_stream`; which of them a step reads is `order`.

Rows of one global batch are padded to one length, over all ranks, so that a layout changes neither shapes nor losses.
Source: Megatron Bridge 0.6.2 data/datasets/gpt_sft.py, data/packing/gpt_sft.py.
Evidence: enforced-upstream (shifts, masks); the common length over ranks is this project's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy
import torch

from autorecipe.engine.finetune.order import GlobalBatchSampler, Item
from autorecipe.engine.finetune.packing import padded_lengths
from autorecipe.engine.finetune.packs import Packing
from autorecipe.engine.finetune.spec import FinetuneSpec
from autorecipe.engine.finetune.store import Store
from autorecipe.errors import Problem, UsageError


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
        if number >= 0:
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
        self._most = max(map(len, packs), default=0)
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
            if number >= 0:
                mask[at : at + count] = torch.from_numpy(learned[1 : count + 1].astype(numpy.float32))
            positions[at : at + room] = torch.arange(room)
            at += room
            bounds.append(at)
        if at < length:
            positions[at:] = torch.arange(length - at)
            bounds.append(length)
        if self._packing.pads_boundaries:  # beginning, rows, padding; sequences without tokens change nothing
            bounds += [length] * (self._most + 2 - len(bounds))
        boundaries = torch.tensor(bounds, dtype=torch.int32)
        return {"tokens": tokens, "labels": labels, "loss_mask": mask, "position_ids": positions, "cu_seqlens": boundaries}


def open_stream(
    dataset: RowDataset | PackDataset, sampler: GlobalBatchSampler, *, called: str, largest_batch: int, num_workers: int
) -> Iterator[dict[str, torch.Tensor]]:
    """Open a stream of micro batches: tokens, labels, position_ids [B, S] int64, loss_mask [B, S], of packs also cu_seqlens.

    Args:
        dataset: sequences of a split.
        sampler: which of them this rank reads, and when.
        called: the split, for messages.
        largest_batch: sequences of the largest global batch.
        num_workers: loader processes.

    Raises:
        UsageError: there are fewer sequences than one global batch, which is not filled up.
    """
    if len(dataset) < largest_batch and (sampler.drops_last or not len(dataset)):
        raise UsageError(_too_few(dataset, called, largest_batch))
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
