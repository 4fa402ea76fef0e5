"""PIP: virtual stages, the interleaved schedule, and what stages send to one another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autorecipe.rules.context import Context
from autorecipe.rules.declare import adjusts, computes, requires
from autorecipe.rules.families.pipeline import FIRST, LAST, VP
from autorecipe.rules.layout import divisors, microbatches_fit
from autorecipe.rules.rule import Breach, Missing, Verdict
from autorecipe.schema import Fix, Severity, Stage


@computes(
    "PIP004",
    "MC-VPRUN-01 MC-VPRUN-02",
    "the interleaved schedule needs enough, and well divided, microbatches",
    formula="VP > 1: PP <= group <= M and (M % group == 0 or M % group >= PP), M = GBS / (MBS * DP), group = PP unless set",
    paths="train.global_batch_size train.micro_batch_size virtual_pipeline_model_parallel_size pipeline_model_parallel_size "
    "microbatch_group_size_per_vp_stage",
    stage=Stage.RUNTIME,
    source="lm:megatron/core/pipeline_parallel/schedules.py:1166-1174",
    why="Too few microbatches cannot fill the interleaved stages; a short last group stalls the pipeline. Upstream notices at "
    "the first step, on all GPUs.",
    bad="gpus=64 PP=4 VP=2 train.global_batch_size=32 train.micro_batch_size=1",
    good="train.global_batch_size=64",
)
def interleaved_microbatches(context: Context) -> Iterator[Verdict]:
    """Check microbatches against the interleaved schedule."""
    layout = context.layout
    if layout.vp == 1 or layout.pp == 1:
        return
    group = context.integer("model.microbatch_group_size_per_vp_stage")
    if group is not None and group < layout.pp:
        yield Breach(
            message=f"microbatch_group_size_per_vp_stage={group} is below PP={layout.pp}",
            fixes=(Fix(overrides={"model.microbatch_group_size_per_vp_stage": None}),),
        )
        return
    count = context.microbatches
    if count is None:
        missing = [name for name in ("train.global_batch_size", "train.micro_batch_size") if context.integer(name) is None]
        if context.world is None:
            missing.append("gpus")
        if missing:
            yield Missing(paths=tuple(missing))
        return
    if microbatches_fit(count, layout.pp, layout.vp, group):
        return
    size = group or layout.pp
    yield _interleaved_breach(context, count, size, group)


def _interleaved_breach(context: Context, count: int, size: int, group: int | None) -> Breach:
    layout = context.layout
    gbs, mbs, dp = context.derived("GBS"), context.derived("MBS"), context.dp or 1
    few = count < size
    text = (
        f"{count} microbatches (GBS={gbs} / (MBS={mbs} x DP={dp})) are fewer than the group of {size}"
        if few
        else f"{count} microbatches % group {size} = {count % size}, which is neither 0 nor at least PP={layout.pp}"
    )
    dps = [value for value in divisors(dp) if _count_fits(gbs, mbs, value, layout.pp, layout.vp, group)]
    fixes = [
        Fix(overrides={"train.micro_batch_size": value})
        for value in reversed(divisors(mbs))
        if value < mbs and _count_fits(gbs, value, dp, layout.pp, layout.vp, group)
    ][:1]
    fixes.append(Fix(overrides={VP: None}, note="larger pipeline bubble"))
    if dps:
        fixes.append(Fix(overrides={"gpus": dps[-1] * layout.dense_model_parallel_size}, note=f"DP={dps[-1]}"))
    larger = next(
        (
            mbs * dp * number
            for number in range(count, count + 4 * min(size, 4096))
            if microbatches_fit(number, layout.pp, layout.vp, group)
        ),
        None,
    )
    if larger:
        fixes.append(Fix(overrides={"train.global_batch_size": larger}, note="a new convergence experiment"))
    legal: dict[str, Any] = {"train.global_batch_size": [larger] if larger else [], "dp": dps}
    return Breach(
        message=text,
        legal=legal,
        fixes=tuple(fixes),
        facts={
            "num_microbatches": count,
            "group": size,
            "remainder": count % size,
            "maximum_dp": dps[-1] if dps else None,
            "minimum_global_batch_size": larger,
        },
        hint=f"keep num_microbatches a multiple of {size}: dp <= {dps[-1]}" if dps else f"use a multiple of {size} microbatches",
    )


def _count_fits(gbs: int, mbs: int, dp: int, pp: int, vp: int, group: int | None) -> bool:
    return gbs % (mbs * dp) == 0 and microbatches_fit(gbs // (mbs * dp), pp, vp, group)


RULES = (
    interleaved_microbatches,
    requires(
        "PIP005",
        "MC-VP-01 MLM-PP-07",
        "virtual stages need pipeline parallelism",
        when="isset(virtual_pipeline_model_parallel_size) and VP > 1",
        need="PP > 1",
        stage=Stage.INIT,
        source="lm:megatron/core/parallel_state.py:830 + lm:megatron/training/arguments.py:1004",
        why="There is nothing to interleave on one stage.",
        bad="PP=1 VP=2 num_layers=8",
        good="VP=null",
        fixes=({VP: None},),
    ),
    requires(
        "PIP008",
        "MLM-PP-08",
        "virtual stages without overlapped p2p need more than two stages",
        when="VP > 1 and on(overlap_p2p_comm) == False and isset(overlap_p2p_comm)",
        need="PP > 2",
        stage=Stage.PARSE,
        source="lm:megatron/training/arguments.py:1008",
        why="With two stages and no overlap both neighbours are the same rank.",
        bad="framework=megatron-lm PP=2 VP=2 num_layers=8 overlap_p2p_comm=false",
        good="overlap_p2p_comm=true",
    ),
    requires(
        "PIP009",
        "MLM-PP-01",
        "only one option may set virtual stages",
        need="on(mlm.num_layers_per_virtual_pipeline_stage) + on(mlm.num_virtual_stages_per_pipeline_rank) "
        "+ on(pipeline_model_parallel_layout) <= 1",
        stage=Stage.PARSE,
        source="lm:megatron/training/arguments.py:933",
        why="Each of the three fixes the number of virtual stages.",
        bad="mlm.num_layers_per_virtual_pipeline_stage=2 mlm.num_virtual_stages_per_pipeline_rank=2",
        good="mlm.num_virtual_stages_per_pipeline_rank=null",
        fixes=({"mlm.num_layers_per_virtual_pipeline_stage": None},),
    ),
    requires(
        "PIP010",
        "MLM-PP-03",
        "layers per virtual stage exclude edge counts",
        when="on(mlm.num_layers_per_virtual_pipeline_stage)",
        need=f"unset(get({FIRST})) and unset(get({LAST}))",
        stage=Stage.PARSE,
        source="lm:megatron/training/arguments.py:956",
        why="Use num_virtual_stages_per_pipeline_rank for an uneven split.",
        bad="mlm.num_layers_per_virtual_pipeline_stage=2 PP=2 num_layers=8 num_layers_in_first_pipeline_stage=4 "
        "num_layers_in_last_pipeline_stage=4",
        good="mlm.num_layers_per_virtual_pipeline_stage=null",
    ),
    adjusts(
        "PIP013",
        "BR-PPDT-01 MC-PPDT-01",
        "an unset pipeline dtype follows the parameters",
        when="PP > 1 and unset(pipeline_dtype)",
        effective={"model.pipeline_dtype": "=get(params_dtype)"},
        severity=Severity.INFO,
        source="br:src/megatron/bridge/models/transformer_config.py:174 + lm:megatron/core/model_parallel_config.py:530",
        why="Activations are sent between stages in it. Megatron-Core alone raises ValueError; Bridge fills it first.",
        bad="PP=2 num_layers=4 pipeline_dtype=null params_dtype=torch.bfloat16",
        good="pipeline_dtype=torch.bfloat16",
    ),
    requires(
        "PIP014",
        "MC-DEFER-01",
        "a deferred embedding gradient needs a pipeline and fused accumulation",
        when="defer_embedding_wgrad_compute",
        need=("PP > 1", "gradient_accumulation_fusion", "wgrad_deferral_limit >= 0"),
        source="lm:megatron/core/model_parallel_config.py:547",
        why="The last stage defers its output-layer gradient into the pipeline's cool-down.",
        bad="defer_embedding_wgrad_compute=true PP=1 gradient_accumulation_fusion=true wgrad_deferral_limit=0",
        good="defer_embedding_wgrad_compute=false",
    ),
    requires(
        "PIP015",
        "MC-P2PWF-01",
        "overlapped warmup and flush need overlapped, unbatched p2p",
        when="overlap_p2p_comm_warmup_flush",
        need="overlap_p2p_comm and not batch_p2p_comm",
        source="lm:megatron/core/model_parallel_config.py:574",
        why="It extends the overlapped schedule to the first and last microbatches.",
        bad="overlap_p2p_comm_warmup_flush=true overlap_p2p_comm=false batch_p2p_comm=true",
        good="overlap_p2p_comm_warmup_flush=false",
    ),
    adjusts(
        "PIP016",
        "MLM-PP-09",
        "without virtual stages overlapped p2p is switched off",
        when="VP == 1 and overlap_p2p_comm",
        effective={"model.overlap_p2p_comm": False},
        stage=Stage.PARSE,
        source="lm:megatron/training/arguments.py:1011",
        why="Only the interleaved schedule has p2p to overlap.",
        bad="PP=2 num_layers=4 overlap_p2p_comm=true",
        good="overlap_p2p_comm=false",
    ),
    adjusts(
        "PIP017",
        "MC-VPGROUP-01",
        "an unset microbatch group is PP",
        when="VP > 1 and PP > 1 and unset(microbatch_group_size_per_vp_stage)",
        effective={"model.microbatch_group_size_per_vp_stage": "=PP"},
        severity=Severity.INFO,
        source="lm:megatron/core/model_parallel_config.py:568",
        why="Microbatches must then be a multiple of PP.",
        bad="PP=2 VP=2 num_layers=4 microbatch_group_size_per_vp_stage=null",
        good="microbatch_group_size_per_vp_stage=2",
    ),
)
