"""Hugging Face weights in, the same logits; weights out, bit for bit; and every layout loads them alike."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_models import MODELS, make_model
from safetensors.torch import load_file, save_file
from tests.e2e.conftest import Outcome, Trainer, read_trace

from autorecipe.cli.main import execute

pytest.importorskip("transformers")
pytestmark = pytest.mark.xdist_group("ranks")

HALF = "llama3-bf16"


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return {name: value for path in folder.glob("*.safetensors") for name, value in load_file(path).items()}


@pytest.fixture(scope="module")
def converted(train_ranks: Trainer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, torch.Tensor]]:
    """Give a folder with every model imported and exported, and transformers' own logits by name."""
    folder = tmp_path_factory.mktemp("models")
    logits = {name: make_model(name, folder / name / "hf") for name in MODELS}
    make_model("llama3", folder / HALF / "hf", torch.bfloat16)
    for name in (*MODELS, HALF):
        answer = train_ranks.call("hf_server:there_and_back", str(folder / name), folder / "log.txt")
        assert answer["code"] == 0, answer
    return folder, logits


@pytest.mark.parametrize("name", list(MODELS))
def test_an_imported_model_computes_what_transformers_does(converted: tuple[Path, dict[str, torch.Tensor]], name: str) -> None:
    folder, logits = converted
    found, expected = torch.load(folder / name / "logits.pt"), logits[name]
    assert ((found - expected).abs().max() / expected.abs().max()).item() < 1e-4


@pytest.mark.parametrize("name", [*MODELS, HALF])
def test_weights_come_back_bit_for_bit(converted: tuple[Path, dict[str, torch.Tensor]], name: str) -> None:
    folder = converted[0] / name
    before, after = tensors_of(folder / "hf"), tensors_of(folder / "back")
    assert before.keys() == after.keys()
    assert all(before[key].dtype == after[key].dtype and torch.equal(before[key], after[key]) for key in before)
    assert json.loads((folder / "back" / "config.json").read_text()) == json.loads((folder / "hf" / "config.json").read_text())


def test_an_export_is_a_model_that_transformers_loads(converted: tuple[Path, dict[str, torch.Tensor]]) -> None:
    import transformers
    from hf_models import make_tokens

    folder, logits = converted
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "llama2" / "back", attn_implementation="eager")
    with torch.no_grad():
        assert torch.equal(model(make_tokens()).logits, logits["llama2"])


LAYOUT = {
    "model.tensor_model_parallel_size": 2,
    "model.sequence_parallel": True,
    "model.pipeline_model_parallel_size": 2,
}
WHOLE_EXPERTS = ("gpt-oss",)
"""Their experts have biases, which expert tensor parallelism would add up."""
OFTEN = ("llama2", "deepseek-v3", "gemma3", "olmoe")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in MODELS])
def test_the_layouts_start_from_the_same_weights(
    train_ranks: Callable[..., Outcome], converted: tuple[Path, dict[str, torch.Tensor]], tmp_path: Path, name: str
) -> None:
    from autorecipe.engine.hf.model import read_hf_model

    folder = converted[0] / name
    few = {"train.train_iters": 2, "scheduler.lr_decay_iters": 3, "validation.eval_iters": 0}
    start = {"tokenizer.vocab_size": 96, "checkpoint.pretrained_checkpoint": str(folder / "mcore")}
    values: dict[str, Any] = {**read_hf_model(folder / "hf").values, **few, **start}
    layout = {**LAYOUT, "model.expert_tensor_parallel_size": 1} if name in WHOLE_EXPERTS else LAYOUT
    for place, ranks, own in (("one", 1, {}), ("four", 4, layout)):
        outcome = train_ranks(tmp_path / place, ranks=ranks, values={**values, **own})
        assert outcome.codes == [0] * ranks, outcome.log
        assert "weights from" in outcome.log
    one, four = ([row["lm loss"] for row in read_trace(tmp_path / place) if "lm loss" in row] for place in ("one", "four"))
    assert len(one) == 2
    assert all(abs(a - b) < 1e-5 for a, b in zip(one, four, strict=True))


@pytest.mark.slow
def test_the_commands_import_and_export(
    converted: tuple[Path, dict[str, torch.Tensor]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, root, back = str(converted[0] / "qwen2" / "hf"), tmp_path / "mcore", tmp_path / "back"
    assert execute(["checkpoint", "import", "--hf", source, "--out", str(root), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["family"] == "qwen2" and report["dtype"] == "float32"
    assert Path(report["checkpoint"]).is_dir()
    assert execute(["checkpoint", "export", "--checkpoint", str(root), "--hf", source, "--out", str(back)]) == 0
    assert tensors_of(back).keys() == tensors_of(Path(source)).keys()


def test_what_cannot_be_imported_is_refused_by_name(
    converted: tuple[Path, dict[str, torch.Tensor]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(converted[0] / "llama2" / "hf", tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    yarn = {**config, "mlp_bias": True, "rope_parameters": {"rope_type": "yarn", "factor": 4.0}}
    (tmp_path / "hf" / "config.json").write_text(json.dumps(yarn))
    assert execute(["checkpoint", "import", "--hf", str(tmp_path / "hf"), "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().err
    assert "yarn without factor and original_max_position_embeddings" in printed and "mlp_bias=True" in printed


def test_rounded_weights_are_said(train_ranks: Trainer, converted: tuple[Path, dict[str, torch.Tensor]], tmp_path: Path) -> None:
    shutil.copytree(converted[0] / "llama2" / "hf", tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    (tmp_path / "hf" / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
    words = ["import", "--hf", str(tmp_path / "hf"), "--out", str(tmp_path / "mcore")]
    [note] = train_ranks.call("hf_server:run", words, tmp_path / "log.txt")["result"]["notes"]
    assert "parameters are stored with more digits than config.json's bfloat16 has" in note


def test_a_larger_vocabulary_is_filled_with_zeros_and_left_out_again(
    train_ranks: Trainer, converted: tuple[Path, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    source, root, log = converted[0] / "llama2" / "hf", tmp_path / "mcore", tmp_path / "log.txt"
    words = ["import", "--hf", str(source), "--out", str(root), "--vocab-size"]
    assert "95 is smaller" in train_ranks.call("hf_server:run", [*words, "95"], log)["error"]
    [note] = train_ranks.call("hf_server:run", [*words, "98"], log)["result"]["notes"]
    assert note.startswith("2 tokens that the folder lacks have rows of zeros")
    request = {"checkpoint": str(root), "out": str(tmp_path / "logits.pt")}
    assert train_ranks.call("hf_server:save_logits", request, log)["code"] == 0
    found, expected = torch.load(tmp_path / "logits.pt"), converted[1]["llama2"]
    assert found.shape[-1] == 98 and not found[..., 96:].any()
    assert ((found[..., :96] - expected).abs().max() / expected.abs().max()).item() < 1e-4
    back = ["export", "--checkpoint", str(root), "--hf", str(source), "--out", str(tmp_path / "back")]
    assert "model.vocab_size: is 96 here and 98 in the checkpoint" in train_ranks.call("hf_server:run", back, log)["error"]
    report = train_ranks.call("hf_server:run", [*back, "--vocab-size", "98"], log)["result"]
    assert report["notes"] == ["the rows of 2 tokens that config.json lacks were left out"]
    before, after = tensors_of(source), tensors_of(tmp_path / "back")
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert report["parameters"] == sum(tensor.numel() for tensor in before.values())


def test_further_predicted_tokens_and_8_bit_weights_are_said(
    train_ranks: Trainer, converted: tuple[Path, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    """A DeepSeek-V3 as it is published: one more layer, and blocks of 8-bit numbers with their factors."""
    source, folder = converted[0] / "deepseek-v3" / "hf", tmp_path / "hf"
    folder.mkdir()
    config = json.loads((source / "config.json").read_text())
    config |= {"num_nextn_predict_layers": 1, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = tensors_of(source)
    name = "model.layers.0.self_attn.o_proj.weight"
    eighth, factor = (tensors[name] / 0.5).to(torch.float8_e4m3fn), torch.full((1, 1), 0.5)
    further = {"model.layers.4.eh_proj.weight": torch.ones(2, 2)}
    save_file({**tensors, name: eighth, f"{name}_scale_inv": factor, **further}, folder / "model.safetensors")
    words = ["import", "--hf", str(folder), "--out", str(tmp_path / "mcore")]
    report = train_ranks.call("hf_server:run", words, tmp_path / "log.txt")["result"]
    assert report["left_out"] == list(further)
    assert any("were left out" in note for note in report["notes"]) and any("fewer bits" in note for note in report["notes"])
    words = ["export", "--checkpoint", str(tmp_path / "mcore"), "--hf", str(folder), "--out", str(tmp_path / "back")]
    assert train_ranks.call("hf_server:run", words, tmp_path / "log.txt")["code"] == 0
    back = tensors_of(tmp_path / "back")
    assert torch.equal(back[name], eighth.float() * 0.5) and back.keys() == tensors.keys()
    assert "quantization_config" not in json.loads((tmp_path / "back" / "config.json").read_text())


def test_4_bit_experts_are_expanded(
    train_ranks: Trainer, converted: tuple[Path, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    """A GPT-OSS as it is published: stacked experts in blocks of 4-bit numbers with their exponents."""
    from autorecipe.engine.hf.quantized import expand_four_bits

    source, folder = converted[0] / "gpt-oss" / "hf", tmp_path / "hf"
    folder.mkdir()
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "mxfp4"}}))
    tensors = tensors_of(source)
    name = "model.layers.1.mlp.experts.gate_up_proj"
    experts, inputs, outputs = tensors.pop(name).shape
    blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
    exponents = torch.randint(120, 130, blocks.shape[:3], dtype=torch.uint8)
    save_file({**tensors, f"{name}_blocks": blocks, f"{name}_scales": exponents}, folder / "model.safetensors")
    words = ["import", "--hf", str(folder), "--out", str(tmp_path / "mcore")]
    assert train_ranks.call("hf_server:run", words, tmp_path / "log.txt")["code"] == 0
    words = ["export", "--checkpoint", str(tmp_path / "mcore"), "--hf", str(folder), "--out", str(tmp_path / "back")]
    assert train_ranks.call("hf_server:run", words, tmp_path / "log.txt")["code"] == 0
    back = tensors_of(tmp_path / "back")
    assert torch.equal(back[name], expand_four_bits(blocks, exponents)) and back.keys() == {*tensors, name}


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        ("missing file", "model-00002-of"),
        ("missing tensor", "model.norm.weight: is missing from the safetensors files"),
        ("strange tensor", "model.extra.weight: has no place in the model"),
        ("other shape", "model.norm.weight: has shape [31], and config.json says [32]"),
    ],
)
def test_tensors_that_do_not_fit_are_named_before_anything_is_written(
    train_ranks: Trainer, converted: tuple[Path, dict[str, torch.Tensor]], tmp_path: Path, damage: str, expected: str
) -> None:
    source, folder = converted[0] / "llama2" / "hf", tmp_path / "hf"
    folder.mkdir()
    shutil.copy(source / "config.json", folder)
    tensors = tensors_of(source)
    if damage == "missing file":
        shutil.copytree(source, folder, dirs_exist_ok=True)
        next(folder.glob("model-00002-of*")).unlink()
    elif damage == "missing tensor":
        del tensors["model.norm.weight"]
    elif damage == "strange tensor":
        tensors["model.extra.weight"] = torch.ones(1)
    else:
        tensors["model.norm.weight"] = torch.ones(31)
    if damage != "missing file":
        save_file(tensors, folder / "model.safetensors")
    words = ["import", "--hf", str(folder), "--out", str(tmp_path / "out")]
    answer = train_ranks.call("hf_server:run", words, tmp_path / "log.txt")
    assert answer["code"] in (1, 3) and expected in answer["error"], answer
    assert not (tmp_path / "out").exists()
