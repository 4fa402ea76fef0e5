"""One optimizer step: forward and backward over the micro batches, gradient reduction, update.

A batch is a mapping of `tokens`, `labels`, `position_ids` (int64), `loss_mask` (float) of shape [B, S], optionally
`attention_mask` ([B, 1, S, S], True = forbidden), and for packed rows (B = 1) `cu_seqlens` (int32, [sequences + 1]). Every rank
receives the whole sequence; context-parallel ranks cut their part out here. Start reading at `train_step`.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from autorecipe.engine import compat, readings
from autorecipe.engine.parallel import ParallelContext
from autorecipe.schema.run import RunConfig

Batch = Mapping[str, Any]

LOSS_NAME = "lm loss"


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one optimizer step reports.

    Attributes:
        losses: mean over all tokens of the global batch by name, equal on every rank; 0-d tensors on the host.
        side_losses: what `read_side_losses` returned, on the host.
        grad_norm: global gradient norm before clipping, or None where none was computed.
        zeros_in_grad: number of zero gradients, or None.
        updated: False where the loss scaler skipped the update.
    """

    losses: Mapping[str, torch.Tensor]
    side_losses: Mapping[str, torch.Tensor]
    grad_norm: float | None
    zeros_in_grad: int | None
    updated: bool


def prepare_schedule(run: RunConfig, chunks: Sequence[Any], optimizer: Any) -> None:
    """Hang the hooks into the model configuration that Megatron-Core's schedules call. Call once, before the first step.

    What exists by then stays for the whole run: Python's collector is told to pass over it, as each full collection would
    otherwise hold up the launching of GPU work.
    """
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.utils import get_model_config

    config = get_model_config(chunks[0])
    config.grad_scale_func = optimizer.scale_loss if optimizer is not None else None
    config.finalize_model_grads_func = finalize_model_grads
    gc.collect()
    gc.freeze()
    ddp_config = chunks[0].ddp_config
    if ddp_config.overlap_grad_reduce:
        config.no_sync_func = _one_or_all([chunk.no_sync for chunk in chunks])
        if run.get("ddp.align_grad_reduce", None) is not False:
            config.grad_sync_func = _one_or_all([chunk.start_grad_sync for chunk in chunks])
    if ddp_config.overlap_param_gather and ddp_config.align_param_gather:
        config.param_sync_func = _one_or_all([chunk.start_param_sync for chunk in chunks])


def train_step(
    chunks: Sequence[Any],
    optimizer: Any,
    batches: Sequence[Iterator[Batch]],
    context: ParallelContext,
    *,
    num_microbatches: int,
    micro_batch_size: int,
    seq_length: int,
    read_side_losses: Callable[[], Mapping[str, torch.Tensor]] | None = None,
) -> StepResult:
    """Run one optimizer step.

    Args:
        chunks: model chunks of this rank.
        optimizer: what `engine.optimizer.build_optimizer` returned.
        batches: one iterator of micro batches per chunk.
        context: process groups.
        num_microbatches: micro batches per data-parallel rank.
        micro_batch_size: rows per micro batch.
        seq_length: whole tokens per row.
        read_side_losses: called by every rank between the backward passes and the update.
    """
    for chunk in chunks:
        chunk.zero_grad_buffer()
    optimizer.zero_grad()
    reports = run_microbatches(
        chunks,
        batches,
        context,
        num_microbatches=num_microbatches,
        micro_batch_size=micro_batch_size,
        seq_length=seq_length,
        forward_only=False,
    )
    losses = reduce_losses(reports, context)
    side_losses = read_side_losses() if read_side_losses is not None else {}
    updated, grad_norm, zeros = optimizer.step()
    norms = {"": grad_norm} if torch.is_tensor(grad_norm) else {}
    found = readings.fetch({**losses, **side_losses, **norms})
    norm = found.get("", grad_norm)
    return StepResult(
        losses={name: found[name] for name in losses},
        side_losses={name: found[name] for name in side_losses},
        grad_norm=None if norm is None else float(norm),
        zeros_in_grad=zeros,
        updated=bool(updated),
    )


def evaluate_step(
    chunks: Sequence[Any],
    batches: Sequence[Iterator[Batch]],
    context: ParallelContext,
    *,
    num_microbatches: int,
    micro_batch_size: int,
    seq_length: int,
) -> Mapping[str, torch.Tensor]:
    """Return the losses of one global batch without training: `[sum, tokens]` by name, equal on every rank."""
    with torch.no_grad():
        reports = run_microbatches(
            chunks,
            batches,
            context,
            num_microbatches=num_microbatches,
            micro_batch_size=micro_batch_size,
            seq_length=seq_length,
            forward_only=True,
        )
    return sum_losses(reports, context)


def run_microbatches(
    chunks: Sequence[Any],
    batches: Sequence[Iterator[Batch]],
    context: ParallelContext,
    *,
    num_microbatches: int,
    micro_batch_size: int,
    seq_length: int,
    forward_only: bool,
) -> list[Mapping[str, torch.Tensor]]:
    """Run the pipeline schedule over one global batch and return the last stage's reports (empty elsewhere)."""
    from megatron.core.pipeline_parallel import get_forward_backward_func

    schedule = get_forward_backward_func()
    reports: list[Mapping[str, torch.Tensor]] = schedule(
        forward_step_func=partial(forward_step, context=context),
        data_iterator=list(batches) if len(chunks) > 1 else batches[0],
        model=list(chunks) if len(chunks) > 1 else chunks[0],
        num_microbatches=num_microbatches,
        seq_length=seq_length,
        micro_batch_size=micro_batch_size,
        forward_only=forward_only,
    )
    return reports


def forward_step(batches: Iterator[Batch], model: Any, *, context: ParallelContext) -> tuple[torch.Tensor, Any]:
    """Run the model on the next micro batch; the second result turns its output into a loss."""
    from megatron.core.utils import get_model_config

    batch = place_batch(next(batches), context)
    packed = batch.pop("packed_seq_params", None)
    arguments: dict[str, Any] = {"labels": batch["labels"]}
    if packed is not None:
        arguments["packed_seq_params"] = packed
    if get_model_config(model).mtp_num_layers:
        arguments["loss_mask"] = batch["loss_mask"]
    output = model(batch["tokens"], batch["position_ids"], batch.get("attention_mask"), **arguments)
    return output, partial(mask_loss, batch["loss_mask"])


def mask_loss(mask: torch.Tensor, losses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Mapping[str, torch.Tensor]]:
    """Sum the token losses that count.

    Args:
        mask: 1 where a token counts, [B, S].
        losses: loss of each token, [B, S].

    Returns:
        the sum (for the backward pass), the number of tokens, and `[sum, tokens]` for reports.
    """
    weights = mask.reshape(-1).float()
    total = torch.sum(losses.reshape(-1).float() * weights)
    tokens = weights.sum().detach().to(torch.int)
    report = torch.stack([total.detach(), tokens.to(total.dtype)])
    return total, tokens, {LOSS_NAME: report}


def sum_losses(reports: Sequence[Mapping[str, torch.Tensor]], context: ParallelContext) -> Mapping[str, torch.Tensor]:
    """Sum `[sum, tokens]` reports over micro batches and data-parallel ranks, and share them with all pipeline stages."""
    if context.is_last_stage:
        summed = torch.stack([report[LOSS_NAME] for report in reports]).sum(dim=0)
        dist.all_reduce(summed, group=context.groups.dp_cp)
    else:
        summed = torch.zeros(2, dtype=torch.float32, device=context.device)
    if context.layout.pp > 1:
        last = dist.get_process_group_ranks(context.groups.pp)[-1]
        dist.broadcast(summed, src=last, group=context.groups.pp)
    return {LOSS_NAME: summed}


def reduce_losses(reports: Sequence[Mapping[str, torch.Tensor]], context: ParallelContext) -> Mapping[str, torch.Tensor]:
    """Return the mean loss per token by name, equal on every rank; 0 where no token of the batch counts."""
    return {name: summed[0] / summed[1].clamp(min=1) for name, summed in sum_losses(reports, context).items()}


def place_batch(batch: Batch, context: ParallelContext) -> dict[str, Any]:
    """Move a micro batch to the device and keep this context-parallel rank's part of it."""
    tensors = {name: _move(value, context.device) for name, value in batch.items() if torch.is_tensor(value)}
    boundaries = tensors.pop("cu_seqlens", None)
    if boundaries is not None:
        return _place_packed(tensors, boundaries, batch["cu_seqlens"].tolist(), context)
    if context.layout.cp > 1:
        tensors = compat.slice_for_context_parallel(tensors, context.groups.cp)
    return tensors


def _move(value: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Move a tensor without waiting for the GPU: copies from pageable memory would."""
    if device.type == "cuda" and not value.is_cuda:
        return value.pin_memory().to(device, non_blocking=True)
    return value.to(device)


def _place_packed(
    tensors: dict[str, torch.Tensor], boundaries: torch.Tensor, host: list[int], context: ParallelContext
) -> dict[str, Any]:
    """Describe packed rows to the model; context-parallel ranks keep two chunks of each sequence."""
    from autorecipe.engine.modules.context import zigzag_order
    from autorecipe.engine.modules.packing import describe_packs

    if context.layout.cp > 1:
        size, rank = context.layout.cp, context.groups.cp.rank()
        places = zigzag_order(host, size, context.device)
        share = places.numel() // size
        mine = torch.argsort(places)[rank * share : (rank + 1) * share]
        tensors = {name: value.index_select(1, mine) for name, value in tensors.items()}
    return {**tensors, "packed_seq_params": describe_packs(boundaries, host, tensors["position_ids"][0])}


def _one_or_all(functions: list[Any]) -> Any:
    return functions[0] if len(functions) == 1 else functions


@contextlib.contextmanager
def evaluation_mode(chunks: Sequence[Any]) -> Iterator[None]:
    """Switch dropout off within the block."""
    for chunk in chunks:
        chunk.eval()
    try:
        yield
    finally:
        for chunk in chunks:
            chunk.train()
