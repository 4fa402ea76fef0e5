"""Fit a recipe to the GPUs asked for: keep its layout where it runs, else search the legal ones.

The shipped layout is kept whenever both meshes divide the GPUs, the batch divides, and the memory estimate allows it. Otherwise
every legal combination of TP, PP, CP and EP is tried with the recipe's micro batch, then 1, then with full recomputation, and
the fastest that fits by the planner's estimate is taken (see `ranking`, loaded only then); `autorecipe plan` searches further.
Start at `size_recipe`.
"""

from __future__ import annotations

from collections.abc import Iterator

from autorecipe.config.views import view_batch, view_layout, view_seq_length
from autorecipe.errors import UsageError
from autorecipe.estimate.inputs import EstimateInputs, read_inputs
from autorecipe.estimate.memory import MemoryModel, estimate_memory
from autorecipe.estimate.overhead import judge, outside_bytes, reserved_bytes
from autorecipe.recommend.search import CP_ABOVE_TOKENS, Option, SearchSpace, legal_layouts, tp_limit
from autorecipe.record import dataclass, replace
from autorecipe.schema.batch import Batch
from autorecipe.schema.estimate import ExecutionPolicy, Recompute, StageSplit
from autorecipe.schema.estimate import Verdict as MemoryVerdict
from autorecipe.schema.hardware import Cluster, Gpu
from autorecipe.schema.layout import Layout
from autorecipe.schema.recommendation import MemoryFit, Sizing, Verdict
from autorecipe.schema.run import RunConfig

LARGEST_WORLD = 4096
"""Where the search for a GPU count that works ends."""

FULL_RECOMPUTE = Recompute(granularity="full", method="uniform", num_layers=1)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What a search ended with."""

    option: Option
    verdict: MemoryVerdict


class Sizer:
    """Sizes one recipe; keeps its memory models.

    Args:
        config: the recipe as resolved.
        seq_length: tokens per sample to run; None keeps the recipe's.
        moves: whether the layout may be changed (never for benchmark recipes).
    """

    def __init__(self, config: RunConfig, *, seq_length: int | None = None, moves: bool = True) -> None:
        self.config = config
        self.moves = moves
        self.shipped = view_layout(config)
        self.shipped_seq_length = view_seq_length(config)
        self.seq_length = seq_length or self.shipped_seq_length
        self.inputs = _read(config)
        self._models: dict[tuple[int, int, bool], MemoryModel] = {}

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

    def policy(self, layout: Layout, *, recompute: bool) -> ExecutionPolicy:
        """Return how a step runs with another layout: an uneven split belongs to the recipe's own pipeline."""
        assert self.inputs is not None
        policy = self.inputs.policy
        if (layout.pp, layout.vp) != (self.shipped.pp, self.shipped.vp):
            policy = replace(policy, split=StageSplit())
        return replace(policy, recompute=FULL_RECOMPUTE) if recompute else policy

    def judge(self, option: Option, cluster: Cluster) -> MemoryVerdict:
        """Judge one option quickly; without an estimate everything fits as far as is known."""
        if self.inputs is None:
            return MemoryVerdict.FITS
        model = self._model(option)
        peak = self._peak(option, cluster)
        outside = outside_bytes(option.layout, world_size=cluster.num_gpus, policy=model.policy)
        if option.layout != self.shipped and peak + outside[0] > cluster.gpu.memory_bytes:
            return MemoryVerdict.OOM  # a layout of our own must fit at least as expected, not only at best
        return judge(
            allocated=(peak * 0.96, peak * 1.04),
            reserved=reserved_bytes(peak, shape=self.inputs.shape, policy=model.policy),
            outside=outside,
            capacity=cluster.gpu.memory_bytes,
        )

    def _model(self, option: Option) -> MemoryModel:
        assert self.inputs is not None
        key = (option.layout.pp, option.layout.vp, option.recompute)
        model = self._models.get(key)
        if model is None:
            policy = self.policy(option.layout, recompute=option.recompute)
            model = self._models[key] = MemoryModel(self.inputs.shape, policy=policy)
        return model

    def _peak(self, option: Option, cluster: Cluster) -> float:
        return self._model(option).peak_bytes(option.layout, self._batch_of(option), cluster.num_gpus)

    def estimate(self, option: Option, cluster: Cluster) -> MemoryFit | None:
        """Return the estimate that is shown, or None where it cannot be made."""
        if self.inputs is None:
            return None
        estimate = estimate_memory(
            self.inputs.shape,
            layout=option.layout,
            batch=self._batch_of(option),
            policy=self.policy(option.layout, recompute=option.recompute),
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
            evidence=estimate.evidence,
            leaves_out=estimate.not_modelled,
        )

    def as_shipped(self, cluster: Cluster) -> Option | None:
        """Return the shipped layout as an option where it is legal on these GPUs."""
        layout, batch = self.shipped, self.batch
        if not layout.fits_world(cluster.num_gpus):
            return None
        if layout.tp > max(tp_limit(cluster), 1):
            return None
        if batch is None:
            return Option(layout=layout, micro_batch_size=1, recompute=False)
        if not batch.divides(layout.data_parallel_size(cluster.num_gpus)):
            return None
        if batch.seq_length > self.tokens_per_rank * layout.cp:
            return None
        return Option(layout=layout, micro_batch_size=batch.micro_batch_size, recompute=False)

    def choose(self, cluster: Cluster) -> Chosen | None:
        """Return the shipped layout where it runs, else the best legal one, else None."""
        shipped = self.as_shipped(cluster)
        if shipped is not None:
            verdict = self.judge(shipped, cluster)
            if verdict is not MemoryVerdict.OOM or not self.moves:
                return Chosen(option=shipped, verdict=verdict)
        if not self.moves:
            return None
        fitting: dict[MemoryVerdict, list[Option]] = {}
        for option in self.options(cluster):
            fitting.setdefault(self.judge(option, cluster), []).append(option)
        if MemoryVerdict.FITS in fitting:
            return Chosen(option=self._fastest(fitting[MemoryVerdict.FITS], cluster), verdict=MemoryVerdict.FITS)
        if MemoryVerdict.AT_RISK in fitting:
            # Where none is sure to fit, the one that needs least is the likeliest to.
            leanest = min(fitting[MemoryVerdict.AT_RISK], key=lambda option: self._peak(option, cluster))
            return Chosen(option=leanest, verdict=MemoryVerdict.AT_RISK)
        return None

    def _fastest(self, options: list[Option], cluster: Cluster) -> Option:
        """Return the fastest option by the planner's estimate."""
        from autorecipe.recommend.ranking import choose_fastest
        from autorecipe.schema.plan import PlanRequest

        batch = self.batch
        assert self.inputs is not None
        assert batch is not None
        request = PlanRequest(
            shape=self.inputs.shape, batch=batch, policy=self.inputs.policy, cluster=cluster, layout=self.shipped
        )
        return choose_fastest(options, request, shipped=self.shipped)

    def options(self, cluster: Cluster) -> Iterator[Option]:
        """Yield every legal option; none where the model's shape or batch is not known."""
        batch = self.batch
        if self.inputs is None or batch is None:
            return
        mode = self.config.mode
        space = SearchSpace(
            shape=self.inputs.shape,
            shipped=self.shipped,
            batch=batch,
            cluster=cluster,
            interleaves=mode == "pretrain",
        )
        yield from legal_layouts(space)

    def _batch_of(self, option: Option) -> Batch:
        batch = self.batch
        assert batch is not None
        return replace(batch, micro_batch_size=option.micro_batch_size)


def size_recipe(sizer: Sizer, cluster: Cluster, *, recipe_gpus: int | None) -> Sizing:
    """Fit a recipe to a cluster.

    Args:
        sizer: of the recipe.
        cluster: GPUs asked for.
        recipe_gpus: GPU count in the recipe's name.

    Returns:
        the sizing; for DOES_NOT_FIT with the smallest GPU count that works, where one was found.
    """
    shipped_cluster = _resize(cluster, recipe_gpus or sizer.shipped.minimum_world_size)
    at_home = sizer.as_shipped(shipped_cluster)
    shipped_memory = sizer.estimate(at_home, shipped_cluster) if at_home else None
    chosen, used = sizer.choose(cluster), cluster
    if chosen is None:
        chosen, used = _use_fewer(sizer, cluster)
    common = {"gpu": cluster.gpu.name, "shipped": sizer.shipped, "shipped_memory": shipped_memory, "seq_length": sizer.seq_length}
    if chosen is None:
        needed = _needed(sizer, cluster)
        return Sizing(
            verdict=Verdict.DOES_NOT_FIT,
            num_gpus=cluster.num_gpus,
            num_nodes=cluster.num_nodes,
            gpus_per_node=cluster.gpus_per_node,
            layout=sizer.shipped,
            memory=_shipped_here(sizer, cluster),
            needed_gpus=needed[0] if needed else None,
            needed_layout=needed[1].layout if needed else None,
            recompute=needed[1].recompute if needed else False,
            **common,  # type: ignore[arg-type]
        )
    option = chosen.option
    batch = sizer.batch
    dp = option.layout.data_parallel_size(used.num_gpus)
    same = option.layout == sizer.shipped and not option.recompute
    same = same and (batch is None or option.micro_batch_size == batch.micro_batch_size)
    same = same and sizer.seq_length == sizer.shipped_seq_length
    is_moe = sizer.inputs is not None and sizer.inputs.shape.is_moe
    return Sizing(
        verdict=Verdict.AS_SHIPPED if same else Verdict.RESIZED,
        num_gpus=used.num_gpus,
        num_nodes=used.num_nodes,
        gpus_per_node=used.gpus_per_node,
        layout=option.layout,
        data_parallel_size=dp,
        expert_data_parallel_size=option.layout.expert_data_parallel_size(used.num_gpus) if is_moe else None,
        num_microbatches=batch.global_batch_size // (option.micro_batch_size * dp) if batch else None,
        memory=sizer.estimate(option, used),
        micro_batch_size=option.micro_batch_size if batch else None,
        recompute=option.recompute,
        idle_gpus=cluster.num_gpus - used.num_gpus,
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


def _use_fewer(sizer: Sizer, cluster: Cluster) -> tuple[Chosen | None, Cluster]:
    """Try the largest smaller number of GPUs, down to half: odd counts often miss the batch or the meshes."""
    usual = cluster.gpu.gpus_per_node
    for count in range(cluster.num_gpus - 1, (cluster.num_gpus - 1) // 2, -1):
        if count > usual and count % usual:
            continue
        smaller = _resize(cluster, count)
        chosen = sizer.choose(smaller)
        if chosen is not None:
            return chosen, smaller
    return None, cluster


def _needed(sizer: Sizer, cluster: Cluster) -> tuple[int, Option] | None:
    """Return the smallest power of two, or multiple of the shipped minimum, that works above the GPUs at hand, and how."""
    minimum = sizer.shipped.minimum_world_size
    counts: set[int] = {1 << power for power in range(LARGEST_WORLD.bit_length())}
    counts |= {minimum * factor for factor in range(1, LARGEST_WORLD // minimum + 1)} if minimum <= LARGEST_WORLD else set()
    for count in sorted(counts):
        if cluster.num_gpus < count <= LARGEST_WORLD:
            chosen = sizer.choose(_resize(cluster, count))
            if chosen is not None:
                return count, chosen.option
    return None
