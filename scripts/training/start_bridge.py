#!/usr/bin/env python3
"""Runs a recipe in an installed Megatron Bridge: `start_bridge.py RECIPE DATASET MODE KEY=VALUE...`.

`run_recipe.py --engine bridge` starts it where there is no checkout with upstream's own launcher. DATASET and MODE may be
empty. Everything it calls is Megatron Bridge's.
"""

from __future__ import annotations

import sys


def main(words: list[str]) -> int:
    """Build the recipe, apply dataset and overrides, train."""
    name, dataset, mode, *overrides = words
    import megatron.bridge.recipes as recipes
    from megatron.bridge.recipes.utils.dataset_utils import build_dataset_config
    from megatron.bridge.training.finetune import finetune
    from megatron.bridge.training.gpt_step import forward_step
    from megatron.bridge.training.pretrain import pretrain
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    config = getattr(recipes, name)()
    if dataset:
        config.dataset = build_dataset_config(config, dataset)
    config = process_config_with_overrides(config, cli_overrides=overrides or None)
    length = getattr(config.dataset, "seq_length", None)
    if length is not None:
        config.model.seq_length = length
    is_pretraining = mode == "pretrain" or (not mode and "pretrain" in name)
    (pretrain if is_pretraining else finetune)(config=config, forward_step_func=forward_step)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
