"""Log lines in Megatron-LM's own wording, so that any of its log parsers reads our runs.

Purpose: pure rendering; nothing here knows torch or prints. Leaves out: upstream's trap of the second line, which
averages the first two iterations: each of our lines covers its own interval only.

Source: Megatron-LM megatron/training/training.py `training_log` and `evaluate_and_print_results` @ core 0.19.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class IterationRecord:
    """What one log line says.

    Attributes:
        iteration: steps done.
        train_iters: steps of the whole run.
        consumed_samples: samples consumed so far.
        elapsed_ms: mean milliseconds per iteration of the interval.
        learning_rate: after the step.
        global_batch_size: samples of this step.
        losses: name -> mean over the interval, in printing order; NaN is left out of the line, as upstream does.
        moe_losses: name -> value of the router's losses, printed after the others.
        loss_scale: 1.0 outside fp16.
        grad_norm: before clipping, or None.
        num_zeros: zero gradients, or None.
        params_norm: norm of all parameters, or None.
        skipped_iterations: in the interval.
        nan_iterations: in the interval.
        tflops_per_gpu: or None to leave it out of the line.
        skipped_samples: samples lost to rounding of a ramped batch.
        seq_length: mean tokens of a sequence in the interval, padding included; None where it is the model's.
    """

    iteration: int
    train_iters: int
    consumed_samples: int
    elapsed_ms: float
    learning_rate: float | None
    global_batch_size: int
    losses: Mapping[str, float]
    moe_losses: Mapping[str, float] = field(default_factory=dict)
    loss_scale: float = 1.0
    grad_norm: float | None = None
    num_zeros: int | None = None
    params_norm: float | None = None
    skipped_iterations: int = 0
    nan_iterations: int = 0
    tflops_per_gpu: float | None = None
    skipped_samples: int = 0
    seq_length: float | None = None


def render_iteration(record: IterationRecord, *, now: datetime) -> str:
    """Return the log line of one interval, with upstream's leading space."""
    parts = [
        f" [{now.strftime('%Y-%m-%d %H:%M:%S.%f')}] iteration {record.iteration:8d}/{record.train_iters:8d} |",
        f" consumed samples: {record.consumed_samples:12d} |",
    ]
    if record.skipped_samples > 0:
        parts.append(f" skipped samples: {record.skipped_samples:12d} |")
    parts.append(f" elapsed time per iteration (ms): {record.elapsed_ms:.1f} |")
    if record.tflops_per_gpu is not None:
        parts.append(f" throughput per GPU (TFLOP/s/GPU): {record.tflops_per_gpu:.1f} |")
    if record.learning_rate is not None:
        parts.append(f" learning rate: {record.learning_rate:.6E} |")
    parts.append(f" global batch size: {record.global_batch_size:5d} |")
    parts += [f" {name}: {value:.6E} |" for name, value in (*record.losses.items(), *record.moe_losses.items()) if value >= 0.0]
    parts.append(f" loss scale: {record.loss_scale:.1f} |")
    if record.grad_norm is not None:
        parts.append(f" grad norm: {record.grad_norm:.3f} |")
    if record.num_zeros is not None:
        parts.append(f" num zeros: {record.num_zeros} |")
    if record.params_norm is not None:
        parts.append(f" params norm: {record.params_norm:.3f} |")
    parts.append(f" number of skipped iterations: {record.skipped_iterations:3d} |")
    parts.append(f" number of nan iterations: {record.nan_iterations:3d} |")
    return "".join(parts)


def render_validation(losses: Mapping[str, float], *, iteration: int, dataset: str = "") -> str:
    """Return the three lines of one evaluation.

    Args:
        losses: name -> mean loss per token.
        iteration: steps done.
        dataset: `validation` or `test` for the evaluations after training, which upstream names; empty during training.
    """
    where = f"iteration {iteration}" + (f" on {dataset} set" if dataset else "")
    text = f" validation loss at {where} | "
    for name, value in losses.items():
        text += f"{name} value: {value:.6E} | {name} PPL: {math.exp(min(20, value)):.6E} | "
    rule = "-" * (len(text) + 1)
    return f"{rule}\n{text}\n{rule}"


def render_parameters(num_parameters: int, *, tensor_rank: int, pipeline_rank: int) -> str:
    """Return the parameter count line of one model-parallel rank."""
    where = f"({tensor_rank}, 0, {pipeline_rank})"
    return f" > number of parameters on (tensor, gtp_remat, pipeline) model parallel rank {where}: {num_parameters}"


def render_memory(figures_mib: Mapping[str, float], *, rank: int, iteration: int) -> str:
    """Return a memory line; figures in MiB, which upstream prints as MB."""
    figures = "".join(f" | {name}: {value:.2f}" for name, value in figures_mib.items())
    return f"[Rank {rank}] (after {iteration} iterations) memory (MB){figures}"
