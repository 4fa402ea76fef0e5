"""What a colleague adds: traps that apply, what to try when memory runs out, what a run proves, the first-answer checklist."""

from __future__ import annotations

from autorecipe.recommend.changes import CHECKPOINT_PLACEHOLDER
from autorecipe.recommend.habits import CP_ABOVE_TOKENS, valid_ep, valid_tp
from autorecipe.recommend.sizing import Sizer
from autorecipe.record import replace
from autorecipe.schema.estimate import Recompute, StageSplit
from autorecipe.schema.evidence import Evidence
from autorecipe.schema.hardware import Cluster
from autorecipe.schema.layout import Layout
from autorecipe.schema.plan import Candidate as LayoutCandidate
from autorecipe.schema.recipe import Mode, RecipeKind
from autorecipe.schema.recommendation import Candidate, DatasetChoice, Question, Sizing, Statement

FULL_RECOMPUTE = Recompute(granularity="full", method="uniform", num_layers=1)

BUBBLE = 0.05
"""Pipeline bubble from which VP is worth a word. Evidence: assumed."""


def state_pitfalls(
    sizer: Sizer,
    sizing: Sizing,
    cluster: Cluster,
    *,
    question: Question,
    pick: Candidate,
    modality: str,
    needs_checkpoint: bool,
    unpacks: str = "",
    longest: int | None = None,
) -> tuple[Statement, ...]:
    """Return the known traps that apply to this run, worst first.

    Args:
        sizer: of the recipe.
        sizing: how it will run.
        cluster: the GPUs used.
        question: what was asked.
        pick: the recipe.
        modality: text, vlm, audio, omni or diffusion.
        needs_checkpoint: whether the command names a base model.
        unpacks: preset that switches off the packing which the recipe has, or empty.
        longest: context length of the model (tokens), or None where not known.
    """
    config, layout = sizer.config, sizing.layout
    shape = sizer.inputs.shape if sizer.inputs else None
    found: list[Statement] = []

    def add(code: str, **facts: object) -> None:
        found.append(Statement(code=f"pitfall.{code}", facts=facts))

    tunes = pick.mode in (Mode.SFT, Mode.PEFT)
    graphs = config.get("model.cuda_graph_impl", None) not in (None, "none")
    tokens = sizing.seq_length or 0
    if longest and tokens > longest:
        add("rope", tokens=tokens, limit=longest)
    if tokens > CP_ABOVE_TOKENS and layout.cp == 1:
        add("long-without-cp", tokens=tokens)
    if shape is not None and shape.num_query_groups < cluster.nvlink_reach:
        add("tp-over-kv", groups=shape.num_query_groups)
    microbatches = sizing.num_microbatches
    if layout.pp > 1 and layout.vp == 1 and (microbatches is None or (layout.pp - 1) / microbatches > BUBBLE):
        add("pp-without-vp", pp=layout.pp)
    if shape is not None and shape.is_moe:
        experts = shape.num_moe_experts or 1
        if experts // layout.ep > 8:
            add("ep-small", experts=experts, ep=layout.ep, each=experts // layout.ep)
        if cluster.gpu.name == "h100" and config.get("ddp.overlap_grad_reduce", None) is True:
            add("moe-overlap")
    if graphs and tunes:
        add("graphs-packed", impl=config.get("model.cuda_graph_impl"))
    if graphs and _recomputes_fully(sizer, sizing):
        add("graphs-recompute", impl=config.get("model.cuda_graph_impl"))
    if graphs and not (config.get("model.use_te_rng_tracker", None) and config.get("rng.te_rng_tracker", None)):
        add("graphs-rng", impl=config.get("model.cuda_graph_impl"))
    if config.get("ddp.use_megatron_fsdp", None) or config.get("dist.use_megatron_fsdp", None):
        if cluster.gpu.name == "h100" and layout.tp > 2:
            add("fsdp-tp", tp=layout.tp)
        if "qwen35_vl" in pick.canonical_name and shape is not None and shape.is_moe:
            add("qwen35-fsdp")
    if modality not in ("text", ""):
        add("engine", modality=modality)
    if modality == "vlm" and tunes:
        add("vlm-images")
    if tunes and unpacks:
        add("packing-off", preset=unpacks, tokens=tokens)
    if needs_checkpoint:
        add("checkpoint", placeholder=CHECKPOINT_PLACEHOLDER)
    if not graphs and not question.benchmark:
        add("graphs-later")
    add("stale-checkpoint")
    if pick.mode is Mode.PRETRAIN and pick.kind is RecipeKind.LIBRARY:
        add("short-run")
    return tuple(found)


def state_oom_steps(sizer: Sizer, sizing: Sizing, cluster: Cluster) -> tuple[Statement, ...]:
    """Return what to try on OOM, in order, each with the estimate where one can be made.

    Order: micro batch to 1, experts over more ranks (MoE; TP does not shrink experts), CP for long sequences, full
    recomputation, TP within the NVLink domain, PP with VP, more GPUs.
    """
    layout, batch = sizing.layout, sizer.batch
    shape = sizer.inputs.shape if sizer.inputs else None
    found: list[Statement] = []
    start = sizing.candidate
    if batch is None or shape is None or start is None or sizing.num_gpus is None:
        return (Statement(code="oom.generic"),)
    used = replace(cluster, num_gpus=sizing.num_gpus, gpus_per_node=sizing.gpus_per_node)

    def add(code: str, option: LayoutCandidate, **facts: object) -> None:
        legal = option.layout.fits_world(used.num_gpus) and replace(batch, micro_batch_size=option.micro_batch_size).divides(
            option.layout.data_parallel_size(used.num_gpus)
        )
        fit = sizer.estimate(option, used) if legal else None
        if fit and sizing.memory and fit.peak_bytes > 0.98 * sizing.memory.peak_bytes:
            return  # it would not help here
        shown = {"peak": fit.peak_bytes, "capacity": fit.capacity_bytes} if fit else {}
        found.append(
            Statement(
                code=f"oom.{code}" + ("" if fit else "-unsized"), facts=facts | shown, evidence=Evidence.DERIVED if fit else None
            )
        )

    joins_rows = sizer.config.get("dataset.enable_in_batch_packing", None) is True  # needs two rows (rule PCK002)
    if start.micro_batch_size > 1 and not joins_rows:
        add("micro-batch", replace(start, micro_batch_size=1), before=start.micro_batch_size)
    elif not joins_rows:
        found.append(Statement(code="oom.micro-batch-done"))
    if shape.is_moe:
        wider = [ep for ep in valid_ep(shape, used.num_gpus // layout.pp) if ep > layout.ep and ep % layout.ep == 0]
        if wider:
            add("ep", _with(start, ep=wider[0]), before=layout.ep, after=wider[0])
        else:
            found.append(Statement(code="oom.ep-done", facts={"ep": layout.ep, "pp": layout.pp}))
    if batch.seq_length > CP_ABOVE_TOKENS // 2 and used.num_gpus >= 2:
        add("cp", _with(start, cp=layout.cp * 2), before=layout.cp, after=layout.cp * 2)
    if not start.recompute.is_full:
        add("recompute", replace(start, recompute=FULL_RECOMPUTE))
    taller = [tp for tp in valid_tp(shape, limit=min(used.nvlink_reach, used.num_gpus)) if tp > layout.tp and tp % layout.tp == 0]
    if taller:
        add("tp-moe" if shape.is_moe else "tp", _with(start, tp=taller[0]), before=layout.tp, after=taller[0])
    deeper = layout.pp * 2
    if shape.num_layers % deeper == 0 and used.num_gpus >= deeper:
        add("pp", _with(start, pp=deeper), before=layout.pp, after=deeper)
    code = "oom.more-gpus-peft" if sizer.config.mode == "peft" else "oom.more-gpus"
    found.append(Statement(code=code, facts={"gpus": used.num_gpus * 2}))
    return tuple(found)


def _with(start: LayoutCandidate, **axes: int) -> LayoutCandidate:
    layout: Layout = replace(start.layout, **axes)  # type: ignore[arg-type]
    split = start.split
    if "pp" in axes:
        layout, split = replace(layout, vp=1), StageSplit()
    return replace(start, layout=replace(layout, sequence_parallel=layout.tp > 1), split=split)


def _recomputes_fully(sizer: Sizer, sizing: Sizing) -> bool:
    if sizing.candidate is not None:
        return sizing.candidate.recompute.is_full
    return bool(sizer.config.get("model.recompute_granularity", None) == "full")


def state_evidence(pick: Candidate, dataset: DatasetChoice) -> tuple[Statement, ...]:
    """Return what a run of the command proves, and what it does not."""
    if pick.kind is RecipeKind.BENCHMARK:
        return (Statement(code="evidence.benchmark"), Statement(code="evidence.benchmark-not"))
    found = []
    if dataset.preset == "mock":
        found.append(Statement(code="evidence.mock"))
    elif pick.mode is Mode.PRETRAIN:
        found.append(Statement(code="evidence.own-data"))
    else:
        code = "evidence.tune" if dataset.preset else "evidence.tune-own"
        found.append(Statement(code=code, facts={"preset": dataset.preset}))
    return (*found, Statement(code="evidence.layout"), Statement(code="evidence.cohort"))


def state_checklist() -> tuple[Statement, ...]:
    """Return the six points of every first answer."""
    return tuple(Statement(code=f"checklist.{number}") for number in range(1, 7))
