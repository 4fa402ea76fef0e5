"""Builds train, validation and test streams on Megatron-Core's datasets.

Purpose: the same samples in the same order as Megatron-LM from the same fields. Every rank builds every split (core lets
rank 0 write the shuffle cache first); tensor-parallel ranks of one replica read the same samples.
Leaves out: which data (`spec`), tokenizers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from autorecipe.engine.data.sampler import EndlessSampler, SequentialSampler, ShuffledSampler
from autorecipe.engine.data.spec import DataSpec, check_data_files
from autorecipe.engine.data.tokenizer import Tokenizer
from autorecipe.engine.loop.settings import LoopSettings
from autorecipe.errors import EnvironmentProblem, Problem


@dataclass(kw_only=True)
class Streams:
    """Endless-looking iterators over micro batches, one per split; None where a split has no data.

    A micro batch is a dict of tensors: tokens, labels, position_ids [B, S] int64; loss_mask [B, S] float32; and
    attention_mask [B, 1, S, S] bool where documents must not see one another. Packed sequences bring cu_seqlens.

    Attributes:
        train: of training data.
        validation: of validation data.
        test: of test data.
        whole_steps: whether S differs between steps, so that the micro batches of a step must be drawn together.
    """

    train: Iterator[dict[str, torch.Tensor]] | None
    validation: Iterator[dict[str, torch.Tensor]] | None
    test: Iterator[dict[str, torch.Tensor]] | None
    whole_steps: bool = False


def build_datasets(spec: DataSpec, settings: LoopSettings, tokenizer: Tokenizer) -> tuple[Any, Any, Any]:
    """Build the three datasets with upstream's sample counts.

    Raises:
        EnvironmentProblem: files are missing or unreadable.
    """
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig, MockGPTDataset

    check_data_files(spec)
    fields: dict[str, Any] = {
        "random_seed": spec.seed,
        "sequence_length": settings.seq_length,
        "path_to_cache": str(spec.cache) if spec.cache else None,
        "tokenizer": tokenizer,
        "reset_position_ids": spec.reset_position_ids,
        "reset_attention_mask": spec.reset_attention_mask,
        "eod_mask_loss": spec.eod_mask_loss,
        # A dense mask is made only where it says more than "causal"; attention modules make the causal one themselves.
        "create_attention_mask": spec.reset_attention_mask,
        "mmap_bin_files": spec.mmap,
    }
    if spec.blend_per_split is not None:
        fields["blend_per_split"] = [None if blend is None else _core_blend(blend) for blend in spec.blend_per_split]
    elif spec.blend is not None:
        fields.update(blend=_core_blend(spec.blend), split=spec.split)
    train_samples = settings.train_samples or settings.train_iters * settings.global_batch_size
    sizes = [train_samples, settings.valid_samples, settings.test_samples]
    dataset_class = MockGPTDataset if spec.mock else GPTDataset
    try:
        built = BlendedMegatronDatasetBuilder(dataset_class, sizes, lambda: True, GPTDatasetConfig(**fields)).build()
    except (AssertionError, ValueError, OSError, IndexError) as error:
        if spec.mock:
            raise
        raise EnvironmentProblem(
            Problem(
                path=", ".join(spec.prefixes),
                code="data-unreadable",
                message=f"cannot be read as indexed data: {error}",
                hint="make the files again with `autorecipe data index`",
            )
        ) from error
    train, validation, test = built
    return train, validation, test


def build_streams(
    datasets: tuple[Any, Any, Any],
    spec: DataSpec,
    settings: LoopSettings,
    *,
    consumed_train: int,
    consumed_valid: int,
    data_parallel_rank: int,
    data_parallel_size: int,
) -> Streams:
    """Open the three streams at the given sample counts.

    Args:
        datasets: train, validation, test; None where a split has none.
        spec: order, sharding, workers.
        settings: batch sizes.
        consumed_train: training samples that earlier steps read.
        consumed_valid: validation samples that earlier evaluations read.
        data_parallel_rank: this rank.
        data_parallel_size: ranks that read different samples.
    """

    def stream(dataset: Any, *, consumed: int, micro_batch_size: int) -> Iterator[dict[str, torch.Tensor]] | None:
        if dataset is None:
            return None
        place: dict[str, Any] = {
            "total_samples": len(dataset),
            "consumed_samples": consumed,
            "micro_batch_size": micro_batch_size,
            "data_parallel_rank": data_parallel_rank,
            "data_parallel_size": data_parallel_size,
        }
        sampler: Any = (
            SequentialSampler(**place)
            if spec.order == "single"
            else EndlessSampler(epochs=ShuffledSampler(**place, data_sharding=spec.sharding))
        )
        # Without an accelerator the loader would only compete with the step for the same cores.
        workers = spec.num_workers if torch.cuda.is_available() else 0
        loader = torch.utils.data.DataLoader(
            dataset,
            batch_sampler=sampler,
            num_workers=workers,
            pin_memory=torch.cuda.is_available(),
            persistent_workers=workers > 0,
        )
        return iter(loader)

    train, validation, test = datasets
    evaluates = settings.eval_iters > 0
    micro, eval_micro = settings.micro_batch_size, settings.eval_micro_batch_size
    if not evaluates:
        # Upstream opens streams for evaluations that never happen, and each draws a seed from the generator of the host, which is
        # also dropout's where there is only a CPU. Source: megatron/training/training.py:4570 @ core 0.19.2. Evidence: measured.
        for _ in [dataset for dataset in (validation, test) if dataset is not None]:
            torch.empty((), dtype=torch.int64).random_()
    return Streams(
        train=None if settings.skip_train else stream(train, consumed=consumed_train, micro_batch_size=micro),
        validation=stream(validation, consumed=consumed_valid, micro_batch_size=eval_micro) if evaluates else None,
        test=stream(test, consumed=0, micro_batch_size=eval_micro) if evaluates else None,
    )


def _core_blend(blend: tuple[tuple[str, ...], tuple[float, ...] | None]) -> tuple[list[str], list[float] | None]:
    prefixes, weights = blend
    return list(prefixes), None if weights is None else list(weights)
