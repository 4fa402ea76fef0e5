from pathlib import Path

import pytest

from autorecipe.api.mode import choose_mode, infer_mode
from autorecipe.api.resolve import resolve_run
from autorecipe.catalog.own import evaluated_mode
from autorecipe.catalog.store import open_catalog, shipped_releases
from autorecipe.errors import UsageError

MINE = """
from autorecipe.api.recipes import derive

def plain():
    return derive("llama3_8b_pretrain_config")

def adapted():
    return derive("llama3_8b_peft_config")

def weight_decomposed():
    return derive("llama3_8b_peft_config", {"peft._class": "DoRA"})

def turned():
    return derive("llama3_8b_sft_config", {"peft": {"_target_": "megatron.bridge.peft.lora.LoRA", "dim": 8}})

def nameless():
    return derive("llama3_8b_sft_config", {"peft": {"dim": 8}})

def mistyped():
    return derive("llama3_8b_sft_config", {"peft": {"_target_": "megatron.bridge.peft.lora.LoRA", "dims": 8}})

def tuned():
    return derive("llama3_8b_sft_config")
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "x_sft_y.py"
    path.write_text(MINE)
    return str(path)


@pytest.mark.parametrize(
    ("function", "mode"),
    [("plain", "pretrain"), ("tuned", "sft"), ("adapted", "lora"), ("turned", "lora"), ("weight_decomposed", "dora")],
)
def test_what_a_function_evaluates_to_decides(mine: str, function: str, mode: str) -> None:
    target = f"{mine}:{function}"
    chosen = choose_mode(resolve_run(target), target, None)
    assert chosen.mode == mode
    assert target in chosen.reason
    assert infer_mode(target) is None


def test_a_section_that_is_replaced_is_an_object_with_its_defaults(mine: str) -> None:
    run = resolve_run(f"{mine}:turned")
    assert (run.get("peft._class"), run.get("peft.dim"), run.get("peft.alpha")) == ("LoRA", 8, 32)
    with pytest.raises(UsageError, match="names no class"):
        resolve_run(f"{mine}:nameless")
    with pytest.raises(UsageError, match=r"peft.dims.*did you mean 'peft.dim'"):
        resolve_run(f"{mine}:mistyped")


def test_a_typed_mode_that_a_function_is_not_for_is_refused(mine: str) -> None:
    target = f"{mine}:plain"
    with pytest.raises(UsageError, match="sft does not fit"):
        choose_mode(resolve_run(target), target, "sft")
    assert choose_mode(resolve_run(target), target, "pretrain").reason == ""


@pytest.mark.parametrize("release", shipped_releases())
def test_no_shipped_recipe_evaluates_to_another_mode_than_its_name_says(release: str) -> None:
    catalog = open_catalog(release)
    seen = set()
    for name in [summary.name for summary in catalog.summaries() if summary.status == "ok"][::7]:
        recipe = catalog.load(name)
        found = evaluated_mode(recipe.fields)
        assert found in (None, recipe.mode), name
        seen.add(found)
    assert len(seen - {None}) == 3
