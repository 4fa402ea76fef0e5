"""Repairs how Megatron-Core lays out optimizer states whose gradient buckets are padded, while a checkpoint is built.

Core gathers each buffer's states bucket after bucket without the buckets' padding, and then cuts them by offsets that include
it. With more than one bucket and any padding, parameters after the first bucket get their neighbour's numbers, in silence
(a comment there mentions the symptom). Met with interleaved pipelines and tied embeddings, whose embedding has a bucket of
its own; `ddp.pad_buckets_for_high_nccl_busbw` pads every bucket.
Source: megatron/core/optimizer/distrib_optimizer.py `get_parameter_state_dp_zero` @ 0.16.1 and 0.19.2. Evidence: measured.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

STATE_KEYS = ("param", "exp_avg", "exp_avg_sq")


@contextlib.contextmanager
def aligned_buckets() -> Iterator[None]:
    """Give gathered states the offsets that core cuts them by, within the block."""
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

    original = DistributedOptimizer.get_parameter_state_dp_zero

    def gather(self: Any, *args: Any, **kwargs: Any) -> Any:
        states = original(self, *args, **kwargs)
        if states is not None:
            for index, buffer in enumerate(self.buffers):
                for tensors in states.get(index, {}).values():
                    align_states(tensors, buffer)
        return states

    DistributedOptimizer.get_parameter_state_dp_zero = gather
    try:
        yield
    finally:
        DistributedOptimizer.get_parameter_state_dp_zero = original


def align_states(tensors: dict[str, Any], buffer: Any) -> None:
    """Move each bucket's states from their place without padding to their place with it.

    Args:
        tensors: flat states of one buffer by name, buckets end to end without padding; changed in place.
        buffer: gradient buffer; its buckets know offset, size and size without padding.
    """
    buckets = list(buffer.buckets)
    if len(buckets) < 2 or all(bucket.numel_unpadded == bucket.grad_data.numel() for bucket in buckets[:-1]):
        return
    length = max(bucket.offset + bucket.grad_data.numel() for bucket in buckets)
    for key in STATE_KEYS:
        if key not in tensors:
            continue
        packed = tensors[key]
        spread = torch.zeros(length, dtype=packed.dtype, device=packed.device)
        start = 0
        for bucket in buckets:
            size = bucket.numel_unpadded
            spread[bucket.offset : bucket.offset + size] = packed[start : start + size]
            start += size
        tensors[key] = spread
