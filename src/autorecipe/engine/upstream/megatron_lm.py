"""GPT pretraining with Megatron-LM's training loop where only its package is there: no `pretrain_gpt.py`.

Megatron-Core's wheels from 0.19 on hold `megatron.training` (arguments, initialisation, model, optimizer, schedule, loop, log)
but not the script that starts it. This module is that start: options to configuration, data sets, one forward step, `pretrain`.
Everything that decides a loss is upstream's. Left out, and refused by name: what the script adds beyond pretraining
(`UNSUPPORTED`).

Shapes: S sequence on this context-parallel rank, B micro batch.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

UNSUPPORTED = {
    "sft": "--sft",
    "fim_data": "--fim-data",
    "dataloader_inter_document_masking": "--dataloader-inter-document-masking",
    "hybrid_context_parallel": "--hybrid-context-parallel",
    "overlap_moe_expert_parallel_comm": "--overlap-moe-expert-parallel-comm",
    "logits_load_dir": "--logits-load-dir",
}
"""Destination -> option that only upstream's script serves."""

_DATASET_FIELDS = {
    "random_seed": "seed",
    "sequence_length": "seq_length",
    "path_to_cache": "data_cache_path",
    "create_attention_mask": "create_attention_mask_in_dataloader",
    "fast_cache_load": "dataloader_fast_cache_load",
    "defer_npy_index_mmap": "dataloader_defer_npy_index_mmap",
}
"""Field of core's data set configuration -> destination of the option that sets it, where the names differ."""

_SPIKE_FACTOR = 10
"""A loss above the largest so far by this factor is reported under `--check-for-spiky-loss`. Source: pretrain_gpt.py."""


def pretrain_gpt(arguments: Sequence[str]) -> int:
    """Pretrain as `pretrain_gpt.py` does with the same options.

    Args:
        arguments: Megatron-LM options.

    Returns:
        exit status: 2 for an option that only the script serves, 3 for a release whose package cannot be started this way.
    """
    sys.argv = ["pretrain_gpt.py", *arguments]
    try:
        from megatron.training import pretrain
        from megatron.training.argument_utils import gpt_config_from_args, pretrain_cfg_container_from_args
        from megatron.training.arguments import parse_and_validate_args
    except ImportError as error:
        print(
            f"error[no-checkout]: this megatron.training cannot be started without its pretrain_gpt.py: {error}\n"
            "hint: give a checkout of Megatron-LM, or megatron-core 0.19.2",
            file=sys.stderr,
        )
        return 3
    from megatron.core.enums import ModelType

    args = parse_and_validate_args(args_defaults={"tokenizer_type": "GPT2BPETokenizer"})
    refused = [option for name, option in UNSUPPORTED.items() if getattr(args, name, None)]
    if refused:
        print(
            f"error[needs-script]: {', '.join(refused)}: served by upstream's pretrain_gpt.py only\n"
            "hint: give a checkout of Megatron-LM in place of a package",
            file=sys.stderr,
        )
        return 2
    build_datasets.is_distributed = True  # type: ignore[attr-defined]
    container = pretrain_cfg_container_from_args(args, gpt_config_from_args(args))
    pretrain(
        container,
        build_datasets,
        ModelType.encoder_or_decoder,
        forward_step,
        get_embedding_ranks=functools.partial(embedding_ranks, args),
    )
    return 0


def build_datasets(num_samples: Sequence[int], vp_stage: int | None = None) -> Any:
    """Build the training, validation and test sets that `--mock-data` or the data paths name.

    Args:
        num_samples: samples of each split.
        vp_stage: virtual pipeline stage, if any.
    """
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig, MockGPTDataset
    from megatron.core.tokenizers.utils.build_tokenizer import build_tokenizer
    from megatron.training import get_args
    from megatron.training.utils import get_blend_and_blend_per_split

    args = get_args()
    blend, blend_per_split = get_blend_and_blend_per_split(args)
    values: dict[str, Any] = {
        "tokenizer": build_tokenizer(args),
        "blend": blend,
        "blend_per_split": blend_per_split,
        "sequence_parallel_size": args.tensor_model_parallel_size if args.sequence_parallel else 0,
    }
    for field in dataclasses.fields(GPTDatasetConfig):
        destination = _DATASET_FIELDS.get(field.name, field.name)
        if field.init and field.name not in values and hasattr(args, destination):
            values[field.name] = getattr(args, destination)
    kind = MockGPTDataset if args.mock_data else GPTDataset
    built = functools.partial(_reads_data, vp_stage)
    return BlendedMegatronDatasetBuilder(kind, num_samples, built, GPTDatasetConfig(**values)).build()


def forward_step(data: Iterator[Any], model: Any) -> tuple[Any, Any]:
    """Run one micro batch forward.

    Args:
        data: batches of this rank; None on ranks that need none.
        model: this rank's part of the model.

    Returns:
        the output tensor, [B, S] losses on the last stage, and the function that reduces them.
    """
    from megatron.core import parallel_state
    from megatron.core.utils import get_attr_wrapped_model

    from autorecipe.engine.compat import slice_for_context_parallel

    names = ("tokens", "position_ids", "labels", "loss_mask", "attention_mask")
    batch: dict[str, Any] = dict.fromkeys(names)
    if _reads_data(get_attr_wrapped_model(model, "vp_stage")):
        given = next(data)
        batch |= {name: given[name].cuda(non_blocking=True) for name in names if given.get(name) is not None}
        if parallel_state.get_context_parallel_world_size() > 1:
            present = {name: value for name, value in batch.items() if value is not None}
            batch |= slice_for_context_parallel(present, parallel_state.get_context_parallel_group())
    losses = model(
        batch["tokens"], batch["position_ids"], batch["attention_mask"], labels=batch["labels"], loss_mask=batch["loss_mask"]
    )
    return losses, functools.partial(reduce_loss, batch["loss_mask"])


def reduce_loss(loss_mask: Any, losses: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Add up the losses of counted tokens; the loop divides by their number.

    Args:
        loss_mask: [B, S], 1 where a token counts.
        losses: [B, S].

    Returns:
        summed loss, number of tokens, and both as `lm loss` for the log.
    """
    import torch
    from megatron.core.rerun_state_machine import get_rerun_state_machine
    from megatron.training import get_args

    args = get_args()
    mask = loss_mask.view(-1).float()
    total = torch.sum(losses.view(-1).float() * mask)
    tokens = mask.sum().detach().to(torch.int)
    machine = get_rerun_state_machine()
    checks: list[tuple[Any, str, bool]] = []
    if args.check_for_nan_in_loss_and_grad:
        checks += [(torch.isnan, "the loss of this micro batch is nan", True), (torch.isinf, "the loss is infinite", True)]
    if args.check_for_spiky_loss:
        spiky = functools.partial(machine.is_unexpectedly_large, threshold=_SPIKE_FACTOR, context="loss")
        checks.append((spiky, "the loss jumps", False))
    for rejects, message, fatal in checks:
        machine.validate_result(result=total, rejection_func=rejects, message=message, tolerance=0.0, fatal=fatal)
    return total, tokens, {"lm loss": torch.stack([total.detach(), tokens.to(total.dtype)])}


def embedding_ranks(args: Any, pipeline_ranks: Sequence[int]) -> list[int]:
    """Return the ranks of a pipeline that hold an embedding: first, last where it is tied, those with further tokens to predict.

    Args:
        args: Megatron-LM's arguments.
        pipeline_ranks: global ranks of one pipeline.
    """
    ranks = {pipeline_ranks[0]}
    if len(pipeline_ranks) > 1:
        from megatron.core.transformer.multi_token_prediction import get_mtp_ranks
        from megatron.training.arguments import core_transformer_config_from_args

        if not args.untie_embeddings_and_output_weights:
            ranks.add(pipeline_ranks[-1])
        ranks |= set(get_mtp_ranks(list(pipeline_ranks), core_transformer_config_from_args(args)))
    return sorted(ranks)


def _reads_data(vp_stage: int | None = None) -> bool:
    """Return whether this rank's stage needs tokens: the first, the last, and those that predict further tokens."""
    from megatron.core.transformer.multi_token_prediction import mtp_on_this_rank
    from megatron.training import get_args
    from megatron.training.arguments import core_transformer_config_from_args
    from megatron.training.utils import is_first_or_last_pipeline_stage

    if is_first_or_last_pipeline_stage(vp_stage):
        return True
    config = core_transformer_config_from_args(get_args())
    return bool(
        mtp_on_this_rank(
            layout=config.pipeline_model_parallel_layout,
            mtp_num_layers=config.mtp_num_layers,
            ignore_virtual=False,
            vp_stage=vp_stage,
        )
    )
