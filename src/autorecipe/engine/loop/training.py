"""The loop: step, log, evaluate, save, stop. Start reading at `TrainingLoop.run`."""

from __future__ import annotations

import gc
import math
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch

from autorecipe.engine import step
from autorecipe.engine.checkpoint.folder import Manifest
from autorecipe.engine.checkpoint.saver import CheckpointSaver
from autorecipe.engine.data.datasets import Streams
from autorecipe.engine.loop.batch import BatchPlan
from autorecipe.engine.loop.lines import IterationRecord
from autorecipe.engine.loop.memory import read_memory_mib
from autorecipe.engine.loop.meter import IntervalMeter
from autorecipe.engine.loop.reporter import Reporter
from autorecipe.engine.loop.router import SideLosses
from autorecipe.engine.loop.settings import LoopSettings
from autorecipe.engine.loop.signals import Stop, StopVote
from autorecipe.engine.parallel import ParallelContext
from autorecipe.errors import NegativeAnswer, Problem

MicroBatches: TypeAlias = Iterator[dict[str, torch.Tensor]]
"""Micro batches of one model chunk."""

EXIT_SAVE_FAILED = 3
"""The run ended and its last checkpoint could not be written."""


@dataclass(kw_only=True)
class TrainState:
    """How far a run is.

    Attributes:
        iteration: steps done.
        consumed_train_samples: training samples read.
        consumed_valid_samples: validation samples read.
        skipped_train_samples: samples lost to rounding of a ramped batch.
    """

    iteration: int = 0
    consumed_train_samples: int = 0
    consumed_valid_samples: int = 0
    skipped_train_samples: int = 0


@dataclass(kw_only=True)
class TrainingParts:
    """Everything that a loop drives.

    Attributes:
        context: process groups.
        chunks: model chunks.
        optimizer: Megatron-Core's.
        scheduler: Megatron-Core's.
        streams: data.
        batch: micro batches of each step.
        side_losses: router and prediction losses.
        saver: or None where nothing is saved.
        describe: makes a manifest of a state.
    """

    context: ParallelContext
    chunks: Sequence[Any]
    optimizer: Any
    scheduler: Any
    streams: Streams
    batch: BatchPlan
    side_losses: SideLosses
    saver: CheckpointSaver | None
    describe: Callable[[TrainState], Manifest]


class TrainingLoop:
    """Drives one run to its end, or to the step where it must stop."""

    def __init__(self, settings: LoopSettings, parts: TrainingParts, state: TrainState, reporter: Reporter) -> None:
        """Keep what the loop needs.

        Args:
            settings: numbers that steer the loop.
            parts: model, optimizer, data and the rest.
            state: where to start; advanced in place.
            reporter: prints and records.
        """
        self.settings = settings
        self.parts = parts
        self.state = state
        self.reporter = reporter
        self._meter = IntervalMeter()
        self._memory_lines_left = 2
        self._saved_at = state.iteration
        self._lengths: list[int] = []

    def run(self) -> int:
        """Train, evaluate at the end, and return the exit code: 0, 128 + signal, or 3 where the last save failed.

        Raises:
            NegativeAnswer: the loss is not finite.
        """
        settings, state = self.settings, self.state
        stop = Stop.NONE
        vote = StopVote(max_minutes=settings.exit_duration_minutes, check_for_nan=settings.check_for_nan)
        if settings.manual_gc:
            gc.disable()
            gc.collect()
        with vote:
            self._meter.reset()
            while not settings.skip_train and state.iteration < settings.train_iters and stop is Stop.NONE:
                stop = self._iterate(vote)
        if self.parts.saver is not None:
            if self._saved_at != state.iteration:
                self._save()
            self.parts.saver.close()
        if stop is Stop.NONE:
            self._evaluate_at_end()
        return self._exit_code(stop, vote.signal_number)

    def _iterate(self, vote: StopVote) -> Stop:
        """Do one step and what follows it; return whether to stop."""
        settings, state, parts = self.settings, self.state, self.parts
        if parts.saver is not None:
            parts.saver.finish(blocking=False)
        num_microbatches = parts.batch.update(state.consumed_train_samples)
        if state.iteration in settings.iterations_to_skip:
            self._skip(num_microbatches)
            return Stop.NONE
        assert parts.streams.train is not None
        feeds, seq_length = self._feeds(parts.streams.train, num_microbatches)
        result = step.train_step(
            parts.chunks,
            parts.optimizer,
            feeds,
            parts.context,
            num_microbatches=num_microbatches,
            micro_batch_size=settings.micro_batch_size,
            seq_length=seq_length,
            read_side_losses=partial(parts.side_losses.read, num_microbatches=num_microbatches, iteration=state.iteration + 1),
        )
        self._lengths.append(seq_length)
        samples = parts.batch.samples
        if result.updated:
            parts.scheduler.step(increment=samples)
        state.iteration += 1
        state.consumed_train_samples += samples
        state.skipped_train_samples += parts.batch.lost_samples
        stop, is_nan = vote.decide(result.losses)
        self._meter.add({**result.losses, **result.side_losses}, skipped=not result.updated, is_nan=is_nan)
        self._report(result, samples)
        if stop is Stop.BAD_LOSS:
            self._refuse_bad_loss(result.losses)
        if settings.check_for_nan_in_grad and result.grad_norm is not None and not math.isfinite(result.grad_norm):
            self._refuse("bad-gradient", f"the gradient norm = {result.grad_norm}", "ddp.check_for_nan_in_grad")
        if self._is_due(settings.eval_interval) and state.iteration >= (settings.start_eval_at_iter or 0):
            self._evaluate_during_training()
        if settings.manual_gc and self._is_due(settings.manual_gc_interval or None):
            gc.collect()
        if parts.saver is not None and self._is_due(settings.save_interval):
            self._save()
        if stop is Stop.NONE and self._is_due(settings.exit_interval):
            self.reporter.say(f"exiting program at iteration {state.iteration} (train.exit_interval)")
            return Stop.DURATION
        return stop

    def _is_due(self, interval: int | None) -> bool:
        return interval is not None and self.state.iteration % interval == 0

    def _feeds(self, stream: Iterator[dict[str, torch.Tensor]], num_microbatches: int) -> tuple[list[MicroBatches], int]:
        """Return one iterator per model chunk, and the step's sequence length; chunks of a virtual pipeline see the same data."""
        if len(self.parts.chunks) == 1 and not self.parts.streams.whole_steps:
            return [stream], self.settings.seq_length
        taken = [next(stream) for _ in range(num_microbatches)]
        return [iter(taken) for _ in self.parts.chunks], int(taken[0]["tokens"].shape[1])

    def _skip(self, num_microbatches: int) -> None:
        """Draw one step's data without training on it."""
        state = self.state
        assert self.parts.streams.train is not None
        for _ in range(num_microbatches):
            next(self.parts.streams.train)
        state.iteration += 1
        state.consumed_train_samples += self.parts.batch.samples
        self.reporter.say(f"iteration {state.iteration} skipped (train.iterations_to_skip)")

    def _report(self, result: step.StepResult, samples: int) -> None:
        settings, state = self.settings, self.state
        is_first = self._memory_lines_left == 2
        due = state.iteration % settings.log_interval == 0
        if due or is_first:
            means = self._meter.mean_losses()
            self.reporter.report_iteration(
                IterationRecord(
                    iteration=state.iteration,
                    train_iters=settings.train_iters,
                    consumed_samples=state.consumed_train_samples,
                    elapsed_ms=self._meter.elapsed_ms(),
                    learning_rate=_learning_rate(self.parts.optimizer),
                    global_batch_size=samples,
                    losses=means,
                    loss_scale=_loss_scale(self.parts.optimizer),
                    grad_norm=result.grad_norm,
                    num_zeros=result.zeros_in_grad if settings.log_num_zeros_in_grad else None,
                    params_norm=_params_norm(self.parts.chunks) if settings.log_params_norm else None,
                    skipped_iterations=self._meter.skipped,
                    nan_iterations=self._meter.nan,
                    skipped_samples=state.skipped_train_samples,
                    seq_length=sum(self._lengths) / len(self._lengths),
                )
            )
            if is_first:
                self.reporter.report_first_step()
            if due:
                self._meter.reset()
                self._lengths.clear()
        by_interval = self._is_due(settings.log_memory_interval)
        if self._memory_lines_left > 0 or by_interval:
            self._memory_lines_left = max(0, self._memory_lines_left - 1)
            first_replica = self.parts.context.data_parallel_rank == 0
            self.reporter.report_memory(read_memory_mib(), iteration=state.iteration, speaks=first_replica)

    def _refuse_bad_loss(self, losses: Mapping[str, torch.Tensor]) -> None:
        found = ", ".join(f"{name} = {value.item()}" for name, value in losses.items())
        self._refuse("bad-loss", found, "rerun_state_machine.check_for_nan_in_loss")

    def _refuse(self, code: str, found: str, switch: str) -> None:
        state = self.state
        raise NegativeAnswer(
            Problem(
                code=code,
                message=f"iteration {state.iteration} ({state.consumed_train_samples} samples): {found} is not finite; "
                "stopped without saving, so the last checkpoint is from before it",
                hint=f"run again to resume from the last checkpoint, with a smaller optimizer.lr, or skip the batch with "
                f"train.iterations_to_skip=[{state.iteration - 1}]; {switch}=false trains on",
            )
        )

    def _evaluate_during_training(self) -> None:
        if self.parts.streams.validation is None:
            return
        self._meter.pause()
        losses = self._evaluate(self.parts.streams.validation, is_test=False)
        state = self.state
        self.reporter.report_validation(losses, iteration=state.iteration, consumed_samples=state.consumed_train_samples)
        self.parts.side_losses.clear()
        self._meter.resume()

    def _evaluate_at_end(self) -> None:
        state = self.state
        for name, stream in (("validation", self.parts.streams.validation), ("test", self.parts.streams.test)):
            if stream is not None:
                losses = self._evaluate(stream, is_test=name == "test")
                self.reporter.report_validation(
                    losses, iteration=state.iteration, consumed_samples=state.consumed_train_samples, dataset=name
                )

    def _evaluate(self, stream: Iterator[dict[str, torch.Tensor]], *, is_test: bool) -> dict[str, float]:
        """Return the mean loss per token over `eval_iters` batches, by name."""
        settings, parts = self.settings, self.parts
        self._gather_parameters()
        totals: dict[str, torch.Tensor] = {}
        with step.evaluation_mode(parts.chunks):
            for _ in range(settings.eval_iters):
                feeds, seq_length = self._feeds(stream, parts.batch.eval_microbatches)
                sums = step.evaluate_step(
                    parts.chunks,
                    feeds,
                    parts.context,
                    num_microbatches=parts.batch.eval_microbatches,
                    micro_batch_size=settings.eval_micro_batch_size,
                    seq_length=seq_length,
                )
                for name, pair in sums.items():
                    totals[name] = totals[name] + pair if name in totals else pair.clone()
                if not is_test:
                    self.state.consumed_valid_samples += settings.eval_global_batch_size
        return {name: (pair[0] / pair[1].clamp(min=1)).item() for name, pair in totals.items()}

    def _save(self) -> None:
        assert self.parts.saver is not None
        self._meter.pause()
        self._gather_parameters()
        self.parts.saver.save(self.parts.chunks, self.parts.optimizer, self.parts.describe(self.state))
        self._saved_at = self.state.iteration
        self._meter.resume()

    def _gather_parameters(self) -> None:
        """Complete the parameters where their gathering is left to the next forward pass."""
        for chunk in self.parts.chunks:
            if chunk.ddp_config.overlap_param_gather:
                chunk.start_param_sync(force_sync=True)

    def _exit_code(self, stop: Stop, signal_number: int) -> int:
        state = self.state
        failed = self.parts.saver is not None and bool(self.parts.saver.outcome.failure)
        if stop is Stop.SIGNAL:
            name = signal.Signals(signal_number).name
            place = "NOT saved" if failed or self.parts.saver is None else "saved"
            self.reporter.say(
                f"stopped by {name} after iteration {state.iteration}, {place}; the same command resumes; "
                f"exit code {128 + signal_number}"
            )
            return 128 + signal_number
        return EXIT_SAVE_FAILED if failed else 0


def _learning_rate(optimizer: Any) -> float | None:
    from megatron.core.optimizer_param_scheduler import get_canonical_lr_for_logging

    rate = get_canonical_lr_for_logging(optimizer.param_groups)
    return None if rate is None else float(rate)


def _loss_scale(optimizer: Any) -> float:
    """Return the factor on the loss; asks the GPU only where there is one."""
    parts = getattr(optimizer, "chained_optimizers", None) or [optimizer]
    if all(getattr(part, "grad_scaler", None) is None for part in parts):
        return 1.0
    return float(optimizer.get_loss_scale().item())


def _params_norm(chunks: Sequence[Any]) -> float:
    """Return the L2 norm of all parameters, each counted once: expert weights over the expert mesh, others over the dense one."""
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.layers import param_is_not_tensor_parallel_duplicate
    from megatron.core.transformer.module import param_is_not_shared

    device = next(chunks[0].parameters()).device
    dense, expert = torch.zeros(1, dtype=torch.float64, device=device), torch.zeros(1, dtype=torch.float64, device=device)
    for chunk in chunks:
        for parameter in chunk.parameters():
            if param_is_not_shared(parameter) and param_is_not_tensor_parallel_duplicate(parameter):
                total = dense if getattr(parameter, "allreduce", True) else expert
                total += parameter.detach().double().pow(2).sum()
    torch.distributed.all_reduce(dense, group=parallel_state.get_model_parallel_group())
    torch.distributed.all_reduce(expert, group=parallel_state.get_expert_tensor_model_pipeline_parallel_group())
    return float((dense + expert).sqrt().item())
