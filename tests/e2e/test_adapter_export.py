"""A trained adapter computes the same merged, exported, loaded by peft, and merged at an import."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_models import make_model, make_tokens
from safetensors.torch import load_file, save_file
from tests.e2e.conftest import Trainer

pytest.importorskip("transformers")
pytest.importorskip("peft")
pytestmark = pytest.mark.xdist_group("ranks")

MODEL = "qwen2"  # biases, grouped queries, tied embeddings
KINDS = ("LoRA", "DoRA")
BOUND = 1e-4


@pytest.fixture(scope="module")
def made(train_ranks: Trainer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a model, and for each kind of adapter: its checkpoints, and everything that is made of them."""
    from autorecipe.engine.hf.families import read_hf_model

    folder = tmp_path_factory.mktemp("adapters")
    make_model(MODEL, folder / "hf")

    def call(function: str, request: Any) -> dict[str, Any]:
        answer = train_ranks.call(f"hf_server:{function}", request, folder / "log.txt")
        assert answer["code"] == 0, answer
        return answer

    call("run", ["import", "--hf", str(folder / "hf"), "--out", str(folder / "mcore")])
    few = {"train.train_iters": 3, "scheduler.lr_decay_iters": 3, "validation.eval_iters": 0, "tokenizer.vocab_size": 96}
    values = {**read_hf_model(folder / "hf").values, **few, "checkpoint.pretrained_checkpoint": str(folder / "mcore")}
    for kind in KINDS:
        own = folder / kind
        adapter = {"peft._class": kind, "peft.dim": 4, "peft.alpha": 10, "peft.lora_B_init_method": "normal"}
        layout = {"model.tensor_model_parallel_size": 2}
        outcome = train_ranks(own, ranks=2, values={**values, **adapter, **layout})
        assert outcome.codes == [0, 0], outcome.log
        trained, hf = str(own / "checkpoints"), str(folder / "hf")
        call("run", ["merge", "--checkpoint", trained, "--out", str(own / "merged")])
        call("run", ["export", "--checkpoint", trained, "--hf", hf, "--out", str(own / "peft")])
        call("run", ["export", "--checkpoint", trained, "--hf", hf, "--out", str(own / "hf"), "--merge"])
        call("run", ["import", "--hf", hf, "--peft", str(own / "peft"), "--out", str(own / "imported")])
        for name in ("checkpoints", "merged", "imported"):
            call("save_logits", {"checkpoint": str(own / name), "out": str(own / f"{name}.pt")})
    return folder


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    return ((found - expected).abs().max() / expected.abs().max()).item()


def logits_of(folder: Path, adapter: Path | None = None) -> torch.Tensor:
    import peft
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    if adapter is not None:
        model = peft.PeftModel.from_pretrained(model, adapter)
    with torch.no_grad():
        found: torch.Tensor = model.eval()(make_tokens()).logits
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_peft_computes_what_the_adapter_computes_here(made: Path, kind: str) -> None:
    expected = torch.load(made / kind / "checkpoints.pt")
    assert difference(logits_of(made / "hf", made / kind / "peft"), expected) < BOUND
    assert difference(logits_of(made / "hf"), expected) > 100 * BOUND


@pytest.mark.parametrize("kind", KINDS)
def test_merged_weights_compute_the_same_everywhere(made: Path, kind: str) -> None:
    expected = torch.load(made / kind / "checkpoints.pt")
    assert difference(torch.load(made / kind / "merged.pt"), expected) < BOUND
    assert difference(torch.load(made / kind / "imported.pt"), expected) < BOUND
    assert difference(logits_of(made / kind / "hf"), expected) < BOUND


def test_what_peft_saves_of_the_loaded_adapter_is_what_was_exported(made: Path, tmp_path: Path) -> None:
    import peft
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(made / "hf")
    peft.PeftModel.from_pretrained(model, made / "DoRA" / "peft").save_pretrained(tmp_path)
    ours, theirs = (load_file(folder / "adapter_model.safetensors") for folder in (made / "DoRA" / "peft", tmp_path))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    config = json.loads((made / "DoRA" / "peft" / "adapter_config.json").read_text())
    assert config["target_modules"] == ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]


def test_what_cannot_be_merged_is_refused_by_name(train_ranks: Trainer, made: Path, tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        answer = train_ranks.call("hf_server:run", [*words, "--out", str(tmp_path / "out")], tmp_path / "log.txt")
        assert answer["code"] in (1, 2, 3), answer
        text: str = answer["error"]
        return text

    assert "holds a whole model, and no adapter to merge" in refused("merge", "--checkpoint", str(made / "mcore"))
    adapter = tmp_path / "peft"
    adapter.mkdir()
    config = json.loads((made / "LoRA" / "peft" / "adapter_config.json").read_text())
    tensors = load_file(made / "LoRA" / "peft" / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(json.dumps({**config, "bias": "all", "modules_to_save": ["lm_head"]}))
    save_file(tensors, adapter / "adapter_model.safetensors")
    text = refused("import", "--hf", str(made / "hf"), "--peft", str(adapter))
    assert "bias='all'" in text and "modules_to_save=['lm_head']" in text
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"
    save_file({**tensors, name: torch.ones(3, 4), "base_model.model.x": torch.ones(1)}, adapter / "adapter_model.safetensors")
    text = refused("import", "--hf", str(made / "hf"), "--peft", str(adapter))
    assert "self_attn.q_proj: does not fit the model" in text and "base_model.model.x: is no part" in text
