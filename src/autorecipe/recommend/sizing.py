"""Fit a recipe to the GPUs asked for: keep its layout where it runs, else let the planner search.

The shipped layout is kept whenever it is legal on the GPUs and the memory estimate allows it. Otherwise the planner's search
decides (see `resize`, loaded only then). Start at `size_recipe`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from autorecipe.config.views import view_batch, view_layout, view_seq_length
from autorecipe.errors import UsageError
from autorecipe.estimate.inputs import EstimateInputs, read_inputs
from autorecipe.estimate.memory import MemoryModel, estimate_memory
from autorecipe.estimate.overhead import ALLOCATED_BAND, judge, outside_bytes, reserved_bytes
from autorecipe.plan.space import find_refusal
from autorecipe.recommend.habits import CP_ABOVE_TOKENS, Habits
from autorecipe.record import dataclass, replace
from autorecipe.schema.batch import Batch
from autorecipe.schema.estimate import ExecutionPolicy
from autorecipe.schema.estimate import Verdict as MemoryVerdict
from autorecipe.schema.hardware import Cluster, Gpu
from autorecipe.schema.plan import Candidate, PlanRequest
from autorecipe.schema.recommendation import MemoryFit, Sizing, Statement, Verdict
from autorecipe.schema.run import RunConfig

LARGEST_WORLD = 4096
"""Where the search for a GPU count that works ends."""

MULTIPLES_TRIED = 8
"""Multiples of the recipe's minimum tried below a power of two that works."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """How a recipe lies on a cluster.

    Attributes:
        candidate: layout, micro batch size, recomputation and split.
        verdict: what the memory estimate says.
        reason: why this layout, where a search chose it.
    """

    candidate: Candidate
    verdict: MemoryVerdict
    reason: Statement | None = None


class NotChosen(enum.Enum):
    """Why a recipe does not run on a cluster: it is too big for the memory, or no layout of it is legal there."""

    TOO_BIG = "too-big"
    REFUSED = "refused"


class Sizer:
    """Sizes one recipe; keeps its memory models.

    Args:
        config: the recipe as resolved.
        seq_length: tokens per sample to run; None keeps the recipe's.
        moves: whether the layout may be changed (never for benchmark recipes).
        objects: tells whether the full rules refuse a candidate on a cluster.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        seq_length: int | None = None,
        moves: bool = True,
        objects: Callable[[Candidate, Cluster], bool] = lambda candidate, cluster: False,
    ) -> None:
        self.config = config
        self.objects = objects
        self.moves = moves
        self.shipped = view_layout(config)
        self.shipped_seq_length = view_seq_length(config)
        self.seq_length = seq_length or self.shipped_seq_length
        self.inputs = _read(config)
        self._models: dict[ExecutionPolicy, MemoryModel] = {}

    @property
    def tokens_per_rank(self) -> int:
        """Tokens of one sample that a rank may hold before CP is wanted: 8K, or what the recipe itself does."""
        return max(CP_ABOVE_TOKENS, (self.shipped_seq_length or 0) // self.shipped.cp)

    @property
    def batch(self) -> Batch | None:
        """Batch as it will run, or None where the recipe does not say."""
        try:
            batch = view_batch(self.config)
        except UsageError:
            return None
        return replace(batch, seq_length=self.seq_length or batch.seq_length)

    def request(self, cluster: Cluster) -> PlanRequest | None:
        """Return the planner's question for a cluster; None where the model's shape or batch is not known."""
        batch = self.batch
        if self.inputs is None or batch is None:
            return None
        return PlanRequest(shape=self.inputs.shape, batch=batch, policy=self.inputs.policy, cluster=cluster, layout=self.shipped)

    def policy(self, candidate: Candidate) -> ExecutionPolicy:
        """Return how a step of a candidate runs."""
        assert self.inputs is not None
        return replace(self.inputs.policy, split=candidate.split, recompute=candidate.recompute)

    def judge(self, candidate: Candidate, cluster: Cluster) -> MemoryVerdict:
        """Judge one candidate quickly; without an estimate everything fits as far as is known."""
        if self.inputs is None:
            return MemoryVerdict.FITS
        policy = self.policy(candidate)
        peak = self._peak(candidate, cluster)
        return judge(
            allocated=(peak * ALLOCATED_BAND[0], peak * ALLOCATED_BAND[1]),
            reserved=reserved_bytes(peak, shape=self.inputs.shape, policy=policy),
            outside=outside_bytes(candidate.layout, world_size=cluster.num_gpus, policy=policy),
            capacity=cluster.gpu.usable_memory[1],
        )

    def is_likely(self, candidate: Candidate, cluster: Cluster) -> bool:
        """Return whether a candidate fits at least as expected, and not only at best."""
        if self.inputs is None:
            return True
        outside = outside_bytes(candidate.layout, world_size=cluster.num_gpus, policy=self.inputs.policy)
        return self._peak(candidate, cluster) + outside[0] <= cluster.gpu.usable_memory[1]

    def _peak(self, candidate: Candidate, cluster: Cluster) -> float:
        assert self.inputs is not None
        policy = self.policy(candidate)
        model = self._models.get(policy)
        if model is None:
            model = self._models[policy] = MemoryModel(self.inputs.shape, policy=policy)
        return model.peak_bytes(candidate.layout, self._batch_of(candidate), cluster.num_gpus)

    def estimate(self, candidate: Candidate, cluster: Cluster) -> MemoryFit | None:
        """Return the estimate that is shown, or None where it cannot be made."""
        if self.inputs is None:
            return None
        estimate = estimate_memory(
            self.inputs.shape,
            layout=candidate.layout,
            batch=self._batch_of(candidate),
            policy=self.policy(candidate),
            world_size=cluster.num_gpus,
            gpu=cluster.gpu,
        )
        assert estimate.verdict is not None
        low, high = estimate.reserved_bytes, estimate.outside_bytes
        return MemoryFit(
            verdict=estimate.verdict,
            peak_bytes=estimate.peak_bytes,
            device_bytes=(low[0] + high[0], low[1] + high[1]),
            capacity_bytes=estimate.capacity_bytes,
            capacity_fact=estimate.capacity_fact,
            evidence=estimate.evidence,
            leaves_out=estimate.not_modelled,
        )

    def shipped_candidate(self) -> Candidate:
        """Return the recipe's own layout, micro batch size, recomputation and split."""
        batch, policy = self.batch, self.inputs.policy if self.inputs else ExecutionPolicy()
        return Candidate(
            layout=self.shipped,
            micro_batch_size=batch.micro_batch_size if batch else 1,
            recompute=policy.recompute,
            split=policy.split,
            fsdp=policy.fsdp,
        )

    def as_shipped(self, cluster: Cluster) -> Candidate | None:
        """Return the shipped layout where it is legal on these GPUs and long enough sequences are split."""
        candidate, layout = self.shipped_candidate(), self.shipped
        if not layout.fits_world(cluster.num_gpus) or layout.tp > cluster.nvlink_reach:
            return None
        request, batch = self.request(cluster), self.batch
        if batch is not None and batch.seq_length > self.tokens_per_rank * layout.cp:
            return None
        if request is not None:
            return None if find_refusal(request, candidate) else candidate
        return candidate if batch is None or batch.divides(layout.data_parallel_size(cluster.num_gpus)) else None

    def home(self, cluster: Cluster, recipe_gpus: int | None) -> Cluster:
        """Return the cluster that the recipe was written for, of the same GPUs."""
        return _resize(cluster, recipe_gpus or self.shipped.minimum_world_size)

    def choose(self, cluster: Cluster) -> Chosen | NotChosen:
        """Return the shipped layout where it runs, else what the planner's search finds, else why nothing is found."""
        shipped = self.as_shipped(cluster)
        if shipped is not None:
            verdict = self.judge(shipped, cluster)
            if not self.moves or (verdict is not MemoryVerdict.OOM and self.is_likely(shipped, cluster)):
                return Chosen(candidate=shipped, verdict=verdict)
        request = self.request(cluster)
        if not self.moves or request is None:
            return NotChosen.REFUSED
        from autorecipe.recommend.resize import NotResized, resize_recipe

        found = resize_recipe(request, self._habits(request), objects=lambda candidate: self.objects(candidate, cluster))
        if isinstance(found, NotResized):
            return NotChosen.TOO_BIG if found is NotResized.TOO_BIG else NotChosen.REFUSED
        return Chosen(candidate=found.candidate, verdict=found.verdict, reason=found.reason)

    def is_usual(self, cluster: Cluster) -> bool:
        """Return whether the shipped layout or another that a colleague would take is legal on these GPUs, fitting or not."""
        if self.as_shipped(cluster) is not None:
            return True
        request = self.request(cluster)
        if not self.moves or request is None:
            return False
        from autorecipe.recommend.resize import is_any_usual

        return is_any_usual(request, self._habits(request))

    def _habits(self, request: PlanRequest) -> Habits:
        return Habits(shipped=self.shipped, seq_length=request.batch.seq_length, tokens_per_rank=self.tokens_per_rank)

    def _batch_of(self, candidate: Candidate) -> Batch:
        batch = self.batch
        assert batch is not None
        return replace(batch, micro_batch_size=candidate.micro_batch_size)


def size_recipe(sizer: Sizer, cluster: Cluster, *, recipe_gpus: int | None) -> Sizing:
    """Fit a recipe to a cluster.

    Args:
        sizer: of the recipe.
        cluster: GPUs asked for.
        recipe_gpus: GPU count in the recipe's name.

    Returns:
        the sizing; for DOES_NOT_FIT with the smallest GPU count that works, where one was found.
    """
    shipped_cluster = sizer.home(cluster, recipe_gpus)
    at_home = sizer.as_shipped(shipped_cluster)
    shipped_memory = sizer.estimate(at_home, shipped_cluster) if at_home else None
    chosen, used = _place(sizer, cluster)
    common = {"gpu": cluster.gpu.name, "shipped": sizer.shipped, "shipped_memory": shipped_memory, "seq_length": sizer.seq_length}
    if isinstance(chosen, NotChosen):
        needed = _needed(sizer, cluster)
        return Sizing(
            verdict=Verdict.DOES_NOT_FIT,
            num_gpus=cluster.num_gpus,
            num_nodes=cluster.num_nodes,
            gpus_per_node=cluster.gpus_per_node,
            layout=sizer.shipped,
            memory=_shipped_here(sizer, cluster),
            needed_gpus=needed[0] if needed else None,
            needed=needed[1] if needed else None,
            **common,  # type: ignore[arg-type]
        )
    candidate = chosen.candidate
    batch = sizer.batch
    dp = candidate.layout.data_parallel_size(used.num_gpus)
    same = candidate == sizer.shipped_candidate() and sizer.seq_length == sizer.shipped_seq_length
    is_moe = sizer.inputs is not None and sizer.inputs.shape.is_moe
    return Sizing(
        verdict=Verdict.AS_SHIPPED if same else Verdict.RESIZED,
        num_gpus=used.num_gpus,
        num_nodes=used.num_nodes,
        gpus_per_node=used.gpus_per_node,
        layout=candidate.layout,
        candidate=candidate,
        data_parallel_size=dp,
        expert_data_parallel_size=candidate.layout.expert_data_parallel_size(used.num_gpus) if is_moe else None,
        num_microbatches=batch.global_batch_size // (candidate.micro_batch_size * dp) if batch else None,
        memory=sizer.estimate(candidate, used),
        micro_batch_size=candidate.micro_batch_size if batch else None,
        idle_gpus=cluster.num_gpus - used.num_gpus,
        reason=chosen.reason,
        **common,  # type: ignore[arg-type]
    )


def lay_out_hosts(gpu: Gpu, num_gpus: int, *, gpus_per_node: int | None, num_nodes: int | None = None) -> Cluster:
    """Put GPUs on hosts: as told, else as many as a usual host has, else equal shares.

    Raises:
        UsageError: hosts x GPUs is not the total.
    """
    if gpus_per_node is None and num_nodes:
        gpus_per_node = -(-num_gpus // num_nodes)
    per_node = gpus_per_node or min(gpu.gpus_per_node, num_gpus)
    if gpus_per_node is None and num_gpus % per_node:
        per_node = max(size for size in range(1, per_node + 1) if num_gpus % size == 0)
    return Cluster(gpu=gpu, num_gpus=num_gpus, gpus_per_node=per_node)


def _read(config: RunConfig) -> EstimateInputs | None:
    """Read the estimator's arguments, or None for a recipe that leaves its model's shape to the user."""
    if not config.get("model.num_attention_heads", None) or not config.get("model.num_layers", None):
        return None
    try:
        inputs = read_inputs(config)
    except UsageError:
        return None
    return inputs if inputs.shape.vocab_size else None


def _resize(cluster: Cluster, num_gpus: int) -> Cluster:
    per_node = min(cluster.gpu.gpus_per_node, num_gpus)
    if num_gpus % per_node:
        per_node = max(size for size in range(1, per_node + 1) if num_gpus % size == 0)
    return Cluster(gpu=cluster.gpu, num_gpus=num_gpus, gpus_per_node=per_node)


def _shipped_here(sizer: Sizer, cluster: Cluster) -> MemoryFit | None:
    shipped = sizer.as_shipped(cluster)
    return sizer.estimate(shipped, cluster) if shipped else None


def _place(sizer: Sizer, cluster: Cluster) -> tuple[Chosen | NotChosen, Cluster]:
    """Choose on all the GPUs; where no usual layout divides them, on the largest smaller number, down to half.

    Odd counts often miss the batch or the meshes. Where memory is what is short, fewer GPUs do not help.
    """
    usual = sizer.is_usual(cluster)
    chosen = sizer.choose(cluster) if usual else NotChosen.REFUSED
    if chosen is NotChosen.REFUSED:
        per_node = cluster.gpu.gpus_per_node
        for count in range(cluster.num_gpus - 1, (cluster.num_gpus - 1) // 2, -1):
            smaller = _resize(cluster, count)
            if (count <= per_node or count % per_node == 0) and sizer.is_usual(smaller):
                fewer = sizer.choose(smaller)
                if isinstance(fewer, Chosen):
                    return fewer, smaller
                if fewer is NotChosen.TOO_BIG:
                    break
    return (chosen if usual else sizer.choose(cluster)), cluster


def _needed(sizer: Sizer, cluster: Cluster) -> tuple[int, Candidate] | None:
    """Return a GPU count that works above the one at hand, and how: the smallest that was tried.

    Formula: powers of two until one works; then the multiples of the recipe's own minimum between it and the power below.
    """
    count = 1 << cluster.num_gpus.bit_length()
    while count <= LARGEST_WORLD:
        found = sizer.choose(_resize(cluster, count))
        if isinstance(found, Chosen):
            break
        count *= 2
    else:
        return None
    minimum = sizer.shipped.minimum_world_size
    above = max(cluster.num_gpus, count // 2)
    for fewer in range((above // minimum + 1) * minimum, count, minimum)[:MULTIPLES_TRIED]:
        chosen = sizer.choose(_resize(cluster, fewer))
        if isinstance(chosen, Chosen):
            return fewer, chosen.candidate
    return count, found.candidate
