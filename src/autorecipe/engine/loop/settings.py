"""What the loop reads from a resolved configuration, checked once and typed.

Purpose: every number that steers the loop stands here under upstream's own fallbacks, so that no other module reads
`train.*`, `validation.*`, `logger.*` or `checkpoint.*`. Leaves out: the learning-rate schedule (`schedule`), data
(`autorecipe.engine.data.spec`), the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autorecipe.config.views import view_seq_length
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import UNKNOWN

MAX_INTERVAL = 2**31
"""Stands for `never` where upstream leaves an interval unset."""


@dataclass(frozen=True, kw_only=True)
class BatchRampUp:
    """Batch sizes grow from `start` by `increment` until `samples` samples are consumed."""

    start: int
    increment: int
    samples: int


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """Numbers that steer one run.

    Attributes:
        train_iters: optimizer steps of the whole run.
        train_samples: samples of the whole run where it is counted in samples, else None.
        global_batch_size: samples per step (after ramp-up).
        micro_batch_size: samples per forward pass and rank.
        seq_length: tokens per sample.
        ramp_up: batch ramp-up, or None.
        decrease_batch_size_if_needed: round a ramped batch down to what the ranks divide.
        iterations_to_skip: iterations whose data is drawn but not trained on.
        eval_interval: steps between evaluations, or None for none during training.
        eval_iters: global batches of one evaluation; 0 switches evaluation off.
        eval_global_batch_size: samples of one evaluation batch.
        eval_micro_batch_size: samples per forward pass in evaluation.
        start_eval_at_iter: first iteration that may be evaluated, or None.
        skip_train: evaluate only.
        log_interval: steps between log lines.
        log_throughput: put TFLOP/s per GPU into the log line.
        log_memory_interval: steps between memory lines after the first two, or None.
        log_params_norm: put the parameter norm into the log line.
        log_num_zeros_in_grad: put the count of zero gradients into the log line.
        save_dir: where checkpoints go, or None.
        load_dir: where a run resumes from: `checkpoint.load`, else `checkpoint.save`; None where neither is set.
        save_interval: steps between checkpoints, or None (only at the end).
        keep_recent: checkpoints to retain, or -1 for all.
        async_save: write checkpoints beside training.
        save_optim: whether checkpoints hold the optimizer's state.
        save_rng: whether checkpoints hold the random generators' states.
        verify_integrity: take and check checksums of checkpoints of any size.
        load_optim: whether to resume the optimizer's state.
        load_rng: whether to resume the random generators' states.
        finetune: load weights only and start at iteration 0.
        exit_interval: stop after a multiple of this many steps, or None.
        exit_duration_minutes: stop after this many minutes, or None.
        check_for_nan: stop at the first loss that is not finite.
        check_for_nan_in_grad: stop at the first gradient norm that is not finite.
        manual_gc: collect garbage at fixed steps only, so that ranks do it together.
        manual_gc_interval: steps between manual collections; 0 for none.
        seed: `rng.seed`.
        tensorboard_dir: where TensorBoard files go, or None.
        wandb_project: Weights & Biases project, or None to leave it off.
        wandb_name: run name there.
        wandb_dir: local folder of Weights & Biases files, or None.
    """

    train_iters: int
    train_samples: int | None
    global_batch_size: int
    micro_batch_size: int
    seq_length: int
    ramp_up: BatchRampUp | None
    decrease_batch_size_if_needed: bool
    iterations_to_skip: frozenset[int]
    eval_interval: int | None
    eval_iters: int
    eval_global_batch_size: int
    eval_micro_batch_size: int
    start_eval_at_iter: int | None
    skip_train: bool
    log_interval: int
    log_throughput: bool
    log_memory_interval: int | None
    log_params_norm: bool
    log_num_zeros_in_grad: bool
    save_dir: Path | None
    load_dir: Path | None
    save_interval: int | None
    keep_recent: int
    async_save: bool
    save_optim: bool
    save_rng: bool
    verify_integrity: bool
    load_optim: bool
    load_rng: bool
    finetune: bool
    exit_interval: int | None
    exit_duration_minutes: float | None
    check_for_nan: bool
    check_for_nan_in_grad: bool
    manual_gc: bool
    manual_gc_interval: int
    seed: int
    tensorboard_dir: Path | None
    wandb_project: str | None
    wandb_name: str
    wandb_dir: Path | None

    @property
    def valid_samples(self) -> int:
        """Validation samples of the whole run.

        Formula: (train_iters // eval_interval + 1 - evaluations before start_eval_at_iter) x eval_iters x evaluation batch.
        Source: Megatron-LM megatron/training/training.py get_train_valid_test_num_samples @ core 0.19.2.
        Evidence: enforced-upstream.
        """
        interval = self.eval_interval or MAX_INTERVAL
        points = self.train_iters // interval + 1 - (self.start_eval_at_iter or 0) // interval
        return max(0, points) * self.eval_iters * self.eval_global_batch_size

    @property
    def test_samples(self) -> int:
        """Test samples of the whole run: eval_iters x evaluation batch."""
        return self.eval_iters * self.eval_global_batch_size


class _Reader:
    """Reads fields and collects every problem before it raises."""

    def __init__(self, run: RunConfig) -> None:
        self.run = run
        self.problems: list[Problem] = []

    def value(self, path: str, fallback: Any = None) -> Any:
        value = self.run.get(path, None)
        return fallback if value is None or value is UNKNOWN else value

    def flag(self, path: str, fallback: bool = False) -> bool:
        return bool(self.value(path, fallback))

    def integer(self, path: str, fallback: int | None = None, *, least: int = 1) -> int | None:
        value = self.value(path, fallback)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.problems.append(
                Problem(path=path, code="bad-value", message=f"{value!r} is not a whole number of at least {least}")
            )
            return least
        return value

    def required(self, path: str, *, least: int = 1) -> int:
        value = self.integer(path, least=least)
        if value is None:
            self.problems.append(
                Problem(path=path, code="missing-value", message="is not set", hint=f"add {path}=VALUE to the overrides")
            )
            return least
        return value

    def path(self, path: str) -> Path | None:
        value = self.value(path)
        return Path(str(value)) if value else None


def read_settings(run: RunConfig) -> LoopSettings:
    """Read and check the loop's settings.

    Args:
        run: a resolved configuration.

    Raises:
        UsageError: naming every missing or illegal field at once.
    """
    read = _Reader(run)
    global_batch = read.required("train.global_batch_size")
    micro_batch = read.required("train.micro_batch_size")
    samples = read.integer("train.train_samples")
    iters = samples // global_batch if samples is not None else read.required("train.train_iters")
    sequence = view_seq_length(run)
    if sequence is None:
        read.problems.append(
            Problem(path="dataset.seq_length", code="missing-value", message="is not set", hint="add dataset.seq_length=VALUE")
        )
    save, load = read.path("checkpoint.save"), read.path("checkpoint.load")
    keep = read.integer("checkpoint.most_recent_k", -1, least=-1)
    name = str(read.value("logger.wandb_exp_name", "") or run.recipe or "run")
    settings = LoopSettings(
        train_iters=iters,
        train_samples=samples,
        global_batch_size=global_batch,
        micro_batch_size=micro_batch,
        seq_length=sequence or 1,
        ramp_up=_ramp_up(read, global_batch),
        decrease_batch_size_if_needed=read.flag("train.decrease_batch_size_if_needed"),
        iterations_to_skip=frozenset(read.value("train.iterations_to_skip", ()) or ()),
        eval_interval=read.integer("validation.eval_interval"),
        eval_iters=read.integer("validation.eval_iters", 100, least=0) or 0,
        eval_global_batch_size=read.integer("validation.eval_global_batch_size", global_batch) or global_batch,
        eval_micro_batch_size=read.integer("validation.eval_micro_batch_size", micro_batch) or micro_batch,
        start_eval_at_iter=read.integer("validation.start_eval_at_iter", least=0),
        skip_train=read.flag("validation.skip_train"),
        log_interval=read.integer("logger.log_interval", 100) or 100,
        log_throughput=read.flag("logger.log_throughput"),
        log_memory_interval=read.integer("logger.log_memory_interval"),
        log_params_norm=read.flag("logger.log_params_norm"),
        log_num_zeros_in_grad=read.flag("optimizer.log_num_zeros_in_grad"),
        save_dir=save,
        load_dir=load or save,
        save_interval=read.integer("checkpoint.save_interval"),
        keep_recent=-1 if keep in (None, 0) else int(keep or -1),
        async_save=read.flag("checkpoint.async_save"),
        save_optim=read.flag("checkpoint.save_optim", True),
        save_rng=read.flag("checkpoint.save_rng", True),
        verify_integrity=read.flag("checkpoint.verify_integrity"),
        load_optim=read.flag("checkpoint.load_optim", True),
        load_rng=read.flag("checkpoint.load_rng", True),
        finetune=read.flag("checkpoint.finetune"),
        exit_interval=read.integer("train.exit_interval"),
        exit_duration_minutes=read.value("train.exit_duration_in_mins"),
        check_for_nan=read.flag("rerun_state_machine.check_for_nan_in_loss", True),
        check_for_nan_in_grad=read.flag("ddp.check_for_nan_in_grad"),
        manual_gc=read.flag("train.manual_gc"),
        manual_gc_interval=read.integer("train.manual_gc_interval", 0, least=0) or 0,
        seed=read.integer("rng.seed", 1234, least=0) or 0,
        tensorboard_dir=read.path("logger.tensorboard_dir"),
        wandb_project=read.value("logger.wandb_project"),
        wandb_name=name,
        wandb_dir=read.path("logger.wandb_save_dir"),
    )
    if read.problems:
        raise UsageError(read.problems)
    return settings


def _ramp_up(read: _Reader, global_batch_size: int) -> BatchRampUp | None:
    """Return the ramp-up of `train.rampup_batch_size=[start, increment, samples]`."""
    path = "train.rampup_batch_size"
    value = read.value(path)
    if value is None:
        return None
    numbers = [int(number) for number in value] if isinstance(value, Sequence) and not isinstance(value, str) else []
    if len(numbers) != 3 or min(numbers[:2]) < 1 or numbers[2] < 0:
        read.problems.append(
            Problem(
                path=path,
                code="bad-value",
                message=f"{value!r} is not [start, increment, samples]",
                hint=f"give three whole numbers, such as {path}=[16,8,100000]",
            )
        )
        return None
    start, increment, samples = numbers
    if start > global_batch_size or (global_batch_size - start) % increment:
        read.problems.append(
            Problem(
                path=path,
                code="bad-value",
                message=f"start {start} plus steps of {increment} does not reach train.global_batch_size={global_batch_size}",
                hint=f"choose an increment that divides {abs(global_batch_size - start)}",
            )
        )
    if start == global_batch_size or samples == 0:
        return None  # nothing to grow, which upstream's calculator divides by
    return BatchRampUp(start=start, increment=increment, samples=samples)
