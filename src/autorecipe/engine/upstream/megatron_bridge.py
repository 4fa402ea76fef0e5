"""Training a recipe with Megatron Bridge where only its package is there: `megatron.bridge`, without
`scripts/training/run_recipe.py`.

Everything that decides a loss is upstream's: the recipe, the data sets, the overrides, the training functions.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any


def run_recipe(arguments: Sequence[str]) -> int:
    """Build a recipe, apply data set and overrides, train.

    Args:
        arguments: `--recipe`, `--dataset`, `--dataset-path` (repeatable), `--mode pretrain|sft|lora|dora`, overrides.

    Returns:
        exit status.
    """
    parser = argparse.ArgumentParser(prog="run_recipe.py", allow_abbrev=False)
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--dataset")
    parser.add_argument("--dataset-path", action="append", default=[])
    parser.add_argument("--mode", choices=["pretrain", "sft", "lora", "dora"])
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args(list(arguments))

    import megatron.bridge.recipes as recipes
    from megatron.bridge.recipes.utils import dataset_utils
    from megatron.bridge.training.finetune import finetune
    from megatron.bridge.training.gpt_step import forward_step
    from megatron.bridge.training.pretrain import pretrain
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    if not hasattr(recipes, options.recipe):
        parser.error(f"no recipe {options.recipe!r} in this Megatron Bridge; `autorecipe recipes list` names those of a release")
    config = getattr(recipes, options.recipe)()
    if options.dataset:
        config.dataset = dataset_utils.build_dataset_config(config, options.dataset)
    if options.dataset_path:
        fields = dataset_utils.get_blend_fields_from_data_paths(data_paths=options.dataset_path)
        config.dataset.blend, config.dataset.blend_per_split, config.dataset.split = fields
    config = process_config_with_overrides(config, cli_overrides=options.overrides or None)
    length = getattr(config.dataset, "seq_length", None)
    if length is not None:
        config.model.seq_length = length
    problem = choose_adapter(config, options.mode)
    if problem:
        parser.error(problem)
    is_pretraining = options.mode == "pretrain" or (options.mode is None and "pretrain" in options.recipe)
    (pretrain if is_pretraining else finetune)(config=config, forward_step_func=forward_step)
    return 0


def choose_adapter(config: Any, mode: str | None) -> str:
    """Make a recipe's adapter fit the mode; `dora` takes the fields of a LoRA recipe.

    Args:
        config: the recipe's configuration; its `peft` may be replaced.
        mode: pretrain, sft, lora, dora, or None for the recipe's own.

    Returns:
        why it cannot fit, or nothing.
    """
    adapter = getattr(config, "peft", None)
    if mode is None:
        return ""
    if (adapter is not None) != (mode in ("lora", "dora")):
        held = type(adapter).__name__ if adapter is not None else "no adapter"
        return f"--mode {mode} does not fit a recipe with {held}"
    if mode == "dora" and type(adapter).__name__ != "DoRA":
        from megatron.bridge.peft.dora import DoRA

        names = {field.name for field in dataclasses.fields(DoRA) if field.init}
        config.peft = DoRA(**{name: value for name, value in vars(adapter).items() if name in names})
    return ""
