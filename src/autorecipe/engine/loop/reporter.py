"""Says what a run does: messages from rank 0, numbers from the last rank, as upstream does.

Purpose: one place that prints and feeds the metric sinks, so that the loop holds no formatting.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from autorecipe.engine.loop import lines
from autorecipe.engine.loop.flops import count_step_flops
from autorecipe.engine.loop.lines import IterationRecord
from autorecipe.engine.loop.metrics import JsonLinesSink, MetricSink, Sinks, TensorBoardSink, WandbSink
from autorecipe.engine.loop.progress import Progress
from autorecipe.engine.loop.settings import LoopSettings
from autorecipe.errors import EnvironmentProblem
from autorecipe.schema.model import ModelShape


class Reporter:
    """Prints and records one run."""

    def __init__(
        self,
        settings: LoopSettings,
        shape: ModelShape,
        *,
        rank: int,
        world_size: int,
        padded_vocab_size: int,
        metrics_path: Path | None,
        resumed_at: int,
        facts: Mapping[str, Any],
        config: Mapping[str, Any],
    ) -> None:
        """Open the sinks on the last rank.

        Args:
            settings: of the loop.
            shape: the model, for throughput.
            rank: of this process.
            world_size: processes.
            padded_vocab_size: rows of the output layer.
            metrics_path: JSON Lines file, or None.
            resumed_at: iteration that training continues from.
            facts: about the run, for the first line of the JSON Lines file.
            config: resolved configuration, for Weights & Biases.
        """
        self._settings = settings
        self._shape = shape
        self._vocab = padded_vocab_size
        self._rank = rank
        self._world_size = world_size
        self._is_last = rank == world_size - 1
        self.progress = Progress(settings.train_iters, enabled=self._is_last)
        sinks: list[MetricSink] = []
        try:
            if self._is_last and metrics_path is not None:
                sinks.append(JsonLinesSink(metrics_path, resumed_at=resumed_at, facts=facts))
            if self._is_last and settings.tensorboard_dir is not None:
                sinks.append(TensorBoardSink(settings.tensorboard_dir, resumed_at=resumed_at))
        except OSError as error:  # on a machine of its own, or gone since `check_outputs`
            message = f"{error.filename or metrics_path} cannot be written: {error.strerror}"
            raise EnvironmentProblem(message, hint="free space there, or use another folder") from None
        if self._is_last and settings.wandb_project:
            sinks.append(
                WandbSink(project=settings.wandb_project, name=settings.wandb_name, folder=settings.wandb_dir, config=config)
            )
        self._sinks = Sinks(sinks, say=partial(print, flush=True))

    def say(self, text: str) -> None:
        """Print a message once."""
        if self._rank == 0:
            print(text, flush=True)

    def report_parameters(self, count: int, *, tensor_rank: int, pipeline_rank: int, speaks: bool) -> None:
        """Print this model-parallel rank's parameter count where it speaks for its replicas."""
        if speaks:
            print(lines.render_parameters(count, tensor_rank=tensor_rank, pipeline_rank=pipeline_rank), flush=True)

    def report_first_step(self) -> None:
        """Print how long the process took from its start to the end of its first step."""
        seconds = time.time() - psutil.Process().create_time()
        self.say(f"first step done {seconds:.1f} s after the start of the process")

    def report_iteration(self, record: IterationRecord) -> None:
        """Print one interval's line and record its numbers."""
        seconds = record.elapsed_ms / 1000.0
        sequence = self._shape.seq_length if record.seq_length is None else round(record.seq_length)
        shape = dataclasses.replace(self._shape, seq_length=sequence)
        flops = count_step_flops(shape, samples=record.global_batch_size, padded_vocab_size=self._vocab)
        tflops = flops / (seconds * 1e12 * self._world_size) if seconds > 0 else math.nan
        tokens_per_s = record.global_batch_size * sequence / seconds if seconds > 0 else math.nan
        if self._settings.log_throughput:
            record = dataclasses.replace(record, tflops_per_gpu=tflops)
        self.progress.advance(record.iteration, loss=next(iter(record.losses.values()), None), tokens_per_s=tokens_per_s)
        if not self._is_last:
            return
        print(lines.render_iteration(record, now=datetime.now()), flush=True)
        values = {
            **record.losses,
            **record.moe_losses,
            "learning-rate": record.learning_rate,
            "batch-size": record.global_batch_size,
            "loss-scale": record.loss_scale,
            "grad-norm": record.grad_norm,
            "num-zeros": record.num_zeros,
            "params-norm": record.params_norm,
            "iteration-time": seconds,
            "throughput": tflops,
            "tokens-per-second": tokens_per_s,
            "skipped-iterations": record.skipped_iterations,
            "nan-iterations": record.nan_iterations,
        }
        known = {name: float(value) for name, value in values.items() if value is not None}
        self._sinks.write(record.iteration, known, consumed_samples=record.consumed_samples)

    def report_validation(self, losses: Mapping[str, float], *, iteration: int, consumed_samples: int, dataset: str = "") -> None:
        """Print and record one evaluation."""
        if not self._is_last:
            return
        print(lines.render_validation(losses, iteration=iteration, dataset=dataset), flush=True)
        suffix = dataset or "validation"
        values: dict[str, float] = {}
        for name, value in losses.items():
            values[f"{name} {suffix}"] = value
            values[f"{name} {suffix} ppl"] = math.exp(min(20.0, value))
        if dataset != "validation":  # the evaluation after training repeats the last one on other samples: log only
            self._sinks.write(iteration, values, consumed_samples=consumed_samples)

    def report_memory(self, figures_mib: Mapping[str, float], *, iteration: int, speaks: bool) -> None:
        """Print a memory line on the first data-parallel ranks, and record the figures of the last rank."""
        if speaks:
            print(lines.render_memory(figures_mib, rank=self._rank, iteration=iteration), flush=True)

    def close(self) -> None:
        """Close the sinks."""
        self.progress.close()
        self._sinks.close()
