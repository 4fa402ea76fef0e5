"""Recipes of the catalog take two steps as smoke runs, or are refused by name; docs/reference/engine-recipes.md says which."""

import math
from pathlib import Path

import pytest
from smoke_report import TITLES, read_page, recipes, smoke
from tests.e2e.conftest import Trainer

pytestmark = pytest.mark.xdist_group("ranks")

FAMILIES = {
    "llama3_8b_pretrain_2gpu_h100_bf16_config": "trains",
    "qwen3_30b_a3b_pretrain_8gpu_h100_bf16_config": "trains",
    "deepseek_v3_pretrain_1024gpu_h100_bf16_config@library": "trains",
    "gpt_oss_20b_pretrain_16gpu_h100_bf16_config": "trains",
    "gemma3_1b_pretrain_1gpu_h100_bf16_config": "trains",
    "olmoe_7b_pretrain_8gpu_h100_bf16_config": "trains",
    "gemma4_e4b_pretrain_2gpu_h100_bf16_config": "refused",
    "nemotron_3_5_lightning_pretrain_8k_config": "refused",
    "llama3_8b_pretrain_2gpu_h100_fp8cs_config": "as bf16",
    "gpt_oss_20b_sft_8gpu_h100_bf16_openmathinstruct2_thinking_packed_config": "trains",
    "qwen25_500m_sft_1gpu_h100_bf16_config": "trains",
    "moonlight_16b_peft_2gpu_h100_bf16_config": "trains",
    "llama32_1b_peft_1gpu_h100_bf16_config": "trains",
}
"""One recipe of each kind of structure: dense, experts, latent attention with prediction, softmax sinks, norms after layers with
two rotary bases, norms over all heads, two refused ones, 8 bits, chats with thoughts, packed and plain rows, adapters with and
without experts."""


def check(trainer: Trainer, name: str, folder: Path) -> str:
    """Return a recipe's verdict after having looked at what it says."""
    verdict, detail = smoke(trainer, name, folder)
    if verdict in ("trains", "as bf16"):
        losses = [float(text) for text in detail.split(", ")]
        assert len(losses) == 2 and all(math.isfinite(loss) for loss in losses)
    else:
        assert verdict == "refused", detail
        assert "hint: " in detail, detail
    return verdict


@pytest.mark.parametrize("name", FAMILIES)
def test_each_kind_of_structure_trains_or_is_refused(train_ranks: Trainer, name: str, tmp_path: Path) -> None:
    assert check(train_ranks, name, tmp_path) == FAMILIES[name] == read_page()[name]


def test_the_page_lists_every_recipe() -> None:
    assert list(read_page()) == [recipe.name for mode in TITLES for recipe in recipes(mode)]


@pytest.mark.slow
@pytest.mark.parametrize("name", [recipe.name for mode in TITLES for recipe in recipes(mode)])
def test_every_recipe_trains_or_is_refused_as_the_page_says(train_ranks: Trainer, name: str, tmp_path: Path) -> None:
    assert check(train_ranks, name, tmp_path) == read_page()[name]
