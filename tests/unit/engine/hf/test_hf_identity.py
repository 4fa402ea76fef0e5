"""A checkpoint that was converted from published weights belongs to the library's recipes of that model."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autorecipe.api.resolve import resolve_run
from autorecipe.catalog.configs import gather_configs
from autorecipe.engine.checkpoint.identity import compare_identity, describe_identity
from autorecipe.engine.hf.model import read_hf_model


@functools.cache
def published() -> Mapping[str, Mapping[str, Any]]:
    return gather_configs(use_cache=False).configs


def differences(folder: Path, recipe: str, *overrides: str, **changes: Any) -> list[str]:
    """Return what keeps a recipe from starting from the weights of its own model."""
    run = resolve_run(recipe, overrides)
    (folder / "config.json").write_text(json.dumps({**published()[run.get("model.hf_model_id")], **changes}))
    # A checkpoint keeps its identity as JSON.
    saved = json.loads(json.dumps(describe_identity(read_hf_model(folder).as_run())))
    found = compare_identity(saved, describe_identity(run, with_adapter=False))
    return [f"{problem.path} {problem.message}" for problem in found]


@pytest.mark.parametrize(
    "recipe",
    [
        "llama32_1b_sft_config",
        "llama3_8b_peft_config",
        "qwen25_7b_sft_config",
        "qwen3_8b_sft_config",
        "qwen3_30b_a3b_sft_config",
        "deepseek_v2_lite_pretrain_config",
        "moonlight_16b_pretrain_config",
        "gpt_oss_20b_sft_config",
        "gemma2_2b_sft_config",
        "gemma2_9b_peft_config",
    ],
)
def test_a_recipe_starts_from_the_weights_of_its_model(tmp_path: Path, recipe: str) -> None:
    assert differences(tmp_path, recipe) == []


def test_what_changes_the_function_still_counts(tmp_path: Path) -> None:
    assert differences(tmp_path, "llama32_1b_sft_config", "model.rope_scaling_factor=8.0") == [
        "model.rope_scaling_factor is 8.0 here and 32.0 in the checkpoint"
    ]
    caps = differences(tmp_path, "gemma2_2b_sft_config", "model.final_logit_softcapping=20.0")
    assert caps == ["model.final_logit_softcapping is 20.0 here and 30.0 in the checkpoint"]
    [windows] = differences(tmp_path, "gemma2_2b_sft_config", layer_types=["full_attention", "sliding_attention"] * 13)
    assert "model.window_attn_skip_freq is [1, 0, 1, 0" in windows
