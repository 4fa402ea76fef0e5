"""Every layout that could run a fixed training on fixed GPUs, and why the others could not.

The walk tests the cheapest condition first and prunes whole subtrees; each pruned subtree counts the combinations in it under
the rule that refuses it. Leaves out: memory and time (see `search`). Start reading at `Space.walk`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from autorecipe.plan.splits import choose_split, head_layers
from autorecipe.record import dataclass, field
from autorecipe.rules import layout as legal
from autorecipe.rules.release import DEFAULT_CORE
from autorecipe.schema.estimate import ExecutionPolicy, LayerImplementation, Recompute, StageSplit
from autorecipe.schema.layout import Layout
from autorecipe.schema.model import ModelShape
from autorecipe.schema.plan import Candidate, PlanRequest

MAX_PP = 128
"""Largest pipeline tried; deeper ones have not been published for language models."""


@dataclass(frozen=True)
class Cell:
    """One legal layout and split with the micro batch sizes that are legal on it; recomputation is decided later.

    Attributes:
        layout: parallel layout.
        split: how layers fall on stages.
        sizes: (micro batch size, micro batches of a step), smallest size first.
    """

    layout: Layout
    split: StageSplit
    sizes: tuple[tuple[int, int], ...]


class _Schedules(NamedTuple):
    """What DP and PP leave of VP, splits and micro batch sizes, and how many combinations were legal and refused."""

    choices: tuple[tuple[int, tuple[StageSplit, ...], tuple[tuple[int, int], ...]], ...]
    legal: int
    refused: int
    illegal: Counter[str]


@dataclass
class Space:
    """The search space of one request.

    Args:
        request: what to plan.
    """

    request: PlanRequest
    considered: int = 0
    legal: int = 0
    illegal: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        shape, cluster = self.request.shape, self.request.cluster
        self.world = cluster.num_gpus
        self.core = self.request.core_release or DEFAULT_CORE
        self.tensor_limit = self.request.max_tp or cluster.nvlink_reach
        self.tp_values = [size for size in legal.divisors(shape.num_attention_heads) if size <= self.world]
        self.pp_values = [size for size in legal.divisors(self.world) if size <= min(shape.num_layers, MAX_PP)]
        self.cp_values = [size for size in legal.divisors(self.world) if size & (size - 1) == 0]
        self.ep_values = legal.divisors(shape.num_moe_experts) if shape.num_moe_experts else [1]
        self.mbs_values = [
            size
            for size in legal.divisors(self.request.batch.global_batch_size)
            if size <= max(self.request.max_micro_batch_size, self.request.batch.micro_batch_size)
        ]
        if self.request.policy.packed_tokens:
            # Packed samples carry their own boundaries and come one at a time (rule PCK001).
            self.mbs_values = [1]
        self.vp_values = [size for size in range(1, shape.num_layers + 1) if size <= 16]
        self._schedules: dict[tuple[int, int], _Schedules] = {}
        self.head = round(head_layers(shape, self.request.batch.seq_length), 2)

    def walk(self) -> Iterator[Cell]:
        """Yield every legal layout with its micro batch sizes; counts what is refused by rule."""
        for pp in self.pp_values:
            for tp in self.tp_values:
                for cp in self.cp_values:
                    reason = self.dense_refusal(tp, pp, cp)
                    if reason:
                        self._refuse(reason, len(self.ep_values) * self._etp_count(tp) * self._inner)
                        continue
                    yield from self._expert_axes(tp, pp, cp)

    @property
    def _inner(self) -> int:
        return len(self.mbs_values) * len(self.vp_values)

    def _etp_count(self, tp: int) -> int:
        return 2 if tp > 1 and self.request.shape.is_moe else 1

    def _refuse(self, reason: str, combinations: int) -> None:
        self.considered += combinations
        self.illegal[reason] += combinations

    def dense_refusal(self, tp: int, pp: int, cp: int) -> str:
        """Return why a dense mesh is not legal, or an empty text."""
        shape, batch = self.request.shape, self.request.batch
        if self.world % (tp * pp * cp):
            return "world is not a multiple of TP x PP x CP"
        if tp > self.tensor_limit:
            return f"TP beyond {self.tensor_limit} leaves the NVLink domain"
        if not legal.tensor_parallel_fits(tp, shape.num_query_groups, self.core):
            return "TP does not fit the KV groups"
        if not legal.sequence_fits(batch.seq_length, cp):
            return "sequence is not a multiple of 2 x CP"
        if tp > 1 and not legal.sequence_parallel_fits(batch.seq_length, tp, cp):
            return "sequence is not a multiple of TP x CP"
        if cp > 1 and not self._context_fits(tp, cp):
            return "CP all-to-all needs heads divisible by TP x CP"
        if shape.experimental_attention_variant == "gated_delta_net" and not legal.linear_heads_fit(
            shape.linear_num_key_heads or 1, shape.linear_num_value_heads or 1, tp, cp
        ):
            return "linear-attention heads do not divide by TP x CP"
        dp = self.world // (tp * pp * cp)
        if batch.global_batch_size % dp:
            return "global batch is not a multiple of DP"
        return ""

    def _context_fits(self, tp: int, cp: int) -> bool:
        if self.request.policy.cp_comm_type != "a2a":
            return True
        return self.request.shape.num_attention_heads % (tp * cp) == 0

    def _expert_axes(self, tp: int, pp: int, cp: int) -> Iterator[Cell]:
        shape = self.request.shape
        for ep in self.ep_values:
            for etp in (1, tp) if tp > 1 and shape.is_moe else (1,):
                if self.world % (pp * ep * etp):
                    self._refuse("world is not a multiple of PP x EP x ETP", self._inner)
                    continue
                if etp > 1 and (shape.moe_ffn_hidden_size or 0) % etp:
                    self._refuse("ETP does not divide the expert width", self._inner)
                    continue
                yield from self._batch_axes(tp, pp, cp, ep, etp)

    def _batch_axes(self, tp: int, pp: int, cp: int, ep: int, etp: int) -> Iterator[Cell]:
        dp = self.world // (tp * pp * cp)
        found = self._schedules.get((dp, pp))
        if found is None:
            found = self._schedules[(dp, pp)] = self._schedule(dp, pp)
        self.considered += found.legal + found.refused
        self.legal += found.legal
        for reason, count in found.illegal.items():
            self.illegal[reason] += count
        for vp, splits, sizes in found.choices:
            layout = Layout(tp=tp, pp=pp, vp=vp, cp=cp, ep=ep, etp=etp, sequence_parallel=tp > 1)
            for split in splits:
                yield Cell(layout, split, sizes)

    def _schedule(self, dp: int, pp: int) -> _Schedules:
        """Return what DP and PP leave of VP, splits and micro batch sizes."""
        illegal: Counter[str] = Counter()
        choices, count = [], 0
        for vp in self.vp_values if pp > 1 else (1,):
            splits = self.splits(pp, vp)
            if not splits:
                illegal["layers do not split over PP x VP"] += len(self.mbs_values)
                continue
            sizes = self._sizes(dp, pp, vp, illegal, times=len(splits))
            count += len(splits) * len(sizes)
            if sizes:
                choices.append((vp, splits, sizes))
        if pp == 1:
            illegal["VP without pipeline stages"] += (len(self.vp_values) - 1) * len(self.mbs_values)
        return _Schedules(tuple(choices), count, sum(illegal.values()), illegal)

    def _sizes(self, dp: int, pp: int, vp: int, illegal: Counter[str], *, times: int) -> tuple[tuple[int, int], ...]:
        """Return (micro batch size, micro batches) of every legal size; the others count once for each split."""
        gbs = self.request.batch.global_batch_size
        sizes = []
        for mbs in self.mbs_values:
            if not legal.batch_fits(gbs, mbs, dp):
                illegal["global batch is not a multiple of MBS x DP"] += times
                continue
            microbatches = gbs // (mbs * dp)
            if not legal.microbatches_fit(microbatches, pp, vp):
                illegal["too few micro batches, or a wrong number, for the interleaved schedule"] += times
                continue
            sizes.append((mbs, microbatches))
        return tuple(sizes)

    def splits(self, pp: int, vp: int) -> tuple[StageSplit, ...]:
        """Return the splits tried for PP x VP: the planner's own, and the recipe's where it has one for these stages."""
        request, shape = self.request, self.request.shape
        if shape.is_hybrid and (shape.num_layers % pp or vp > 1):
            return ()
        found: tuple[StageSplit | None, ...] = (StageSplit(),)
        if not shape.is_hybrid:
            even = request.even_stages and shape.num_layers % (pp * vp) == 0
            if not even:
                found = (choose_split(shape.num_layers, pp, vp, shape.mtp_num_layers, self.head),)
        given, layout = request.policy.split, request.layout
        if layout is not None and (layout.pp, layout.vp) == (pp, vp) and given not in found:
            found = (*found, given)
        return tuple(split for split in found if split is not None)


def find_refusal(request: PlanRequest, candidate: Candidate, space: Space | None = None) -> str:
    """Return why a candidate is not legal on the request's cluster, or an empty text; `space` is a prepared one, or None."""
    layout, shape, batch = candidate.layout, request.shape, request.batch
    world = request.cluster.num_gpus
    if not layout.fits_world(world):
        return (
            f"{world} GPUs are not a multiple of both TP x PP x CP = {layout.dense_model_parallel_size} and "
            f"PP x EP x ETP = {layout.expert_model_parallel_size}; the smallest world is {layout.minimum_world_size}"
        )
    reason = (space or Space(request)).dense_refusal(layout.tp, layout.pp, layout.cp)
    if reason:
        return reason
    if layout.ep > 1 and not legal.experts_fit(shape.num_moe_experts or 0, layout.ep):
        return f"EP={layout.ep} does not divide {shape.num_moe_experts} experts"
    dp = layout.data_parallel_size(world)
    if not legal.batch_fits(batch.global_batch_size, candidate.micro_batch_size, dp):
        return f"global batch {batch.global_batch_size} is not a multiple of MBS {candidate.micro_batch_size} x DP {dp}"
    microbatches = batch.global_batch_size // (candidate.micro_batch_size * dp)
    if not legal.microbatches_fit(microbatches, layout.pp, layout.vp):
        return f"{microbatches} micro batches do not suit the interleaved schedule of PP={layout.pp}, VP={layout.vp}"
    split = candidate.split
    counted = shape.num_layers + split.embedding_counts + split.loss_counts
    if layout.pp > 1 and not split.explicit and counted < layout.pp * layout.vp:
        return f"{shape.num_layers} layers are fewer than PP x VP = {layout.pp * layout.vp}"
    return ""


def recompute_options(shape: ModelShape, policy: ExecutionPolicy) -> tuple[Recompute, ...]:
    """Return the recomputation settings worth trying, lightest first and full recomputation last, the recipe's own included.

    Selective modules are those that Megatron-Core offers for the kinds of layer the model has; with fused attention
    recomputing the attention core saves next to nothing, so it is tried only where attention is unfused.
    """
    options = [Recompute()]
    modules = ["layernorm", "mla_up_proj"] if shape.multi_latent_attention else ["layernorm"]
    if shape.is_moe:
        modules.append("moe_act")
    options.append(Recompute(granularity="selective", modules=frozenset(modules)))
    if policy.attention_backend == "unfused":
        options.append(Recompute(granularity="selective", modules=frozenset({"core_attn"})))
    heavier = {"mlp"} if not shape.is_moe else {"moe"} | ({"mlp"} if shape.num_moe_layers < shape.num_layers else set())
    options.append(Recompute(granularity="selective", modules=frozenset(modules) - {"moe_act"} | heavier))
    full = Recompute(granularity="full", method="uniform", num_layers=1)
    if policy.recompute not in (*options, full):
        options.append(policy.recompute)
    options.append(full)
    if policy.layers is LayerImplementation.LOCAL and shape.is_moe:
        options = [option for option in options if "moe_act" not in option.modules or option == policy.recompute]
    return tuple(options)
