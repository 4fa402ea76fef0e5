"""The fine-tuning data of a run, from its sources to three streams. Start reading at `open_finetune_streams`.

One process makes the tokenized copies (on each machine that does not see the first one's); every rank maps them, picks the same
rows for training, validation and test, packs them alike, and reads its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch

from autorecipe.engine.data.datasets import Streams
from autorecipe.engine.data.tokenizer import Tokenizer
from autorecipe.engine.finetune.batches import PackDataset, RowDataset, open_stream
from autorecipe.engine.finetune.order import GlobalBatchSampler, draw_packs, draw_rows
from autorecipe.engine.finetune.packing import pack_rows, padded_lengths
from autorecipe.engine.finetune.packs import Packing
from autorecipe.engine.finetune.prebuilt import build_pack_store
from autorecipe.engine.finetune.sources import Source
from autorecipe.engine.finetune.spec import FinetuneSpec
from autorecipe.engine.finetune.store import Store, build_store
from autorecipe.engine.finetune.waiting import let_one_do
from autorecipe.engine.loop.batch import running_batch
from autorecipe.engine.loop.settings import LoopSettings
from autorecipe.engine.parallel import ParallelContext


@dataclass(frozen=True, kw_only=True)
class FinetuneData:
    """Datasets of the three splits; None where a split has no rows.

    Attributes:
        train: training sequences.
        validation: validation sequences.
        test: test sequences, never packed.
        notes: what the user must know, from the process that made the copies.
    """

    train: RowDataset | PackDataset
    validation: RowDataset | PackDataset | None
    test: RowDataset | None
    notes: tuple[str, ...]


def build_finetune_data(
    spec: FinetuneSpec,
    tokenizer: Tokenizer,
    *,
    max_bad_rows: int = 0,
    share: Callable[[Callable[[], Path], Callable[[Path], bool]], Path] | None = None,
) -> FinetuneData:
    """Tokenize what is not tokenized yet, and build the datasets.

    Args:
        spec: what the run says about its data.
        tokenizer: of the run.
        max_bad_rows: rows of each source that may be left out.
        share: runs the making on one process and gives its result to all; this process alone where None.

    Raises:
        AutorecipeError: what `build_store` raises, on every rank alike.
    """
    notes: list[str] = []

    def open_copy(make: Callable[[], Path]) -> Store:
        store = Store(make() if share is None else share(make, lambda path: (path / "report.json").is_file()))
        notes.extend(store.report.notes(spec.row_limit))
        return store

    def open_rows(source: Source) -> Store:
        return open_copy(lambda: build_store(source, spec, tokenizer, max_bad_rows=max_bad_rows, fresh=spec.rewrite))

    def open_packs(files: str, called: str) -> PackDataset:
        assert packing is not None
        whole = replace(packing, longest_row=packing.length)
        store = open_copy(lambda: build_pack_store(files, spec, whole, eod=tokenizer.eod, max_bad_rows=max_bad_rows))
        return _lay_packs(store, numpy.arange(len(store)), store.packs(), spec, whole, tokenizer, notes, called)

    packing = spec.packing
    train_files, validation_files = (packing.train_files, packing.validation_files) if packing else (None, None)
    train: RowDataset | PackDataset | None = open_packs(train_files, "training") if train_files else None
    validation: RowDataset | PackDataset | None = open_packs(validation_files, "validation") if validation_files else None
    holds_out = spec.held_out is not None and validation is None
    if train is None or holds_out:
        store = open_rows(spec.train)
        rows = numpy.arange(len(store))
        if spec.held_out is not None:
            held, rows = split_rows(len(store), share=spec.held_out, seed=spec.seed)
            notes.append(f"{len(held)} of these rows are held out for validation")
            validation = validation or _build(store, held, spec, tokenizer, notes, "validation")
        train = train or _build(store, rows, spec, tokenizer, notes, "training")
    if validation is None and spec.validation is not None:
        store = open_rows(spec.validation)
        validation = _build(store, numpy.arange(len(store)), spec, tokenizer, notes, "validation")
    test = None if spec.test is None else open_rows(spec.test)
    return FinetuneData(
        train=train,
        validation=validation,
        test=None if test is None else RowDataset(test, numpy.arange(len(test)), spec=spec, pad_id=tokenizer.eod),
        notes=tuple(notes),
    )


def split_rows(count: int, *, share: float, seed: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the rows that are held out, and the others, both in the order that `datasets` gives them.

    Source: `datasets` Dataset.train_test_split, which Megatron Bridge 0.6.2 splits with. Evidence: enforced-upstream.
    """
    order = numpy.random.default_rng(seed).permutation(count)
    held = int(numpy.ceil(share * count))
    return order[:held], order[held:]


def open_finetune_streams(
    data: FinetuneData,
    spec: FinetuneSpec,
    settings: LoopSettings,
    *,
    consumed_train: int,
    consumed_valid: int,
    data_parallel_rank: int,
    data_parallel_size: int,
) -> Streams:
    """Open the three streams at the given sequence counts.

    Raises:
        UsageError: a split that is read has fewer sequences than one global batch.
    """

    def stream(
        dataset: RowDataset | PackDataset | None, called: str, consumed: int, sampling: dict[str, Any]
    ) -> Iterator[dict[str, torch.Tensor]] | None:
        if dataset is None:
            return None
        place: dict[str, Any] = {"data_parallel_rank": data_parallel_rank, "data_parallel_size": data_parallel_size}
        sampler = GlobalBatchSampler(
            dataset=dataset, consumed_samples=consumed, seed=spec.seed, shuffles=spec.shuffles, **place, **sampling
        )
        largest = settings.global_batch_size if called == "training" else settings.eval_global_batch_size
        return open_stream(dataset, sampler, called=called, largest_batch=largest, num_workers=spec.num_workers)

    evaluates = settings.eval_iters > 0
    training = {
        "batch_size": partial(running_batch, settings, data_parallel_size=data_parallel_size),
        "micro_batch_size": settings.micro_batch_size,
        "drops_last": spec.drops_last,
    }
    evaluation = {
        "batch_size": lambda _consumed: settings.eval_global_batch_size,
        "micro_batch_size": settings.eval_micro_batch_size,
    }
    return Streams(
        train=None if settings.skip_train else stream(data.train, "training", consumed_train, training),
        validation=stream(data.validation, "validation", consumed_valid, evaluation) if evaluates else None,
        test=stream(data.test, "test", 0, evaluation) if evaluates else None,
        whole_steps=True,
    )


def share_over_ranks(context: ParallelContext) -> Callable[[Callable[[], Path], Callable[[Path], bool]], Path]:
    """Return a function that lets one process work while the others wait, however long it takes."""

    def share(make: Callable[[], Path], is_here: Callable[[Path], bool]) -> Path:
        return let_one_do(make, is_here, rank=context.rank, local_rank=context.local_rank)

    return share


def _build(
    store: Store, rows: numpy.ndarray, spec: FinetuneSpec, tokenizer: Tokenizer, notes: list[str], called: str
) -> RowDataset | PackDataset:
    packing = spec.packing
    if packing is not None:
        lengths = padded_lengths(store.lengths()[rows], packing)
        packs = pack_rows(lengths.tolist(), size=packing.length, seed=spec.seed)
        return _lay_packs(store, rows, packs, spec, packing, tokenizer, notes, called)
    wanted = spec.max_train_samples if called == "training" else None
    if wanted is not None:
        notes.append(f"{called}: {wanted} rows are drawn from {len(rows)} (dataset.max_train_samples)")
        rows = rows[draw_rows(len(rows), wanted)]
    return RowDataset(store, rows, spec=spec, pad_id=tokenizer.eod)


def _lay_packs(
    store: Store,
    rows: numpy.ndarray,
    packs: list[list[int]],
    spec: FinetuneSpec,
    packing: Packing,
    tokenizer: Tokenizer,
    notes: list[str],
    called: str,
) -> PackDataset:
    dataset = PackDataset(store, rows, packs, spec=spec, packing=packing, pad_id=tokenizer.eod)
    notes.append(
        f"{called}: {len(rows)} rows in {len(packs)} packs of {packing.length} tokens, {dataset.filled_share:.0%} filled"
    )
    wanted = spec.max_train_samples if called == "training" else None
    if wanted is None:
        return dataset
    notes.append(f"{called}: {wanted} packs are drawn from {len(packs)} (dataset.max_train_samples)")
    drawn = [packs[number] for number in draw_packs(len(packs), wanted, seed=spec.seed)]
    return PackDataset(store, rows, drawn, spec=spec, packing=packing, pad_id=tokenizer.eod)
