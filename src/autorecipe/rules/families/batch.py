"""BAT: micro batch, global batch, accumulation, evaluation batches, batch schedules."""

from __future__ import annotations

from collections.abc import Iterator

from autorecipe.rules.context import Context
from autorecipe.rules.declare import adjusts, computes, requires
from autorecipe.rules.layout import batch_fits, divisors
from autorecipe.rules.rule import MEGATRON_LM, Breach, Missing, Verdict
from autorecipe.schema import Fix, Severity, Stage

GBS, MBS = "train.global_batch_size", "train.micro_batch_size"
EVAL_GBS, EVAL_MBS = "validation.eval_global_batch_size", "validation.eval_micro_batch_size"


def _batch_breach(context: Context, gbs: int, mbs: int, dp: int, *, prefix: str = "", paths: tuple[str, str]) -> Breach:
    step = mbs * dp
    lower, upper = gbs // step * step, -(-gbs // step) * step
    sizes = [value for value in divisors(mbs) if batch_fits(gbs, value, dp)]
    dps = [value for value in range(1, min(gbs, 8 * dp, 16384) + 1) if batch_fits(gbs, mbs, value)]
    near = [value for value in (lower, upper) if value]
    fixes = [Fix(overrides={paths[1]: sizes[-1]})] if sizes and sizes[-1] != mbs else []
    smaller = [value for value in dps if value < dp]
    if smaller and not prefix:
        fixes.append(Fix(overrides={"gpus": smaller[-1] * context.layout.dense_model_parallel_size}, note=f"DP={smaller[-1]}"))
    note = "" if prefix else "a new convergence experiment"
    fixes += [Fix(overrides={paths[0]: value}, note=note) for value in sorted(near, key=lambda value: abs(value - gbs))]
    name = f"{prefix}global_batch_size"
    return Breach(
        message=f"{name}={gbs} is not a multiple of {prefix}micro_batch_size={mbs} x DP={dp} = {step}",
        legal={paths[0]: near, paths[1]: sizes, "dp": dps},
        fixes=tuple(fixes),
        facts={"dp": dp, "remainder": gbs % step, "minimum_global_batch_size": step},
        hint=f"use {name} in {near}, or another DP",
    )


@computes(
    "BAT001",
    "MLM-BATCH-05 MLM-BATCH-06 BR-BATCH-04",
    "the global batch must be whole microbatches on every data-parallel rank",
    formula="GBS % (MBS * DP) == 0 and GBS >= MBS * DP, unless decrease_batch_size_if_needed",
    paths="train.global_batch_size train.micro_batch_size",
    stage=Stage.INIT,
    frameworks=("bridge", "megatron-lm"),
    source="lm:megatron/core/num_microbatches_calculator.py:382 + br:src/megatron/bridge/data/samplers.py:279",
    why="Accumulation is the quotient. Bridge's validation looks at the evaluation sizes only, which default to these: an "
    "explicit evaluation batch hides a bad training batch until process groups exist.",
    bad="gpus=4 train.global_batch_size=30 train.micro_batch_size=1",
    good="train.global_batch_size=32",
)
def whole_accumulation(context: Context) -> Iterator[Verdict]:
    """Check GBS against MBS x DP."""
    gbs, mbs, dp = context.integer(GBS), context.integer(MBS), context.dp
    if gbs is None or mbs is None:
        return
    if context.world is None:
        if mbs and gbs % mbs:
            yield _batch_breach(context, gbs, mbs, 1, paths=(GBS, MBS))
        else:
            yield Missing(paths=("gpus",))
        return
    if dp is None or mbs < 1 or gbs < 1 or context.get("train.decrease_batch_size_if_needed"):
        return
    if not batch_fits(gbs, mbs, dp):
        yield _batch_breach(context, gbs, mbs, dp, paths=(GBS, MBS))


@computes(
    "BAT002",
    "MLM-BATCH-04 BR-BATCH-01",
    "the evaluation batch must be whole microbatches on every data-parallel rank",
    formula="eval GBS % (eval MBS * DP) == 0, each defaulting to the training value",
    paths="validation.eval_global_batch_size validation.eval_micro_batch_size",
    stage=Stage.VALIDATE,
    frameworks=("bridge", "megatron-lm"),
    source="br:src/megatron/bridge/training/config.py:1475 + lm:megatron/training/arguments.py:718",
    why="Evaluation runs through the same schedule.",
    bad="gpus=4 train.global_batch_size=32 train.micro_batch_size=1 validation.eval_global_batch_size=30",
    good="validation.eval_global_batch_size=32",
)
def whole_evaluation(context: Context) -> Iterator[Verdict]:
    """Check explicit evaluation sizes."""
    if context.integer(EVAL_GBS) is None and context.integer(EVAL_MBS) is None:
        return
    gbs = context.integer(EVAL_GBS) or context.integer(GBS)
    mbs = context.integer(EVAL_MBS) or context.integer(MBS)
    if (gbs, mbs) == (context.integer(GBS), context.integer(MBS)) and not context.integer("dist.eval_context_parallel_size"):
        return
    dp = context.dp
    cp = context.integer("dist.eval_context_parallel_size")
    if dp is not None and cp:
        total = dp * context.layout.cp
        dp = total // cp if total % cp == 0 else None
    if not gbs or not mbs or dp is None:
        if context.world is None:
            yield Missing(paths=("gpus",))
        return
    if not batch_fits(gbs, mbs, dp):
        yield _batch_breach(context, gbs, mbs, dp, prefix="eval_", paths=(EVAL_GBS, EVAL_MBS))


def _schedule_problem(text: str) -> str:
    """Return what is wrong with a batch schedule `THRESHOLD:SIZE ...`, or the empty text."""
    previous = -1
    for index, entry in enumerate(text.replace(",", " ").split()):
        threshold, colon, size = entry.partition(":")
        if not colon or not threshold.strip().isdigit() or not size.strip().isdigit():
            return f"{entry!r} is not THRESHOLD:SIZE"
        if index == 0 and int(threshold) != 0:
            return "the first threshold must be 0"
        if int(threshold) <= previous:
            return "thresholds must rise"
        if int(size) <= 0:
            return "sizes must be positive"
        previous = int(threshold)
    return ""


@computes(
    "BAT003",
    "MLM-BATCH-08",
    "a batch schedule starts at 0, rises, and has positive sizes",
    formula="entries THRESHOLD:SIZE, first threshold 0, strictly rising, sizes > 0",
    paths="train.step_batch_size_schedule",
    stage=Stage.INIT,
    frameworks=("bridge", "megatron-lm"),
    source="lm:megatron/core/num_microbatches_calculator.py:518",
    why="Each entry says from which number of samples on a batch size holds.",
    bad="train.step_batch_size_schedule='10:32 20:64'",
    good="train.step_batch_size_schedule='0:32 20:64'",
)
def batch_schedule(context: Context) -> Iterator[Verdict]:
    """Check the entries of a batch schedule."""
    text = context.get("train.step_batch_size_schedule")
    if isinstance(text, str) and (problem := _schedule_problem(text)):
        yield Breach(message=f"train.step_batch_size_schedule={text!r}: {problem}")


RULES = (
    whole_accumulation,
    whole_evaluation,
    batch_schedule,
    requires(
        "BAT004",
        "MLM-BATCH-01 BR-BATCH-03",
        "the micro batch size must be set and positive",
        when="isset(train.micro_batch_size) or unset(train.micro_batch_size)",
        need="train.micro_batch_size > 0",
        stage=Stage.VALIDATE,
        frameworks=("bridge", MEGATRON_LM),
        source="lm:megatron/training/arguments.py:693 + br:src/megatron/bridge/training/config.py:1435",
        why="It sizes every forward pass.",
        bad="train.micro_batch_size=0",
        good="train.micro_batch_size=1",
        fixes=({MBS: 1},),
    ),
    requires(
        "BAT005",
        "BR-BATCH-03",
        "the global batch size must be set and positive",
        when="isset(train.global_batch_size) or unset(train.global_batch_size)",
        need="train.global_batch_size > 0",
        stage=Stage.VALIDATE,
        source="br:src/megatron/bridge/training/config.py:1435",
        why="It decides the training and has no default in Bridge.",
        bad="train.global_batch_size=null",
        good="train.global_batch_size=8",
    ),
    adjusts(
        "BAT006",
        "MLM-BATCH-03",
        "an unset global batch is one microbatch per data-parallel rank",
        when="unset(train.global_batch_size) and MBS > 0",
        effective={GBS: "=MBS * DP"},
        severity=Severity.WARN,
        stage=Stage.PARSE,
        source="lm:megatron/training/arguments.py:704",
        why="The batch, and with it the training, then changes with the number of GPUs.",
        bad="gpus=8 train.global_batch_size=null train.micro_batch_size=2",
        good="train.global_batch_size=16",
    ),
    adjusts(
        "BAT007",
        "MLM-BATCH-09",
        "the running batch is rounded down to whole microbatches",
        when="train.decrease_batch_size_if_needed and GBS % (MBS * DP) != 0",
        effective={GBS: "=GBS // (MBS * DP) * MBS * DP"},
        stage=Stage.INIT,
        frameworks=("bridge", MEGATRON_LM),
        source="lm:megatron/core/num_microbatches_calculator.py:375",
        why="The effective global batch differs from the configured one: a convergence change.",
        bad="gpus=4 train.global_batch_size=30 train.micro_batch_size=1 train.decrease_batch_size_if_needed=true",
        good="train.global_batch_size=28",
    ),
    requires(
        "BAT008",
        "MLM-BATCH-02 MLM-BATCH-07",
        "a batch schedule excludes a fixed or a rounded batch",
        when="isset(train.step_batch_size_schedule)",
        need="not on(train.decrease_batch_size_if_needed) and not (given.explicit_global_batch_size == True)",
        stage=Stage.PARSE,
        frameworks=("bridge", MEGATRON_LM),
        source="lm:megatron/training/arguments.py:700 + lm:megatron/core/num_microbatches_calculator.py:268",
        why="Two things would decide the batch.",
        bad="train.step_batch_size_schedule='0:32' train.decrease_batch_size_if_needed=true "
        "given.explicit_global_batch_size=false",
        good="train.decrease_batch_size_if_needed=false",
    ),
    requires(
        "BAT009",
        "BR-BATCH-02",
        "TP x PP x evaluation CP must divide the GPUs",
        when="isset(dist.eval_context_parallel_size) and WORLD > 0",
        need="WORLD % (TP * PP * dist.eval_context_parallel_size) == 0",
        stage=Stage.VALIDATE,
        source="br:src/megatron/bridge/training/config.py:1468",
        why="Evaluation may use another context-parallel size over the same ranks.",
        bad="gpus=8 TP=2 dist.eval_context_parallel_size=3",
        good="dist.eval_context_parallel_size=4",
    ),
    requires(
        "BAT010",
        "BR-BATCH-05",
        "the data set must hold at least one global batch",
        when="isset(given.num_samples) and given.num_samples >= 0 and GBS > 0 and FINETUNING",
        need="given.num_samples >= GBS",
        stage=Stage.DATA,
        source="br:src/megatron/bridge/data/samplers.py:307",
        why="The fine-tuning loader drops the incomplete last batch, and then has none.",
        bad="given.mode=sft given.num_samples=100 train.global_batch_size=128",
        good="train.global_batch_size=64",
        hint="lower train.global_batch_size to the number of samples, or give more data",
    ),
    requires(
        "BAT011",
        "BR-BATCH-06",
        "a resumed run must have samples left",
        when="isset(saved.consumed_samples) and isset(given.num_samples)",
        need="saved.consumed_samples < given.num_samples",
        stage=Stage.DATA,
        source="br:src/megatron/bridge/data/samplers.py:161",
        why="The sampler starts after what was consumed, and finds nothing.",
        bad="saved.consumed_samples=100 given.num_samples=100",
        good="given.num_samples=200",
    ),
)
