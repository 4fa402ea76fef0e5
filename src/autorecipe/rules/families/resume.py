"""CKP: loading, resuming, and starting points."""

from __future__ import annotations

from collections.abc import Iterator

from autorecipe.rules.context import Context
from autorecipe.rules.declare import computes, requires, show
from autorecipe.rules.rule import BRIDGE, Breach, Verdict
from autorecipe.schema import Evidence, Fix, Severity, Stage

BOTH = ("bridge", "megatron-lm")
AXES = (
    "model.tensor_model_parallel_size",
    "model.pipeline_model_parallel_size",
    "model.context_parallel_size",
    "model.expert_model_parallel_size",
)
TASKS = "given.mode"


def _saved_topology_differs(context: Context) -> list[str]:
    changed = []
    for path in AXES:
        before, now = context.saved.get(path), context.values.get(path)
        if before is not None and now is not None and before != now:
            changed.append(f"{path} {before} -> {now}")
    dp = context.saved.get("data_parallel_size")
    if dp is not None and context.dp is not None and dp != context.dp:
        changed.append(f"data-parallel size {dp} -> {context.dp}")
    return changed


@computes(
    "CKP001",
    "BR-CKPT-11 MLM-SAVE-03",
    "an optimizer saved without fully parallel save loads at the same layout only",
    formula="saved without fully_parallel_save, with the distributed optimizer, loaded at another layout -> load_optim false",
    paths="checkpoint.load_optim checkpoint.fully_parallel_save model.tensor_model_parallel_size",
    stage=Stage.RESUME,
    frameworks=BOTH,
    source="bk:2895 + ar:1776",
    why="Its shards have the shape of the data-parallel group that saved them and cannot be cut again.",
    bad="TP=4 num_attention_heads=8 saved.checkpoint.fully_parallel_save=false saved.ddp.use_distributed_optimizer=true "
    "saved.model.tensor_model_parallel_size=2 checkpoint.load_optim=true",
    good="checkpoint.load_optim=false",
)
def optimizer_reshard(context: Context) -> Iterator[Verdict]:
    """Check whether the saved optimizer can be loaded at this layout."""
    if context.saved.get("checkpoint.fully_parallel_save") is not False:
        return
    if context.saved.get("ddp.use_distributed_optimizer") is False or context.get("checkpoint.load_optim", True) is False:
        return
    changed = _saved_topology_differs(context)
    if changed:
        yield Breach(
            message=f"the checkpoint's optimizer was saved without fully parallel save, and the layout changed: "
            f"{'; '.join(changed)}",
            fixes=(Fix(overrides={"checkpoint.load_optim": False}, note="restarts the optimizer: a new convergence experiment"),),
            hint="resume at the saved layout, or drop the optimizer; save with checkpoint.fully_parallel_save=true next time",
            facts={"prevent": {"checkpoint.fully_parallel_save": True}},
        )


@computes(
    "CKP002",
    "BR-CKPT-08 TRAP-LOAD",
    "a folder to load from that holds a checkpoint is resumed from, silently",
    formula="checkpoint.load holds a checkpoint -> resume, ahead of pretrained_checkpoint",
    paths="checkpoint.load checkpoint.save checkpoint.pretrained_checkpoint",
    severity=Severity.WARN,
    stage=Stage.NEVER,
    frameworks=BOTH,
    source="bs:155",
    why="Recipes set load and save to ./nemo_experiments/default/checkpoints: what another run left there wins over everything, "
    "without a message.",
    bad="checkpoint.load=/old checkpoint.save=/old found./old=megatron",
    good="checkpoint.load=null checkpoint.save=/new",
)
def silent_resume(context: Context) -> Iterator[Verdict]:
    """Report that a run will resume, or will overwrite what is there."""
    load, save = context.get("checkpoint.load"), context.get("checkpoint.save")
    pretrained = context.get("checkpoint.pretrained_checkpoint")
    if load is not None and context.found.get(str(load)) == "megatron":
        yield Breach(
            message=f"checkpoint.load={load} holds a checkpoint: the run resumes from it"
            + (f", and pretrained_checkpoint={pretrained} is not used" if pretrained else ""),
            fixes=(Fix(overrides={"checkpoint.load": None}, note="starts anew"),),
            hint=f"rm -rf {load}, or set checkpoint.load=null",
            effective={"resume": True},
        )
    elif load is None and save is not None and context.found.get(str(save)) == "megatron":
        yield Breach(
            message=f"checkpoint.save={save} holds a checkpoint of another run; without checkpoint.load it is not "
            f"resumed from, but "
            "written over, and its tracker file reused",
            fixes=(),
            hint=f"rm -rf {save}, or set another checkpoint.save",
            effective={"resume": False},
        )


@computes(
    "CKP003",
    "BR-CKPT-01 BR-CKPT-09 BR-PEFT-02 TRAP-PRETRAIN",
    "the starting checkpoint must exist and hold one",
    formula="pretrained_checkpoint set -> the path exists and holds a Megatron or Hugging Face checkpoint",
    paths="checkpoint.pretrained_checkpoint",
    stage=Stage.INIT,
    frameworks=BOTH,
    source="bc:595 + bs:188 + bs:678",
    why="The existence of the path is checked, its content only by fine-tuning: pretraining from a folder "
    "without a checkpoint starts "
    "from random weights without an error.",
    bad="checkpoint.pretrained_checkpoint=/typo found./typo=missing",
    good="found./typo=megatron",
)
def starting_checkpoint(context: Context) -> Iterator[Verdict]:
    """Check what lies at the starting checkpoint."""
    path = context.get("checkpoint.pretrained_checkpoint")
    kind = context.found.get(str(path)) if path is not None else None
    if kind == "missing":
        yield Breach(message=f"checkpoint.pretrained_checkpoint={path} does not exist", stage=Stage.FINALIZE)
    elif kind in ("empty", "folder"):
        finetuning = context.derived("FINETUNING")
        yield Breach(
            message=f"checkpoint.pretrained_checkpoint={path} holds no checkpoint"
            + ("" if finetuning is True else ": pretraining would start from random weights without an error"),
            stage=Stage.INIT if finetuning is True else Stage.NEVER,
        )


@computes(
    "CKP004",
    "MLM-SCHED-09 MLM-7468",
    "a resumed schedule must equal the checkpoint's, or one must be told to win",
    formula="saved lr, min_lr, warmup, decay, style, weight decay == configured ones, unless override_opt_param_scheduler or "
    "use_checkpoint_opt_param_scheduler",
    paths="optimizer.lr optimizer.min_lr scheduler.lr_decay_style scheduler.lr_warmup_iters scheduler.lr_decay_iters "
    "optimizer.weight_decay scheduler.start_weight_decay scheduler.end_weight_decay",
    stage=Stage.RESUME,
    frameworks=BOTH,
    source="lm:megatron/core/optimizer_param_scheduler.py:333 + Megatron-LM issue 7468",
    why="Otherwise the run would continue on another schedule. With use_checkpoint_opt_param_scheduler the state "
    "is restored after "
    "values were written to the groups: the first step still uses the new weight decay.",
    bad="optimizer.lr=0.0001 saved.optimizer.lr=0.0003",
    good="optimizer.lr=0.0003",
)
def saved_schedule(context: Context) -> Iterator[Verdict]:
    """Compare the schedule with the checkpoint's."""
    paths = (
        "optimizer.lr",
        "optimizer.min_lr",
        "scheduler.lr_decay_style",
        "scheduler.lr_warmup_iters",
        "scheduler.lr_decay_iters",
        "optimizer.weight_decay",
        "scheduler.start_weight_decay",
        "scheduler.end_weight_decay",
    )
    moved = {
        path: (context.saved[path], context.values[path])
        for path in paths
        if context.saved.get(path) is not None and context.values.get(path) is not None
        if context.saved[path] != context.values[path]
    }
    if context.framework == BRIDGE and any(path.startswith("scheduler.") and path.endswith("weight_decay") for path in moved):
        moved.pop("optimizer.weight_decay", None)
    if not moved or context.get("scheduler.override_opt_param_scheduler") is True:
        return
    text = ", ".join(f"{path} {show(before)} -> {show(now)}" for path, (before, now) in moved.items())
    decay = {path: values for path, values in moved.items() if path.endswith("weight_decay")}
    if context.get("scheduler.use_checkpoint_opt_param_scheduler") is True:
        if decay:
            before, now = next(iter(decay.values()))
            yield Breach(
                message=f"the checkpoint's schedule is used, but the first step still takes the new weight decay ({text})",
                severity=Severity.WARN,
                stage=Stage.NEVER,
                effective={"first_step_weight_decay": now, "weight_decay": before},
                fixes=(Fix(overrides={path: values[0] for path, values in decay.items()}),),
            )
        return
    yield Breach(
        message=f"the schedule differs from the checkpoint's: {text}",
        fixes=(
            Fix(overrides={"scheduler.use_checkpoint_opt_param_scheduler": True}, note="continues the saved schedule"),
            Fix(overrides={"scheduler.override_opt_param_scheduler": True}, note="a new convergence experiment"),
        ),
    )


RESUME = (
    requires(
        "CKP005",
        "BR-LOADER-02",
        "an Energon loader resumes at the same data-parallel size only",
        when="DATASET == 'energondatasetconfig' and isset(saved.data_parallel_size)",
        need="DP == saved.data_parallel_size",
        stage=Stage.RESUME,
        source="bk:1874",
        why="Loader positions are saved per data-parallel rank.",
        bad="gpus=4 dataset._class=EnergonDatasetConfig saved.data_parallel_size=8",
        good="gpus=8",
        hint="keep the data-parallel size, or drop the loader state (new data order: a new convergence experiment)",
    ),
    requires(
        "CKP006",
        "BR-CKPT-10",
        "checkpoint.load takes Megatron checkpoints only",
        when="isset(checkpoint.load)",
        need="found(checkpoint.load) != 'hf'",
        stage=Stage.INIT,
        source="bk:2754",
        why="Hugging Face weights go to pretrained_checkpoint.",
        bad="checkpoint.load=/model found./model=hf",
        good="checkpoint.load=null",
        hint="use checkpoint.pretrained_checkpoint=PATH and checkpoint.load=null",
        derive_fixes=False,
        fixes=({"checkpoint.load": None},),
    ),
    requires(
        "CKP007",
        "BR-RUNCONFIG RES-013",
        "a checkpoint of Megatron-LM has no run configuration",
        when="given.checkpoint_framework == 'megatron-lm'",
        need="given.has_run_config == True",
        stage=Stage.RESUME,
        frameworks=("bridge",),
        source="Megatron-Bridge issue 1514",
        why="Megatron-LM stores arguments, not a Bridge configuration: exports cannot read it.",
        bad="given.checkpoint_framework=megatron-lm given.has_run_config=false",
        good="given.has_run_config=true",
        evidence=Evidence.PUBLISHED,
        hint="write run_config.yaml from the checkpoint's common.pt and the exact Hugging Face reference",
    ),
    requires(
        "CKP008",
        "RES-009",
        "resuming searches the folder given, not the ones below it",
        when="isset(checkpoint.load)",
        need="found(checkpoint.load) not in ('folder', 'missing', 'empty')",
        severity=Severity.WARN,
        stage=Stage.NEVER,
        frameworks=BOTH,
        source="NVIDIA-NeMo issue 14259; bs:155",
        why="A folder without a checkpoint is no error: training starts from scratch.",
        bad="checkpoint.load=/runs found./runs=folder",
        good="found./runs=megatron",
        evidence=Evidence.PUBLISHED,
        hint="point checkpoint.load at the folder that holds latest_checkpointed_iteration.txt or iter_*",
        derive_fixes=False,
        fixes=({"checkpoint.exit_on_missing_checkpoint": True},),
    ),
)

RULES = (optimizer_reshard, silent_resume, starting_checkpoint, saved_schedule, *RESUME)
