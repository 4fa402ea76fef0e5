"""`--mode dora`: the recipe that upstream makes with that scheme, not the LoRA recipe under another name."""

import pytest

from autorecipe.api.config import load_side
from autorecipe.api.resolve import resolve_run
from autorecipe.errors import UsageError


def test_the_scheme_changes_what_it_changes_upstream():
    lora, dora = (resolve_run("gemma3_vl_12b_peft_config", mode=mode) for mode in ("lora", "dora"))
    assert (lora.get("peft._class"), lora.get("peft.alpha")) == ("LoRA", 32)
    assert (dora.get("peft._class"), dora.get("peft.alpha")) == ("DoRA", 64)
    assert not dora.known("peft.share_expert_adapters") and not dora.known("peft.lora_dtype")
    assert {path for path in lora.values if not path.startswith("peft.")} == {
        path for path in dora.values if not path.startswith("peft.")
    }


def test_what_is_typed_wins_over_the_scheme():
    assert resolve_run("gemma3_vl_12b_peft_config", ["peft.alpha=8"], mode="dora").get("peft.alpha") == 8


@pytest.mark.parametrize(
    ("recipe", "text"),
    [
        ("llama3_8b_pretrain_config", "BR-MODE-02"),
        ("llama3_70b_peft_8gpu_h100_bf16_config", "benchmark recipes have a fixed LoRA"),
        ("nemotron_omni_cord_v2_peft_config", "its adapter is fixed"),
    ],
)
def test_recipes_without_a_scheme_refuse_it(recipe, text):
    with pytest.raises(UsageError, match=text):
        resolve_run(recipe, mode="dora")


def test_a_recipe_of_ones_own_keeps_its_own_values(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from autorecipe.api.recipes import derive\n"
        'def mine_peft_config():\n    return derive("gemma3_vl_12b_peft_config", {"peft.alpha": 12})\n'
    )
    run = resolve_run(f"{path}:mine_peft_config", mode="dora")
    assert (run.get("peft._class"), run.get("peft.alpha")) == ("DoRA", 12)


@pytest.mark.parametrize("text", ["llama3_8b_peft_config --mode dora peft.dim=4", "llama3_8b_peft_config peft.dim=4 --mode=dora"])
def test_a_side_of_a_comparison_may_name_its_mode(text):
    run = load_side(text)
    assert (run.get("peft._class"), run.get("peft.dim")) == ("DoRA", 4)
    with pytest.raises(UsageError, match="did you mean 'dora'"):
        load_side("llama3_8b_peft_config --mode dra")
