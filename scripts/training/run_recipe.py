#!/usr/bin/env python3
"""Train a recipe: the entry point that Megatron Bridge users already type.

    python -m torch.distributed.run --nproc_per_node=2 scripts/training/run_recipe.py \
        --recipe vanilla_gpt_pretrain_config --dataset mock model.num_layers=2 ... KEY=VALUE

Works from a checkout without installing, as long as torch and megatron-core are there. Every rank resolves and checks the
same configuration; rank 0 speaks. Exit codes: 0 done, 1 the check failed or the loss is not finite, 2 usage, 3 environment,
128 + signal when stopped by one, 70 a bug.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this checkout, not one that is installed

from autorecipe.api.finetune import check_dataset_name, is_finetuning_preset, place_dataset
from autorecipe.api.mode import MODES, infer_mode
from autorecipe.api.train import (
    ENGINES,
    TrainPlan,
    TrainRequest,
    environment_defaults,
    prepare_training,
    require_memory,
)
from autorecipe.api.upstream import find_program
from autorecipe.api.upstream_run import run_program
from autorecipe.config.convenience import CONVENIENCE_FLAGS
from autorecipe.errors import AutorecipeError, EnvironmentProblem, UsageError
from autorecipe.record import replace
from autorecipe.schema.finding import Severity

SILENCE_SECONDS = 30
"""How long other ranks leave the word to rank 0."""

FURTHER_FLAGS: dict[str, str] = {
    "--eval_interval": "validation.eval_interval",
    "--eval_iters": "validation.eval_iters",
    "--distributed_timeout_minutes": "dist.distributed_timeout_minutes",
    "--lr_decay_iters": "scheduler.lr_decay_iters",
    "--log_interval": "logger.log_interval",
    "--dataset_cache": "dataset.path_to_cache",
    "--tokenizer_type": "tokenizer.tokenizer_type",
    "--tokenizer_model": "tokenizer.tokenizer_model",
    "--vocab_size": "tokenizer.vocab_size",
    "--most_recent_k": "checkpoint.most_recent_k",
    "--wandb_project": "logger.wandb_project",
    "--wandb_entity": "logger.wandb_entity",
    "--wandb_name": "logger.wandb_exp_name",
    "--wandb_dir": "logger.wandb_save_dir",
}
"""Flags of upstream's run_recipe.py beside the convenience flags, and the path that each one sets."""

ALIASES: dict[str, tuple[str, ...]] = {
    "tensor_model_parallel_size": ("--tp",),
    "pipeline_model_parallel_size": ("--pp",),
    "context_parallel_size": ("--cp",),
    "virtual_pipeline_model_parallel_size": ("--vp",),
    "expert_model_parallel_size": ("--ep",),
    "expert_tensor_parallel_size": ("--etp",),
    "pretrained_checkpoint": ("--from",),
}
"""Further spellings that upstream accepts."""


def _add_config_flags(parser: argparse.ArgumentParser) -> None:
    """Add every flag that stands for a configuration path, with dashes as well as underscores."""
    for flag in CONVENIENCE_FLAGS:
        names = [*flag.flags, *ALIASES.get(flag.dest, ())]
        names += [flag.name.replace("_", "-")] if "_" in flag.name else []
        parser.add_argument(*names, dest=flag.dest, metavar=flag.metavar, help=flag.help)
    for name, path in FURTHER_FLAGS.items():
        parser.add_argument(name, name.replace("_", "-"), dest=path, metavar="VALUE", help=f"sets {path}")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are raised, so that only rank 0 prints them."""

    def error(self, message: str) -> NoReturn:
        """Raise a usage error."""
        raise UsageError(message, hint="--help lists the options")


def parse_request(arguments: Sequence[str]) -> tuple[TrainRequest, argparse.Namespace]:
    """Turn the command line into a request; flags become overrides, typed overrides win over them."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--recipe", help="recipe name, alias, or FILE.py:FUNCTION")
    parser.add_argument("--model", help="model stem; with --mode it names <model>_<mode>_config")
    parser.add_argument(
        "--mode", choices=MODES, help="by default what the recipe's name says, or what FILE.py:FUNCTION evaluates to"
    )
    parser.add_argument(
        "--dataset",
        help="dataset preset: mock or megatron-indexed; for SFT and adapters squad, tulu3, openmathinstruct2, gsm8k, local-jsonl",
    )
    parser.add_argument(
        "--dataset-path",
        "--dataset_path",
        action="append",
        default=[],
        help="prefix of indexed data (repeatable), or the folder or file of fine-tuning rows",
    )
    parser.add_argument(
        "--max-bad-rows",
        type=int,
        default=0,
        metavar="N",
        help="fine-tuning rows that cannot be read and may be left out; they are listed  [default: 0]",
    )
    parser.add_argument(
        "--from-scratch", action="store_true", help="fine-tune random weights where there are no others, to try a run out"
    )
    parser.add_argument(
        "--step_func", "--step-func", default="llm_step", help="upstream's forward step; this engine has llm_step"
    )
    _add_config_flags(parser)
    parser.add_argument(
        "--engine", choices=ENGINES, default="core", help="core is this project's; the others start upstream's program"
    )
    parser.add_argument("--dry-run", "--dry_run", action="store_true", help="say what would run, and stop")
    parser.add_argument("--fresh", action="store_true", help="start over; earlier checkpoints are moved aside, not deleted")
    parser.add_argument("--shrink", action="store_true", help="smoke run: fewer layers, smaller hidden size, same structure")
    parser.add_argument("--no-memory-check", action="store_true", help="start even if the estimate says that memory is short")
    parser.add_argument("--metrics", type=Path, help="JSON Lines file of all numbers")
    given, rest = parser.parse_known_args(arguments)
    unknown = [text for text in rest if text.startswith("-") or "=" not in text]
    if unknown:
        raise UsageError(f"not an option or KEY=VALUE: {' '.join(unknown)}", hint="--help lists the options")
    if (given.recipe is None) == (given.model is None):
        raise UsageError("give either --recipe or --model", hint="`autorecipe recipes list` names the recipes")
    if given.model is not None and given.mode is None:
        raise UsageError("--model needs --mode", hint="add --mode pretrain")
    task = "peft" if given.mode in ("lora", "dora") else given.mode
    recipe = given.recipe or f"{given.model}_{task}_config"
    named = [(flag.dest, path) for flag in CONVENIENCE_FLAGS for path in flag.paths]
    named += [(path, path) for path in FURTHER_FLAGS.values()]
    flags = [f"{path}={value}" for dest, path in named if (value := getattr(given, dest)) is not None]
    if given.step_func not in ("llm_step", "gpt_step") and given.engine == "core":
        raise UsageError(f"--step_func {given.step_func} is not in --engine core", hint="add --engine bridge")
    request = TrainRequest(
        recipe=recipe,
        overrides=(*_dataset_overrides(given, recipe, [*flags, *rest]), *flags, *rest),
        mode=given.mode,
        dataset=given.dataset,
        engine=given.engine,
        shrink=given.shrink,
        check_memory=not given.no_memory_check,
        from_scratch=given.from_scratch,
        world_size=int(os.environ.get("WORLD_SIZE", "1")),
        local_world_size=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    )
    return request, given


def _dataset_overrides(given: argparse.Namespace, recipe: str, typed: Sequence[str]) -> list[str]:
    takes_paths = given.dataset == "megatron-indexed" or is_finetuning_preset(given.dataset)
    if given.dataset_path and not takes_paths:
        raise UsageError(
            "--dataset-path needs --dataset megatron-indexed, or a fine-tuning preset such as local-jsonl or squad", hint="add it"
        )
    if given.engine == "bridge":  # its own --dataset-path takes indexed prefixes alone
        return list(place_dataset(given.dataset, given.dataset_path, typed=typed)) if is_finetuning_preset(given.dataset) else []
    check_dataset_name(given.dataset)
    mode = given.mode or infer_mode(recipe)
    is_for_another_mode = mode is not None and (mode == "pretrain") == is_finetuning_preset(given.dataset)
    if given.dataset is None or is_for_another_mode:
        return []  # the check refuses a preset for another mode, and names the right one
    if given.dataset == "mock":
        return ["dataset.blend=null", "dataset.blend_per_split=null"]
    if given.dataset == "megatron-indexed":
        if not given.dataset_path:
            raise UsageError("--dataset megatron-indexed needs --dataset-path PREFIX", hint="`autorecipe data index` makes one")
        return [f"dataset.data_path=[{','.join(given.dataset_path)}]"]
    return list(place_dataset(given.dataset, given.dataset_path, typed=typed))


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
