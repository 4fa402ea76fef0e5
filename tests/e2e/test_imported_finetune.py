"""From a Hugging Face folder to an answer, as users go: import, a recipe of the library as it is, `generate --chat`."""

import json
import re
from pathlib import Path

import pytest
import torch
from tests.e2e.conftest import ROOT, Trainer

pytest.importorskip("transformers")
pytestmark = pytest.mark.xdist_group("ranks")

RECIPE = "llama32_1b_sft_config"
SIZES = {"vocab_size": 400, "hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": 131072}
POSITIONS = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""Llama 3.2's own, which the recipe must agree with: only sizes are overridden. Source: its config.json."""
SHAPE = (
    "model.num_layers=2",
    "model.hidden_size=64",
    "model.ffn_hidden_size=128",
    "model.num_attention_heads=4",
    "model.num_query_groups=2",
    "model.kv_channels=16",
    "model.vocab_size=400",
)
SHORT = (
    "model.seq_length=64",
    "dataset.seq_length=64",
    "train.train_iters=25",
    "train.global_batch_size=4",
    "scheduler.lr_decay_iters=25",
    "scheduler.lr_warmup_iters=2",
    "validation.eval_iters=0",
    "optimizer.lr=1e-2",
    "logger.log_interval=1",
)
LOSS = re.compile(r"iteration +\d+/ +\d+ \|.* lm loss: (\S+) \|")
CHATS = ROOT / "examples" / "finetune" / "chats.jsonl"


def test_a_library_recipe_fine_tunes_imported_weights_and_the_result_answers(train_ranks: Trainer, tmp_path: Path) -> None:
    from hf_models import make_model
    from tests.unit.engine.finetune.chat_tokenizer import TEMPLATES, save_tokenizer

    source, imported, saved = tmp_path / "hf", tmp_path / "imported", tmp_path / "tuned"
    make_model("llama3", source, torch.bfloat16, rope_parameters=POSITIONS, **SIZES)
    save_tokenizer(source, TEMPLATES["llama3"])
    words = ["import", "--hf", str(source), "--out", str(imported)]
    answer = train_ranks.call("hf_server:run", words, tmp_path / "import.txt")
    assert answer["code"] == 0, answer

    program = [str(ROOT / "scripts" / "training" / "run_recipe.py"), "--recipe", RECIPE]
    data = ["--dataset", "local-jsonl", "--dataset-path", str(CHATS), f"tokenizer.tokenizer_model={source}"]
    places = [f"checkpoint.pretrained_checkpoint={imported}", f"checkpoint.save={saved}", f"checkpoint.load={saved}"]
    run = train_ranks.program([*program, *data, *places, *SHAPE, *SHORT], ranks=1, folder=tmp_path, log=tmp_path / "train.txt")
    assert run.codes == [0], run.log
    assert f"weights from {imported}" in run.log
    losses = [float(text) for text in LOSS.findall(run.log)]
    assert len(losses) == 25 and losses[-1] < 0.1 < 5 < losses[0]

    request = {"checkpoint": str(saved), "prompts": ["Peru?"], "limit": 8, "chat": True, "compare": True}
    told = train_ranks.call("autorecipe.engine.generation.__main__:generate", request, tmp_path / "told.txt")
    assert told["code"] == 0, told
    [row] = told["result"]["completions"]
    assert json.dumps({"role": "assistant", "content": "Lima"}) in CHATS.read_text()
    assert row["completion"]["text"] == "Lima" and row["completion"]["ended"]
    assert "Lima" not in row["before"]["text"]
