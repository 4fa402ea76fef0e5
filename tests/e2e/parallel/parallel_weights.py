"""Initial weights that do not depend on the layout: each shard is a slice of one global tensor drawn from its own name."""

import hashlib

import torch


def fill(chunks):
    """Overwrite every parameter of a model's chunks, by way of its distributed-checkpoint description."""
    from megatron.core import parallel_state
    from megatron.core.dist_checkpointing.dict_utils import nested_values
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, apply_factories

    metadata = {"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    for chunk in chunks:
        state = chunk.sharded_state_dict(metadata=metadata)
        apply_factories(state)
        for shard in nested_values(state):
            if isinstance(shard, ShardedTensor) and shard.data is not None:
                fill_shard(shard)


@torch.no_grad()
def fill_shard(shard):
    stacked = shard.prepend_axis_num
    name = f"{shard.key}|{tuple(shard.global_offset[:stacked])}"
    shape = tuple(shard.global_shape[stacked:])
    whole = draw(name, shape)
    slices = (slice(start, start + size) for start, size in zip(shard.global_offset[stacked:], shard.data.shape, strict=True))
    shard.data.copy_(whole[tuple(slices)])


def draw(name, shape):
    """Return the global tensor of a name."""
    if "expert_bias" in name or "tokens_per_expert" in name:
        return torch.zeros(shape)
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    if len(shape) == 1:
        is_scale = "norm" in name and "weight" in name
        return 1 + 0.1 * values if is_scale else 0.02 * values
    return values * (0.4 if "embedding" in name or "router" in name else 0.08)
