#!/usr/bin/env python3
"""Train a recipe: the entry point that Megatron Bridge users already type.

    python -m torch.distributed.run --nproc_per_node=2 scripts/training/run_recipe.py \
        --recipe vanilla_gpt_pretrain_config --dataset mock model.num_layers=2 ... KEY=VALUE

Works from a checkout without installing, as long as torch and megatron-core are there. Every rank resolves and checks the
same configuration; rank 0 speaks. Exit codes: 0 done, 1 the check failed or the loss is not finite, 2 usage, 3 environment,
128 + signal when stopped by one, 70 a bug.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this checkout, not one that is installed

from autorecipe.api.finetune import is_finetuning_preset
from autorecipe.api.train import (
    TrainPlan,
    TrainRequest,
    environment_defaults,
    prepare_training,
    require_memory,
)
from autorecipe.api.upstream import find_program
from autorecipe.api.upstream_run import run_program
from autorecipe.cli.programs.training import parse_request
from autorecipe.errors import AutorecipeError, EnvironmentProblem
from autorecipe.record import replace
from autorecipe.schema.finding import Severity

SILENCE_SECONDS = 30
"""How long other ranks leave the word to rank 0."""


def describe(plan: TrainPlan, request: TrainRequest) -> None:
    """Print what would run, for `--dry-run`: data on standard output."""
    run = plan.run
    for path in sorted(run.values):
        print(f"{path}: {run.values[path]!r}")
    print(f"\nrecipe {run.recipe} of release {run.release}, {request.world_size} processes, engine {request.engine}")
    for stage in plan.stages:
        print(
            f"pipeline stage {stage.stage}: {stage.parameters:,} parameters per rank, {stage.layers} layers, "
            f"about {stage.peak_bytes / 1024**3:.2f} GiB at peak (derived)"
        )
    print(
        f"machine: {plan.machine.render()}; needs {plan.needed_bytes / 1024**3:.2f} of {plan.available_bytes / 1024**3:.2f} GiB"
    )
    print(f"would train {run.get('train.train_iters', None)} iterations and save to {run.get('checkpoint.save', None)}")


def run(arguments: Sequence[str]) -> int:
    """Resolve, check and train; returns the exit code."""
    rank = int(os.environ.get("RANK", "0"))
    request, given = parse_request(arguments)
    # A dry run says what would run even where this machine is too small for it, and that it is, after that.
    plan = prepare_training(replace(request, check_memory=False) if given.dry_run else request)
    if rank == 0:
        for note in given.notes:
            print(note, file=sys.stderr)
        if plan.mode.reason:
            print(f"mode {plan.mode.mode}: {plan.mode.reason}", file=sys.stderr)
        for finding in plan.findings:
            if finding.severity in (Severity.WARN, Severity.AUTO_FIX):
                hint = f"\nhint: {finding.hint}" if finding.hint else ""
                print(f"{finding.severity.value}[{finding.rule}]: {finding.message}{hint}", file=sys.stderr)
        if plan.shrunk:
            print(f"SMOKE RUN (--shrink): not {plan.run.recipe}, a toy of its structure: {' '.join(plan.shrunk)}", flush=True)
    if given.dry_run:
        if rank == 0:
            describe(plan, request)
        if request.check_memory:
            require_memory(plan, request)
        return 0
    if request.engine != "core":
        prefixes = () if is_finetuning_preset(given.dataset) else given.dataset_path
        program = find_program(request, dataset_paths=prefixes)
        if rank == 0:
            print(f"starting {sys.executable} {' '.join(program.words)}", flush=True)
            for note in program.notes:
                print(f"note: {note}", flush=True)
        return run_program(program, metrics=given.metrics if rank == request.world_size - 1 else None)
    for name, value in environment_defaults(plan.run).items():
        os.environ.setdefault(name, value)
    try:
        from autorecipe.engine.train import TrainOptions, train
    except ImportError as error:
        raise EnvironmentProblem(f"training needs more packages: {error}", hint="pip install 'autorecipe[train]'") from None
    options = TrainOptions(
        fresh=given.fresh,
        metrics_path=given.metrics,
        from_scratch=given.from_scratch or given.shrink,
        max_bad_rows=given.max_bad_rows,
    )
    return train(plan.run, options)


def fail(error: AutorecipeError) -> int:
    """Print an error once and return its exit code.

    All ranks meet the same error; the first to leave makes the launcher end the others, so the silent ones wait for rank 0.
    A rank that nobody ends met an error of its own, and says so.
    """
    rank = int(os.environ.get("RANK", "0"))
    if rank != 0:
        time.sleep(SILENCE_SECONDS)
    for problem in error.problems:
        text = problem.render()
        print(text if rank == 0 else f"[rank {rank}] {text}", file=sys.stderr, flush=True)
    return error.exit_code


def main() -> int:
    """Run the command line."""
    try:
        return run(sys.argv[1:])
    except AutorecipeError as error:
        return fail(error)
    except KeyboardInterrupt:
        return 130
    except Exception:
        print(f"[rank {os.environ.get('RANK', '0')}]\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        return 70


if __name__ == "__main__":
    sys.exit(main())
