"""What is inside a checkpoint: model, optimizer and generator states as Megatron-Core shards.

Purpose: one state dict for saving and for loading at any layout. Leaves out: folders and decisions (`folder`, `saver`,
`resume`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from autorecipe.engine import compat
from autorecipe.engine.adapters.settings import is_adapter_key
from autorecipe.engine.checkpoint.buckets import aligned_buckets
from autorecipe.engine.checkpoint.groups import match_optimizer_groups


def sharding_metadata() -> dict[str, Any]:
    """Return how states are sharded on disk: optimizer states in a form that any other layout reads."""
    from megatron.core import parallel_state

    return {
        "distrib_optim_sharding_type": "fully_reshardable",
        "distrib_optim_fully_reshardable_mem_efficient": False,
        "singleton_local_shards": False,
        "chained_optim_avoid_prefix": True,
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True),
    }


def unwrap(chunk: Any) -> Any:
    """Return the model inside data-parallel and precision wrappers; their key prefixes do not belong on disk."""
    while hasattr(chunk, "module"):
        chunk = chunk.module
    return chunk


def model_key(index: int, num_chunks: int) -> str:
    """Return upstream's name of a model chunk."""
    return "model" if num_chunks == 1 else f"model{index}"


def build_content(
    chunks: Sequence[Any], optimizer: Any | None, *, common: dict[str, Any], with_rng: bool, is_loading: bool
) -> dict[str, Any]:
    """Build the sharded state dict of this rank.

    Args:
        chunks: model chunks, wrapped or not.
        optimizer: or None to leave its state out.
        common: values that every rank shares.
        with_rng: whether to include this rank's generator states.
        is_loading: whether the states will be filled.
    """
    metadata = sharding_metadata()
    content: dict[str, Any] = dict(common)
    for index, chunk in enumerate(chunks):
        states = unwrap(chunk).sharded_state_dict(metadata=metadata)
        if not compat.has_transformer_engine():
            # Modules of our own have none of Transformer Engine's extra states; core lists empty ones for some.
            states = {key: value for key, value in states.items() if not key.endswith("_extra_state")}
        if _trains_adapter_only(chunk):
            states = {key: value for key, value in states.items() if is_adapter_key(key)}
        content[model_key(index, len(chunks))] = states
    if optimizer is not None:
        with aligned_buckets():
            content["optimizer"] = optimizer.sharded_state_dict(content, is_loading=is_loading, metadata=metadata)
    if with_rng:
        content["rng_state"] = _shard_generators()
    return content


def load_content(path: str, chunks: Sequence[Any], optimizer: Any | None, *, with_rng: bool) -> dict[str, Any] | None:
    """Fill model and optimizer from a checkpoint folder written at any layout.

    Args:
        path: the folder.
        chunks: model chunks, wrapped or not.
        optimizer: or None to leave it as it is.
        with_rng: whether to read generator states; only at the layout that wrote them.

    Returns:
        generator states for `restore_generators`, which must be the last thing before training: opening a data stream
        draws from the generators too. None where they were not asked for.

    Raises:
        Exception: whatever reading raises; states may then be half-filled, so another checkpoint must be loaded.
    """
    from megatron.core import dist_checkpointing

    content = build_content(chunks, optimizer, common={}, with_rng=with_rng, is_loading=True)
    loaded = dist_checkpointing.load(content, path)
    for index, chunk in enumerate(chunks):
        result = unwrap(chunk).load_state_dict(loaded[model_key(index, len(chunks))], strict=False)
        frozen = _trains_adapter_only(chunk)
        missing = [key for key in result.missing_keys if not key.endswith("_extra_state") and (is_adapter_key(key) or not frozen)]
        if missing or result.unexpected_keys:
            raise ValueError(f"weights do not fit the model: missing {missing}, unexpected {result.unexpected_keys}")
    if optimizer is not None:
        optimizer.load_state_dict(match_optimizer_groups(optimizer, loaded["optimizer"]))
    return loaded["rng_state"] if with_rng else None


def _trains_adapter_only(chunk: Any) -> bool:
    return bool(getattr(unwrap(chunk), "trains_adapter_only", False))


def content_bytes(content: Any) -> int:
    """Return the bytes that this rank holds of a state dict, replicas included: an upper bound of what it writes."""
    if isinstance(content, dict):
        return sum(content_bytes(value) for value in content.values())
    if isinstance(content, list | tuple):
        return sum(content_bytes(value) for value in content)
    data = getattr(content, "data", None)
    if isinstance(data, torch.Tensor):
        return data.numel() * data.element_size()
    return 0


def _shard_generators() -> Any:
    """Return this rank's generator states as a shard of one object per rank."""
    import numpy
    from megatron.core.dist_checkpointing.mapping import ShardedObject
    from megatron.core.tensor_parallel import get_cuda_rng_tracker

    world, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    states = {
        "python": random.getstate(),
        "numpy": numpy.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(),
        "tracker": get_cuda_rng_tracker().get_states(),
    }
    return ShardedObject("autorecipe_rng", states, (world,), (rank,), replica_id=0)


def restore_generators(states: dict[str, Any]) -> None:
    """Put this rank's random generators back to saved states."""
    import numpy
    from megatron.core.tensor_parallel import get_cuda_rng_tracker

    random.setstate(states["python"])
    numpy.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    torch.cuda.set_rng_state(states["cuda"])
    get_cuda_rng_tracker().set_states(states["tracker"])
