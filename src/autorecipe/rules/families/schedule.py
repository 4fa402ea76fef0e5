"""SCH: training length, learning rate and weight decay."""

from __future__ import annotations

from collections.abc import Iterator

from autorecipe.rules.context import Context
from autorecipe.rules.declare import adjusts, computes, requires
from autorecipe.rules.rule import BRIDGE, Breach, Verdict
from autorecipe.schema import Fix, OriginKind, Severity, Stage

BOTH = ("bridge", "megatron-lm")
LENGTHS = ("train.train_iters", "train.train_samples", "train.num_epochs")


def _follows(context: Context, path: str) -> bool:
    """Return whether upstream derived a length, as it does from samples; it is checked before that."""
    origin = context.config.origins.get(path)
    return origin is not None and origin.kind is OriginKind.DERIVED


@computes(
    "SCH001",
    "BR-TRAIN-01",
    "training has one length: iterations, samples or epochs",
    formula="exactly one of train_iters, train_samples, num_epochs",
    paths="train.train_iters train.train_samples train.num_epochs",
    frameworks=("bridge",),
    source="bc:481",
    why="Recipes preset train_iters: switching to samples or epochs needs train.train_iters=null.",
    bad="train.train_iters=1000 train.train_samples=null train.num_epochs=3",
    good="train.train_iters=null",
)
def one_length(context: Context) -> Iterator[Verdict]:
    """Check that exactly one length is set."""
    known = [path for path in LENGTHS if path in context.values]
    given = [path for path in known if context.values[path] is not None and not _follows(context, path)]
    if len(given) > 1:
        fixes = [
            Fix(overrides={path: None for path in given if path != kept}, note=f"trains by {kept}: a new convergence experiment")
            for kept in reversed(given)
        ]
        yield Breach(message=f"{' and '.join(given)} are set; only one may be", paths=tuple(given), fixes=tuple(fixes))
    elif not given and len(known) >= 2:
        yield Breach(message="none of train_iters, train_samples and num_epochs is set", hint="set train.train_iters=N")


def _samples(context: Context) -> bool:
    return context.get("train.train_samples") is not None


@computes(
    "SCH002",
    "BR-SCHED-06 MLM-SCHED-05 TRAP-WARMUP",
    "warmup must end before decay ends",
    formula="warmup < decay, decay := train_iters where unset (Bridge), or max_steps",
    paths="scheduler.lr_warmup_iters scheduler.lr_decay_iters train.train_iters scheduler.lr_warmup_samples "
    "scheduler.lr_decay_samples scheduler.max_steps",
    stage=Stage.INIT,
    frameworks=BOTH,
    source="bc:1802 + lm:megatron/core/optimizer_param_scheduler.py:160",
    why="A short run with the recipe's warmup never reaches its learning rate. Bridge caps the warmup at decay - "
    "1 with a warning and "
    "trains with a rising rate that never decays; Megatron-LM stops with an assertion.",
    bad="train.train_iters=10 scheduler.lr_warmup_iters=500 scheduler.lr_decay_iters=null",
    good="scheduler.lr_warmup_iters=1",
)
def warmup(context: Context) -> Iterator[Verdict]:
    """Compare warmup and decay in the unit of the run."""
    unit = "samples" if _samples(context) else "iters"
    total = context.integer(f"train.train_{unit}")
    decay = context.integer("scheduler.max_steps") if unit == "iters" else None
    decay = decay or context.integer(f"scheduler.lr_decay_{unit}") or total
    warm = context.get(f"scheduler.lr_warmup_{unit}", 0)
    fraction = context.get("scheduler.lr_warmup_fraction")
    if not decay or not isinstance(warm, int | float):
        return
    if isinstance(fraction, int | float):
        warm = fraction * decay
    if warm < decay:
        if unit == "iters" and total and warm >= total:
            yield Breach(
                message=f"warmup of {warm} {unit} is not over after train_{unit}={total}: the learning rate only rises",
                severity=Severity.WARN,
                stage=Stage.NEVER,
                fixes=(Fix(overrides={f"scheduler.lr_warmup_{unit}": max(0, total // 10)}, note="a new convergence experiment"),),
            )
        return
    scale = (context.integer("train.global_batch_size") or 0) if unit == "iters" else 1
    bridge = context.framework == BRIDGE
    shorter = max(0, min(decay // 10, decay - 1))
    yield Breach(
        message=f"warmup of {warm} {unit} does not end before decay after {decay} {unit}"
        + (": Bridge caps it there, and the rate never decays" if bridge else ": upstream stops"),
        severity=Severity.WARN if bridge else Severity.ERROR,
        effective={"scheduler.lr_warmup_steps": decay * scale - 1} if bridge and scale else {},
        fixes=(
            Fix(overrides={f"scheduler.lr_warmup_{unit}": shorter}, note="a new convergence experiment"),
            Fix(
                overrides={"scheduler.lr_warmup_fraction": 0.1, f"scheduler.lr_warmup_{unit}": 0},
                note="a new convergence experiment",
            ),
        ),
        hint=f"shorten scheduler.lr_warmup_{unit} and set scheduler.lr_decay_{unit} with train.train_{unit}",
        facts={"warmup": warm, "decay": decay, "total": total},
    )


LENGTH = (
    requires(
        "SCH003",
        "BR-TRAIN-02",
        "training by samples needs a fixed positive length and batch",
        when="isset(train.train_samples)",
        need=("train.train_samples > 0", "unset(get(train.rampup_batch_size))", "GBS > 0"),
        source="bc:488",
        why="Iterations are samples / batch.",
        bad="train.train_samples=1000 train.rampup_batch_size=[16,16,1000] train.global_batch_size=8",
        good="train.rampup_batch_size=null",
    ),
    requires(
        "SCH004",
        "BR-TRAIN-03",
        "training by epochs needs a positive number and a fixed batch",
        when="isset(train.num_epochs)",
        need=("train.num_epochs > 0", "unset(get(train.rampup_batch_size))", "GBS > 0"),
        source="bc:484",
        why="Iterations are epochs x samples / batch.",
        bad="train.num_epochs=0 train.global_batch_size=8 dataset._class=GPTSFTDatasetConfig dataset.dataloader_type=batch",
        good="train.num_epochs=1",
    ),
    requires(
        "SCH005",
        "BR-TRAIN-04",
        "epochs need a finite fine-tuning data set with the batch loader",
        when="isset(train.num_epochs)",
        need="DATASET in ('gptsftdatasetconfig', 'finetuningdatasetconfig') and get(dataset.dataloader_type) in ('batch', None)",
        stage=Stage.VALIDATE,
        source="bc:1263",
        why="A pretraining data set has no end to count.",
        bad="train.num_epochs=3 dataset._class=GPTDatasetConfig train.global_batch_size=8",
        good="train.num_epochs=null",
        fixes=({"train.num_epochs": None, "train.train_iters": 1000},),
        hint="use train.train_iters or train.train_samples",
    ),
    requires(
        "SCH006",
        "MLM-SCHED-01",
        "training by iterations excludes sample counts",
        when="isset(train.train_iters)",
        need=(
            "unset(get(train.train_samples))",
            "unset(get(scheduler.lr_decay_samples))",
            "get(scheduler.lr_warmup_samples) in (0, None)",
        ),
        stage=Stage.PARSE,
        source="ar:1280",
        why="Schedules are in the unit of the run.",
        bad="train.train_iters=100 scheduler.lr_decay_samples=1000",
        good="scheduler.lr_decay_samples=null",
    ),
    requires(
        "SCH007",
        "MLM-SCHED-03",
        "training by samples excludes iteration counts",
        when="isset(train.train_samples)",
        need=(
            "unset(get(train.train_iters))",
            "unset(get(scheduler.lr_decay_iters))",
            "get(scheduler.lr_warmup_iters) in (0, None)",
        ),
        stage=Stage.PARSE,
        source="ar:1294",
        why="Schedules are in the unit of the run.",
        bad="train.train_samples=1000 scheduler.lr_warmup_iters=10",
        good="scheduler.lr_warmup_iters=0",
        fixes=({"scheduler.lr_warmup_iters": 0, "scheduler.lr_decay_iters": None, "train.train_iters": None},),
    ),
    requires(
        "SCH008",
        "BR-SCHED-04",
        "the schedule must be in the unit of the run: samples",
        when="isset(train.train_samples)",
        need=(
            "unset(get(scheduler.max_steps))",
            "unset(get(scheduler.lr_decay_iters))",
            "get(scheduler.lr_warmup_iters) in (0, None)",
        ),
        stage=Stage.VALIDATE,
        source="bc:1713",
        why="Recipes preset lr_warmup_iters, so that training by samples needs lr_warmup_iters=0 and lr_warmup_samples.",
        bad="train.train_samples=320000 train.train_iters=null scheduler.lr_warmup_iters=500 train.global_batch_size=8",
        good="scheduler.lr_warmup_iters=0",
        fixes=({"scheduler.lr_warmup_iters": 0, "scheduler.lr_decay_iters": None, "scheduler.max_steps": None},),
    ),
    requires(
        "SCH009",
        "BR-SCHED-04",
        "the schedule must be in the unit of the run: iterations",
        when="isset(train.train_iters) and unset(get(train.train_samples))",
        need=("unset(get(scheduler.lr_decay_samples))", "get(scheduler.lr_warmup_samples) in (0, None)"),
        stage=Stage.VALIDATE,
        source="bc:1713",
        why="Upstream stops with an assertion.",
        bad="train.train_iters=100 scheduler.lr_warmup_samples=10",
        good="scheduler.lr_warmup_samples=0",
        fixes=({"scheduler.lr_warmup_samples": 0, "scheduler.lr_decay_samples": None},),
    ),
    requires(
        "SCH010",
        "BR-SCHED-02",
        "iteration and sample fields of the schedule are not mixed",
        when="isset(get(scheduler.lr_decay_samples)) or get(scheduler.lr_warmup_samples) > 0",
        need=("unset(get(scheduler.lr_decay_iters))", "get(scheduler.lr_warmup_iters) in (0, None)"),
        source="bc:427",
        why="One unit counts.",
        bad="scheduler.lr_decay_samples=1000 scheduler.lr_decay_iters=100 train.train_samples=1000 train.global_batch_size=8",
        good="scheduler.lr_decay_iters=null",
    ),
    requires(
        "SCH011",
        "BR-SCHED-03 MLM-SCHED-02",
        "a warmup fraction excludes warmup counts",
        when="isset(get(scheduler.lr_warmup_fraction))",
        need=("get(scheduler.lr_warmup_iters) in (0, None)", "get(scheduler.lr_warmup_samples) in (0, None)"),
        frameworks=BOTH,
        source="bc:437 + ar:1287",
        why="Both say how long the warmup is.",
        bad="scheduler.lr_warmup_fraction=0.1 scheduler.lr_warmup_iters=10",
        good="scheduler.lr_warmup_iters=0",
        fixes=({"scheduler.lr_warmup_iters": 0, "scheduler.lr_warmup_samples": 0},),
    ),
    requires(
        "SCH012",
        "BR-SCHED-01",
        "the schedule's horizon is positive and not before the end of training",
        when="isset(get(scheduler.max_steps))",
        need=(
            "scheduler.max_steps > 0",
            "unset(get(train.train_samples))",
            "unset(get(train.train_iters)) or scheduler.max_steps >= train.train_iters",
        ),
        source="bc:1770",
        why="max_steps lets a short run follow the first part of a long schedule.",
        bad="scheduler.max_steps=50 train.train_iters=100",
        good="scheduler.max_steps=100",
        fixes=({"scheduler.max_steps": None},),
        bridge=">=0.6",
    ),
    adjusts(
        "SCH013",
        "BR-SCHED-05",
        "an unset decay is the length of training",
        when="isset(train.train_iters) and unset(scheduler.lr_decay_iters) and unset(get(scheduler.max_steps))",
        effective={"scheduler.lr_decay_iters": "=train.train_iters"},
        severity=Severity.INFO,
        stage=Stage.VALIDATE,
        source="bc:1775",
        why="The learning rate therefore depends on when the run ends: a shorter run is not the start of a longer one.",
        bad="train.train_iters=1000 scheduler.lr_decay_iters=null",
        good="scheduler.lr_decay_iters=1000",
    ),
    requires(
        "SCH014",
        "BR-SCHED-07 MLM-SCHED-05",
        "the decay has a positive length",
        when="isset(get(scheduler.lr_decay_iters)) or isset(get(scheduler.lr_decay_samples))",
        need=(
            "unset(get(scheduler.lr_decay_iters)) or scheduler.lr_decay_iters > 0",
            "unset(get(scheduler.lr_decay_samples)) or scheduler.lr_decay_samples > 0",
        ),
        stage=Stage.VALIDATE,
        frameworks=BOTH,
        source="bc:1795 + lm:megatron/core/optimizer_param_scheduler.py:160",
        why="The learning rate is a function of progress along it.",
        bad="scheduler.lr_decay_iters=0",
        good="scheduler.lr_decay_iters=100",
    ),
)

RATE = (
    requires(
        "SCH015",
        "MLM-SCHED-04 MLM-SCHED-06",
        "the smallest learning rate is not above the largest, nor the first one",
        when="isset(get(optimizer.lr))",
        need=(
            "unset(get(optimizer.min_lr)) or 0 <= optimizer.min_lr <= optimizer.lr",
            "unset(get(scheduler.lr_warmup_init)) or scheduler.lr_warmup_init <= optimizer.lr",
        ),
        stage=Stage.INIT,
        frameworks=BOTH,
        source="ar:1360 + lm:megatron/core/optimizer_param_scheduler.py:152",
        why="The rate would rise where it should fall.",
        bad="optimizer.lr=0.0001 optimizer.min_lr=0.001",
        good="optimizer.min_lr=0.00001",
        hint="lower optimizer.min_lr with optimizer.lr",
    ),
    requires(
        "SCH016",
        "MLM-SCHED-07",
        "warmup-stable-decay needs a decay length",
        when="get(scheduler.lr_decay_style) == 'WSD'",
        need="isset(get(scheduler.lr_wsd_decay_iters)) or isset(get(scheduler.lr_wsd_decay_samples))",
        stage=Stage.INIT,
        source="lm:megatron/core/optimizer_param_scheduler.py:164",
        why="It says where the stable part ends. Bridge fills it with the whole decay.",
        bad="scheduler.lr_decay_style=WSD scheduler.lr_wsd_decay_iters=null",
        good="scheduler.lr_wsd_decay_iters=100",
    ),
    requires(
        "SCH017",
        "BR-SCHED-08 MLM-SCHED-08",
        "weight decay does not fall, and is constant where it says so",
        when="isset(get(scheduler.start_weight_decay)) and isset(get(scheduler.end_weight_decay))",
        need=(
            "0 <= scheduler.start_weight_decay <= scheduler.end_weight_decay",
            "get(scheduler.weight_decay_incr_style) not in ('constant',) "
            "or scheduler.start_weight_decay == scheduler.end_weight_decay",
        ),
        stage=Stage.INIT,
        frameworks=BOTH,
        source="bc:416 + lm:megatron/core/optimizer_param_scheduler.py:169",
        why="The scheduler interpolates from start to end.",
        bad="scheduler.start_weight_decay=0.1 scheduler.end_weight_decay=0.05 scheduler.weight_decay_incr_style=linear",
        good="scheduler.end_weight_decay=0.2",
    ),
    requires(
        "SCH018",
        "BR-SCHED-08",
        "overriding and taking the checkpoint's schedule exclude each other",
        need="not (on(scheduler.override_opt_param_scheduler) and on(scheduler.use_checkpoint_opt_param_scheduler))",
        source="bc:416",
        why="One says to ignore the checkpoint's values, the other to use them.",
        bad="scheduler.override_opt_param_scheduler=true scheduler.use_checkpoint_opt_param_scheduler=true",
        good="scheduler.override_opt_param_scheduler=false",
    ),
    adjusts(
        "SCH019",
        "BR-WD-01 TRAP-WD",
        "the scheduler's weight decay acts, not the optimizer's",
        when="isset(scheduler.start_weight_decay) and isset(optimizer.weight_decay) "
        "and scheduler.start_weight_decay != optimizer.weight_decay",
        effective={"optimizer.weight_decay": "=scheduler.start_weight_decay"},
        severity=Severity.WARN,
        stage=Stage.NEVER,
        source="br:src/megatron/bridge/training/optim.py:347",
        why="The scheduler writes its own decay into every parameter group at each step; recipe helpers set "
        "0.033. An override of "
        "optimizer.weight_decay alone does nothing.",
        bad="optimizer.weight_decay=0.1 scheduler.start_weight_decay=0.033 scheduler.end_weight_decay=0.033",
        good="scheduler.start_weight_decay=0.1 scheduler.end_weight_decay=0.1",
        hint="set scheduler.start_weight_decay and scheduler.end_weight_decay",
    ),
    requires(
        "SCH020",
        "MLM-WD-01",
        "weight decay is constant, or has a start and an end",
        when="isset(get(scheduler.weight_decay_incr_style))",
        need=(
            "scheduler.weight_decay_incr_style == 'constant' or (isset(get(scheduler.start_weight_decay)) "
            "and isset(get(scheduler.end_weight_decay)))",
        ),
        stage=Stage.PARSE,
        source="ar:1394",
        why="A constant decay is --weight-decay; a rising one has two values.",
        bad="scheduler.weight_decay_incr_style=linear scheduler.start_weight_decay=null",
        good="scheduler.weight_decay_incr_style=constant",
    ),
    adjusts(
        "SCH021",
        "MLM-WD-02",
        "the old exemption from weight decay became an option of the optimizer",
        when="isset(get(scheduler.no_weight_decay_cond_type))",
        effective={"optimizer.apply_wd_to_qk_layernorm": True},
        stage=Stage.PARSE,
        frameworks=BOTH,
        source="ar:1384",
        why="Any other value of it is refused.",
        bad="scheduler.no_weight_decay_cond_type=qwen3_next",
        good="scheduler.no_weight_decay_cond_type=null",
    ),
)

RULES = (one_length, warmup, *LENGTH, *RATE)
