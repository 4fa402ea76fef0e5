"""Learning-rate and weight-decay schedule: from configuration fields to Megatron-Core's `OptimizerParamScheduler`.

Purpose: upstream counts its schedule in samples; this turns `scheduler.*` into those numbers with upstream's fallbacks
and says which given value does not act. Leaves out: what the schedule computes, which is core's own code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autorecipe.engine.loop.settings import LoopSettings
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import UNKNOWN


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A schedule in samples.

    Attributes:
        init_lr: learning rate at the start of warmup.
        max_lr: peak.
        min_lr: floor.
        warmup_samples: samples of linear warmup.
        decay_samples: samples until the floor is reached, warmup included.
        decay_style: constant, linear, cosine, inverse-square-root or WSD.
        start_weight_decay: at the first step.
        end_weight_decay: after `weight_decay_samples`.
        weight_decay_samples: samples over which it moves.
        weight_decay_style: constant, linear or cosine.
        wsd_decay_samples: samples of the final decay of WSD, or None.
        wsd_decay_style: its style.
        use_checkpoint: take the checkpoint's schedule where it differs.
        override: take this schedule where the checkpoint's differs.
        notes: given values that do not act, for the user.
    """

    init_lr: float
    max_lr: float
    min_lr: float
    warmup_samples: float
    decay_samples: int
    decay_style: str
    start_weight_decay: float
    end_weight_decay: float
    weight_decay_samples: int
    weight_decay_style: str
    wsd_decay_samples: int | None
    wsd_decay_style: str
    use_checkpoint: bool
    override: bool
    notes: tuple[str, ...] = ()


def read_schedule(run: RunConfig, settings: LoopSettings) -> Schedule:
    """Read the schedule that takes effect.

    Formula: warmup = lr_warmup_iters x global batch (or fraction x decay), decay = (max_steps or lr_decay_iters or
    train_iters) x global batch; a warmup that reaches the decay is cut to one sample less.
    Source: Megatron Bridge src/megatron/bridge/training/config.py `_calculate_scheduler_steps` @ 0.6.2.
    Evidence: enforced-upstream.

    Raises:
        UsageError: no learning rate, or a schedule shorter than the run allows.
    """

    def value(path: str, fallback: Any = None) -> Any:
        found = run.get(path, None)
        return fallback if found is None or found is UNKNOWN else found

    notes: list[str] = []
    problems: list[Problem] = []
    batch = settings.global_batch_size
    max_lr = value("optimizer.lr")
    if not isinstance(max_lr, int | float):
        problems.append(Problem(path="optimizer.lr", code="missing-value", message="is not set", hint="add optimizer.lr=3e-4"))
        max_lr = 1.0
    style = str(value("scheduler.lr_decay_style", "linear"))
    wsd: int | None
    if settings.train_samples is not None:
        decay = int(value("scheduler.lr_decay_samples", settings.train_samples))
        weight_decay_samples = settings.train_samples
        warmup: float = value("scheduler.lr_warmup_samples", 0)
        wsd = value("scheduler.lr_wsd_decay_samples")
    else:
        max_steps = value("scheduler.max_steps")
        if max_steps is not None and max_steps < settings.train_iters:
            problems.append(
                Problem(
                    path="scheduler.max_steps",
                    code="bad-value",
                    message=f"{max_steps} is less than train.train_iters={settings.train_iters}",
                    hint=f"use scheduler.max_steps={settings.train_iters} or more",
                )
            )
        decay_iters = max_steps or value("scheduler.lr_decay_iters", settings.train_iters)
        decay = int(decay_iters) * batch
        weight_decay_samples = (max_steps or settings.train_iters) * batch
        warmup = value("scheduler.lr_warmup_iters", 0) * batch
        wsd_iters = value("scheduler.lr_wsd_decay_iters", decay_iters if style == "WSD" else None)
        wsd = wsd_iters * batch if wsd_iters is not None else None
    fraction = value("scheduler.lr_warmup_fraction")
    if fraction is not None:
        warmup = fraction * decay
    if warmup >= decay:
        notes.append(
            f"warmup of {warmup:g} samples is not shorter than the schedule of {decay} samples; it is cut to {decay - 1}. "
            "Set scheduler.lr_warmup_iters for a short run."
        )
        warmup = decay - 1
    weight_decay = value("optimizer.weight_decay", 0.01)
    start, end = value("scheduler.start_weight_decay"), value("scheduler.end_weight_decay")
    if start is not None and end is not None and start == end and start != weight_decay and run.known("optimizer.weight_decay"):
        notes.append(
            f"weight decay {start:g} of scheduler.start_weight_decay acts; optimizer.weight_decay={weight_decay:g} does not"
        )
    if problems:
        raise UsageError(problems)
    return Schedule(
        init_lr=float(value("scheduler.lr_warmup_init", 0.0)),
        max_lr=float(max_lr),
        min_lr=float(value("optimizer.min_lr", 0.0)),
        warmup_samples=warmup,
        decay_samples=decay,
        decay_style=style,
        start_weight_decay=float(weight_decay if start is None else start),
        end_weight_decay=float(weight_decay if end is None else end),
        weight_decay_samples=weight_decay_samples,
        weight_decay_style=str(value("scheduler.weight_decay_incr_style", "constant")),
        wsd_decay_samples=wsd,
        wsd_decay_style=str(value("scheduler.lr_wsd_decay_style", "exponential")),
        use_checkpoint=bool(value("scheduler.use_checkpoint_opt_param_scheduler", False)),
        override=bool(value("scheduler.override_opt_param_scheduler", False)),
        notes=tuple(notes),
    )


def build_scheduler(schedule: Schedule, optimizer: Any) -> Any:
    """Return core's scheduler, which has already set the first learning rate."""
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

    return OptimizerParamScheduler(
        optimizer,
        init_lr=schedule.init_lr,
        max_lr=schedule.max_lr,
        min_lr=schedule.min_lr,
        lr_warmup_steps=schedule.warmup_samples,
        lr_decay_steps=schedule.decay_samples,
        lr_decay_style=schedule.decay_style,
        start_wd=schedule.start_weight_decay,
        end_wd=schedule.end_weight_decay,
        wd_incr_steps=schedule.weight_decay_samples,
        wd_incr_style=schedule.weight_decay_style,
        use_checkpoint_opt_param_scheduler=schedule.use_checkpoint,
        override_opt_param_scheduler=schedule.override,
        wsd_decay_steps=schedule.wsd_decay_samples,
        lr_wsd_decay_style=schedule.wsd_decay_style,
    )
