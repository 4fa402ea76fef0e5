"""Enumerate the legal layouts of a model on a number of GPUs.

Legal means: TP fits the KV groups and stays within the NVLink domain, PP divides the layers (or is the recipe's own), CP splits
the sequence into pairs, experts divide by EP, both meshes are whole, and the global batch divides. Leaves out memory and speed.
"""

from __future__ import annotations

from collections.abc import Iterator

from autorecipe.record import dataclass
from autorecipe.schema.batch import Batch
from autorecipe.schema.hardware import Cluster
from autorecipe.schema.layout import Layout
from autorecipe.schema.model import ModelShape

CP_ABOVE_TOKENS = 8192
"""Sequences longer than this want context parallelism (upstream's decision tree: more than 8K)."""

MAX_PP = 16
MAX_CP = 32


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """What the search may move.

    Attributes:
        shape: the model.
        shipped: the recipe's layout.
        batch: as it will run.
        cluster: the GPUs.
        interleaves: whether VP may be set where PP > 1.
    """

    shape: ModelShape
    shipped: Layout
    batch: Batch
    cluster: Cluster
    interleaves: bool


@dataclass(frozen=True, kw_only=True)
class Option:
    """One way to lie on the GPUs."""

    layout: Layout
    micro_batch_size: int
    recompute: bool


def valid_tp(shape: ModelShape, *, limit: int) -> tuple[int, ...]:
    """Return the tensor-parallel sizes that fit the KV groups, up to a limit.

    Formula: TP divides num_query_groups; attention heads and FFN width divide by TP.
    Source: Megatron-LM transformer_config.py (num_query_groups must be a multiple or divisor of TP; a multiple replicates the KV
    heads and is left out here). Evidence: enforced-upstream.
    """
    return tuple(
        tp
        for tp in range(1, limit + 1)
        if shape.num_query_groups % tp == 0 and shape.num_attention_heads % tp == 0 and shape.ffn_hidden_size % tp == 0
    )


def tp_limit(cluster: Cluster) -> int:
    """Return the largest TP that NVLink carries: the host, or the whole domain where NVLink spans hosts (NVL72 class)."""
    gpu = cluster.gpu
    return gpu.nvlink_domain_size if gpu.has_rack_scale_nvlink else cluster.gpus_per_node


def valid_pp(shape: ModelShape, shipped: Layout) -> tuple[int, ...]:
    """Return pipeline sizes that divide the layers evenly, and the recipe's own."""
    even = {pp for pp in range(1, MAX_PP + 1) if shape.num_layers % pp == 0}
    return tuple(sorted(even | {shipped.pp}))


def valid_cp(batch: Batch, shipped: Layout) -> tuple[int, ...]:
    """Return context-parallel sizes: 1 and the recipe's own; powers of two where the sequence is long.

    Formula: sequence % (2 x CP) == 0 (each rank holds two chunks, for balance under a causal mask).
    Source: Megatron-LM megatron/core/utils.py get_batch_on_this_cp_rank. Evidence: enforced-upstream.
    """
    sizes = {1, shipped.cp}
    if batch.seq_length > CP_ABOVE_TOKENS:
        sizes |= {2**power for power in range(1, MAX_CP.bit_length())}
    return tuple(sorted(cp for cp in sizes if cp == 1 or batch.seq_length % (2 * cp) == 0))


def valid_ep(shape: ModelShape, world_size: int) -> tuple[int, ...]:
    """Return expert-parallel sizes: divisors of the experts up to the world."""
    experts = shape.num_moe_experts or 1
    return tuple(ep for ep in range(1, min(experts, world_size) + 1) if experts % ep == 0)


def legal_layouts(space: SearchSpace) -> Iterator[Option]:
    """Yield every legal option, micro batch sizes as shipped and 1, without and with full recomputation."""
    world = space.cluster.num_gpus
    shape, batch = space.shape, space.batch
    for tp in valid_tp(shape, limit=min(tp_limit(space.cluster), world)):
        for pp in valid_pp(shape, space.shipped):
            for cp in valid_cp(batch, space.shipped):
                if world % (tp * pp * cp) or (tp > 1 and batch.seq_length % (cp * tp)):
                    continue
                for ep in valid_ep(shape, world):
                    for layout in _interleavings(space, tp=tp, pp=pp, cp=cp, ep=ep):
                        yield from _options(space, layout)


def _interleavings(space: SearchSpace, *, tp: int, pp: int, cp: int, ep: int) -> Iterator[Layout]:
    etp = space.shipped.etp if ep == space.shipped.ep else 1
    sizes = {1}
    if pp == space.shipped.pp:
        sizes.add(space.shipped.vp)
    elif pp > 1 and space.interleaves:
        sizes |= {vp for vp in (2, 3, 4, 5) if space.shape.num_layers % (pp * vp) == 0}
    for vp in sorted(sizes):
        layout = Layout(tp=tp, pp=pp, vp=vp, cp=cp, ep=ep, etp=etp, sequence_parallel=tp > 1)
        if layout.fits_world(space.cluster.num_gpus):
            yield layout


def _options(space: SearchSpace, layout: Layout) -> Iterator[Option]:
    dp = layout.data_parallel_size(space.cluster.num_gpus)
    for micro_batch_size in sorted({space.batch.micro_batch_size, 1}, reverse=True):
        batch = Batch(
            global_batch_size=space.batch.global_batch_size,
            micro_batch_size=micro_batch_size,
            seq_length=space.batch.seq_length,
        )
        if not batch.divides(dp):
            continue
        if layout.vp > 1 and batch.num_microbatches(dp) % layout.pp:
            continue
        yield Option(layout=layout, micro_batch_size=micro_batch_size, recompute=False)
        yield Option(layout=layout, micro_batch_size=micro_batch_size, recompute=True)
