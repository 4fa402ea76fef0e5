"""The command line of run_recipe.py: which recipe trains, on what, with which overrides.

The launchers read it too, so that what they check is what will run. Start reading at `parse_request`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from autorecipe.api.finetune import check_dataset_name, is_finetuning_preset, place_dataset
from autorecipe.api.mode import MODES, infer_mode
from autorecipe.api.recipes import find_recipe
from autorecipe.api.train import ENGINES, TrainRequest
from autorecipe.cli.programs.refused import Aside, Parser, aside
from autorecipe.config.convenience import CONVENIENCE_FLAGS
from autorecipe.config.grammar import render_value
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.value import FieldValue

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

TEXTS = (
    *("--dataset_cache", "--tokenizer_type", "--tokenizer_model"),
    *("--wandb_project", "--wandb_entity", "--wandb_name", "--wandb_dir"),
)
"""Those of them whose value is a text, to be quoted where the grammar would read it as something else."""

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


TP_PATH = "model.tensor_model_parallel_size"
INDEXED = ("dclm", "rp2", "c4")
"""Upstream's names of pretraining text that has to be indexed first."""

IDLE = (aside("--dump-env --dump_env", "the script that starts the job shows its variables", takes_value=False),)
REFUSED: tuple[Aside, ...] = (
    aside(
        "--hf-path --hf_path",
        "a tokenizer is tokenizer.tokenizer_model=PATH; weights: `autorecipe checkpoint import --hf PATH`",
    ),
    aside("--save-config --save_config", "--dry-run prints the configuration, `autorecipe config show` writes it as JSON"),
    aside("--peft_scheme", "write --mode lora or --mode dora"),
    aside("--packed_sequence", "packing is dataset.enable_offline_packing=true", takes_value=False),
    aside("--dataset_type", "name the data with --dataset"),
)


def _add_config_flags(parser: argparse.ArgumentParser) -> None:
    """Add every flag that stands for a configuration path, with dashes as well as underscores."""
    for flag in CONVENIENCE_FLAGS:
        names = [*flag.flags, *ALIASES.get(flag.dest, ())]
        names += [flag.name.replace("_", "-")] if "_" in flag.name else []
        parser.add_argument(*names, dest=flag.dest, metavar=flag.metavar, help=flag.help)
    for name, path in FURTHER_FLAGS.items():
        parser.add_argument(name, name.replace("_", "-"), dest=path, metavar="VALUE", help=f"sets {path}")


def make_parser() -> Parser:
    """Return the parser."""
    parser = Parser(prog="run_recipe.py", description="Train a recipe.", idle=IDLE, refused=REFUSED)
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
    parser.add_argument("--deterministic", action="store_true", help="the same bits in every run: sets what upstream sets for it")
    _add_config_flags(parser)
    parser.add_argument(
        "--engine", choices=ENGINES, default="core", help="core is this project's; the others start upstream's program"
    )
    parser.add_argument("--dry-run", "--dry_run", action="store_true", help="say what would run, and stop")
    parser.add_argument("--fresh", action="store_true", help="start over; earlier checkpoints are moved aside, not deleted")
    parser.add_argument("--shrink", action="store_true", help="smoke run: fewer layers, smaller hidden size, same structure")
    parser.add_argument("--no-memory-check", action="store_true", help="start even if the estimate says that memory is short")
    parser.add_argument("--metrics", type=Path, help="JSON Lines file of all numbers")
    parser.add_asides()
    return parser


def parse_request(arguments: Sequence[str], *, launcher: Parser | None = None) -> tuple[TrainRequest, argparse.Namespace]:
    """Turn the command line into a request; flags become overrides, typed overrides win over them.

    Args:
        arguments: as typed.
        launcher: parser of the launcher that took its own options out before; a mistyped one ends up here.

    Returns:
        the request, and what was parsed, with `notes` on options that do nothing here.

    Raises:
        UsageError: everything that is unknown, refused or missing.
    """
    parser = make_parser()
    given, rest = parser.parse_known_args(arguments)
    given.notes = parser.check_asides(given)
    unknown = parser.unknown([text for text in rest if text.startswith("-") or "=" not in text], besides=launcher)
    if unknown:
        raise UsageError(unknown)
    if (given.recipe is None) == (given.model is None):
        raise UsageError("give either --recipe or --model", hint="`autorecipe recipes list` names the recipes")
    if given.model is not None and given.mode is None:
        raise UsageError("--model needs --mode", hint="add --mode pretrain")
    task = "peft" if given.mode in ("lora", "dora") else given.mode
    recipe = given.recipe or f"{given.model}_{task}_config"
    flags = [*(deterministic_overrides(recipe) if given.deterministic else ()), *flag_overrides(vars(given))]
    for name, path in FURTHER_FLAGS.items():
        if (value := getattr(given, path)) is not None:
            flags.append(f"{path}={render_value(value) if name in TEXTS else value}")
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


def flag_overrides(given: Mapping[str, FieldValue]) -> list[str]:
    """Turn parsed convenience flags, texts as typed, into overrides.

    A tensor parallel size brings sequence parallelism with it, or switches it off at 1, and `none` unsets.
    Source: Megatron-Bridge scripts/training/recipe_runner.py, apply_launcher_overrides. Evidence: enforced-upstream.
    """
    texts = []
    for flag in CONVENIENCE_FLAGS:
        value = given.get(flag.dest)
        if value is None:
            continue
        text = "null" if str(value).lower() == "none" else render_value(value) if flag.type is str else str(value)
        texts += [f"{path}={text}" for path in flag.paths]
        if TP_PATH in flag.paths and text.isdigit():
            texts.append(f"model.sequence_parallel={str(int(text) > 1).lower()}")
    return texts


def deterministic_overrides(recipe: str) -> tuple[str, ...]:
    """Return what `--deterministic` sets.

    Source: Megatron-Bridge src/megatron/bridge/recipes/utils/determinism_utils.py (0.6.2). Evidence: enforced-upstream.
    """
    overlaps = find_recipe(recipe).fields.get("comm_overlap._class") is not None
    return (
        "model.deterministic_mode=true",
        "model.cross_entropy_loss_fusion=false",
        "++env_vars.CUBLAS_WORKSPACE_CONFIG=:4096:8",
        "++env_vars.NCCL_ALGO=Ring",
        "++env_vars.NVTE_ALLOW_NONDETERMINISTIC_ALGO=0",
        *(("comm_overlap.tp_comm_overlap=false",) if overlaps else ()),
    )


def _dataset_overrides(given: argparse.Namespace, recipe: str, typed: Sequence[str]) -> list[str]:
    takes_paths = given.dataset in ("megatron-indexed", *INDEXED) or is_finetuning_preset(given.dataset)
    if given.dataset_path and not takes_paths:
        raise UsageError(
            "--dataset-path needs --dataset megatron-indexed, or a fine-tuning preset such as local-jsonl or squad", hint="add it"
        )
    if given.engine == "bridge":  # its own --dataset-path takes indexed prefixes alone
        return list(place_dataset(given.dataset, given.dataset_path, typed=typed)) if is_finetuning_preset(given.dataset) else []
    if given.dataset in INDEXED:
        hint = "write --dataset megatron-indexed --dataset-path PREFIX, once for each PREFIX.bin and PREFIX.idx"
        message = f"{given.dataset} is text that has to be indexed first (`autorecipe data index`)"
        raise UsageError(Problem(code="refused-option", path="--dataset", message=message, hint=hint))
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
        return [f"dataset.data_path=[{','.join(_prefixes(given.dataset_path))}]"]
    return list(place_dataset(given.dataset, given.dataset_path, typed=typed))


def _prefixes(paths: Sequence[str]) -> list[str]:
    """Return the prefixes of indexed files: of a folder all that lie in it, of a file its own."""
    found: list[str] = []
    for text in paths:
        path = Path(text)
        inside = [str(item.with_suffix("")) for item in sorted(path.glob("*.bin"))] if path.is_dir() else []
        found += inside or [str(path.with_suffix("")) if path.suffix in (".bin", ".idx") else text]
    return found
