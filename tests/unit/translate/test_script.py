"""scripts/translate_mlm_to_bridge.py keeps upstream's command line; the reference page is up to date."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autorecipe.api.translate import option_reference

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script() -> Callable[[list[str]], int]:
    path = ROOT / "scripts" / "translate_mlm_to_bridge.py"
    spec = importlib.util.spec_from_file_location("translate_mlm_to_bridge", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main  # type: ignore[no-any-return]


def test_options_to_overrides(script: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> None:
    assert script(["--args", "--num-layers 4 --swiglu --bf16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "model.num_layers=4" in lines
    assert "model.gated_linear_unit=true" in lines


def test_every_form_and_an_output_file(
    script: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script(["--args", "--num-layers 4 --mock-data", "--emit", "command", "--nproc", "2"])
    command = capsys.readouterr().out
    assert "--nproc_per_node=2" in command
    assert "--recipe vanilla_gpt_pretrain_config --dataset mock" in command
    yaml = tmp_path / "model.yaml"
    yaml.write_text("MODEL_ARGS:\n  --num-layers: 4\n")
    target = tmp_path / "recipe.py"
    assert script(["--yaml", str(yaml), "--emit", "recipe", "--recipe-name", "mine", "--output", str(target)]) == 0
    assert "def mine_pretrain_config()" in target.read_text()


def test_the_reverse_direction(script: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert script(["--reverse", "--recipe", "llama32_1b_pretrain_config", "--args", "model.tensor_model_parallel_size=2"]) == 0
    assert "--tensor-model-parallel-size 2" in capsys.readouterr().out
    yaml = tmp_path / "fields.yaml"
    yaml.write_text("model:\n  num_layers: 3\n  hidden_size: 64\n  num_attention_heads: 4\n")
    assert script(["--reverse", "--yaml", str(yaml), "--emit", "command", "--nproc", "4"]) == 0
    command = capsys.readouterr().out
    assert command.startswith("torchrun --nproc_per_node=4 pretrain_gpt.py")
    assert "--num-layers" in command


def test_losses_and_wrong_usage_show_in_the_exit_status(
    script: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert script(["--args", "--enable-mhc-connections"]) == 1
    assert script(["--args", "--enable-mhc-connections", "--allow-unmapped"]) == 0
    assert script(["--yaml", "absent.yaml"]) == 2
    for wrong in ([], ["--reverse"], ["--args", "--bf16", "--recipe", "x"]):
        with pytest.raises(SystemExit) as caught:
            script(wrong)
        assert caught.value.code == 2


def test_the_reference_page_is_up_to_date() -> None:
    page = ROOT / "docs" / "reference" / "megatron-lm-options.md"
    assert page.read_text(encoding="utf-8") == option_reference(), "run scripts/dev/write_option_reference.py"
