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

BOUND = 1e-4
TP2 = {"model.tensor_model_parallel_size": 2}
EP2 = {"model.expert_model_parallel_size": 2, "model.moe_grouped_gemm": True}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # a model with biases, grouped queries and tied embeddings, and one with experts
    "lora": ("qwen2", {"peft._class": "LoRA"}, TP2),
    "dora": ("qwen2", {"peft._class": "DoRA"}, TP2),
    "experts": ("qwen3-moe", {"peft._class": "LoRA", "peft.share_expert_adapters": False}, EP2),
    "together": ("qwen3-moe", {"peft._class": "LoRA", "peft.target_modules": ["linear_proj", "linear_fc1"]}, EP2),
    "dora-experts": ("qwen3-moe", {"peft._class": "DoRA"}, EP2),
}
SLOW = [pytest.param("together", marks=pytest.mark.slow)]


class Made:
    """A folder with models, and for each case its trained adapter and everything that is made of it."""

    def __init__(self, train: Trainer, folder: Path) -> None:
        self.train, self._folder = train, folder

    def call(self, function: str, request: Any) -> None:
        answer = self.train.call(f"hf_server:{function}", request, self._folder / "log.txt")
        assert answer["code"] == 0, answer

    def model(self, name: str) -> Path:
        """Give the folder of a model: `hf`, and imported `mcore`."""
        own = self._folder / name
        if not own.exists():
            make_model(name, own / "hf")
            self.call("run", ["import", "--hf", str(own / "hf"), "--out", str(own / "mcore")])
        return own

    def __call__(self, case: str) -> Path:
        """Give the folder of a case."""
        from autorecipe.engine.hf.model import read_hf_model

        own = self._folder / case
        if own.exists():
            return own
        name, adapter, layout = CASES[case]
        model = self.model(name)
        few = {"train.train_iters": 3, "scheduler.lr_decay_iters": 3, "validation.eval_iters": 0, "tokenizer.vocab_size": 96}
        start = {"checkpoint.pretrained_checkpoint": str(model / "mcore")}
        fields = {"peft.dim": 4, "peft.alpha": 10, "peft.lora_B_init_method": "normal", **adapter}
        values = {**read_hf_model(model / "hf").values, **few, **start, **fields, **layout}
        outcome = self.train(own, ranks=2, values=values)
        assert outcome.codes == [0, 0], outcome.log
        trained, hf = str(own / "checkpoints"), str(model / "hf")
        self.call("run", ["merge", "--checkpoint", trained, "--out", str(own / "merged")])
        self.call("run", ["export", "--checkpoint", trained, "--hf", hf, "--out", str(own / "hf"), "--merge"])
        for made in ("checkpoints", "merged"):
            self.call("save_logits", {"checkpoint": str(own / made), "out": str(own / f"{made}.pt")})
        if case != "dora-experts":
            self.call("run", ["export", "--checkpoint", trained, "--hf", hf, "--out", str(own / "peft")])
        if name == "qwen2":
            self.call("run", ["import", "--hf", hf, "--peft", str(own / "peft"), "--out", str(own / "imported")])
            self.call("save_logits", {"checkpoint": str(own / "imported"), "out": str(own / "imported.pt")})
        return own


@pytest.fixture(scope="module")
def made(train_ranks: Trainer, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Give what makes models and adapters."""
    return Made(train_ranks, tmp_path_factory.mktemp("adapters"))


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


@pytest.mark.parametrize("case", ["lora", "dora", "experts", *SLOW])
def test_peft_computes_what_the_adapter_computes_here(made: Made, case: str) -> None:
    own, model = made(case), made.model(CASES[case][0])
    expected = torch.load(own / "checkpoints.pt")
    assert difference(logits_of(model / "hf", own / "peft"), expected) < BOUND
    assert difference(logits_of(model / "hf"), expected) > 100 * BOUND


@pytest.mark.parametrize("case", ["lora", "dora", "experts", *SLOW, pytest.param("dora-experts", marks=pytest.mark.slow)])
def test_merged_weights_compute_the_same_everywhere(made: Made, case: str) -> None:
    own = made(case)
    expected = torch.load(own / "checkpoints.pt")
    assert difference(torch.load(own / "merged.pt"), expected) < BOUND
    assert difference(logits_of(own / "hf"), expected) < BOUND
    if case == "dora-experts":
        words = ["export", "--checkpoint", str(own / "checkpoints"), "--hf", str(made.model("qwen3-moe") / "hf"), "--out", "x"]
        answer = made.train.call("hf_server:run", words, own / "log.txt")
        assert answer["code"] == 2 and "peft has no DoRA for the feed-forward layers" in answer["error"], answer
    if (own / "imported.pt").exists():
        assert difference(torch.load(own / "imported.pt"), expected) < BOUND


def test_what_peft_saves_of_the_loaded_adapter_is_what_was_exported(made: Made, tmp_path: Path) -> None:
    import peft
    import transformers

    adapter = made("dora") / "peft"
    model = transformers.AutoModelForCausalLM.from_pretrained(made.model("qwen2") / "hf")
    peft.PeftModel.from_pretrained(model, adapter).save_pretrained(tmp_path)
    ours, theirs = (load_file(folder / "adapter_model.safetensors") for folder in (adapter, tmp_path))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert config["target_modules"] == ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]


def test_what_cannot_be_merged_is_refused_by_name(train_ranks: Trainer, made: Made, tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        answer = train_ranks.call("hf_server:run", [*words, "--out", str(tmp_path / "out")], tmp_path / "log.txt")
        assert answer["code"] in (1, 2, 3), answer
        text: str = answer["error"]
        return text

    assert "holds a whole model, and no adapter to merge" in refused("merge", "--checkpoint", str(made.model("qwen2") / "mcore"))
    adapter = tmp_path / "peft"
    adapter.mkdir()
    config = json.loads((made("lora") / "peft" / "adapter_config.json").read_text())
    tensors = load_file(made("lora") / "peft" / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(json.dumps({**config, "bias": "all", "modules_to_save": ["lm_head"]}))
    save_file(tensors, adapter / "adapter_model.safetensors")
    text = refused("import", "--hf", str(made.model("qwen2") / "hf"), "--peft", str(adapter))
    assert "bias='all'" in text and "modules_to_save=['lm_head']" in text
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"
    save_file({**tensors, name: torch.ones(3, 4), "base_model.model.x": torch.ones(1)}, adapter / "adapter_model.safetensors")
    text = refused("import", "--hf", str(made.model("qwen2") / "hf"), "--peft", str(adapter))
    assert "self_attn.q_proj: does not fit the model" in text and "base_model.model.x: is no part" in text
