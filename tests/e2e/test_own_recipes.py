"""A recipe of one's own trains by its file and function, with nothing more said than for a shipped one."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEP = re.compile(r"iteration +(\d+)/ +\d+ \|.* lm loss: (\S+) \|")

pytestmark = pytest.mark.xdist_group("ranks")

MINE = """
from autorecipe.api.recipes import derive

TOY = {
    "model.num_layers": 2,
    "model.hidden_size": 64,
    "model.num_attention_heads": 4,
    "model.num_query_groups": 4,
    "model.kv_channels": 16,
    "model.ffn_hidden_size": 128,
    "model.seq_length": 64,
    "dataset.seq_length": 64,
    "train.train_iters": 2,
    "train.global_batch_size": 2,
    "train.micro_batch_size": 1,
    "scheduler.lr_warmup_iters": 1,
    "scheduler.lr_decay_iters": 2,
    "validation.eval_iters": 0,
    "logger.log_interval": 1,
}


def tiny():
    return derive("vanilla_gpt_pretrain_config", TOY)


def tuned():
    unpacked = {"dataset.offline_packing_specs": None, "dataset.enable_offline_packing": False, "model.vocab_size": 288}
    return derive("llama3_8b_sft_config", {**TOY, **unpacked, "model.tensor_model_parallel_size": 1})
"""


@pytest.mark.parametrize(
    ("function", "words", "reason"),
    [
        ("tiny", [], "mode pretrain: {} evaluates to dataset=GPTDatasetConfig and no adapter"),
        (
            "tuned",
            ["--dataset", "local-jsonl", "--dataset-path", "rows", "--from-scratch", "tokenizer.tokenizer_type=ByteTokenizer"],
            "mode sft: {} evaluates to dataset=GPTSFTDatasetConfig and no adapter",
        ),
    ],
)
def test_the_mode_of_ones_own_recipe_is_read_from_what_it_evaluates_to(
    tmp_path: Path, function: str, words: list[str], reason: str
) -> None:
    (tmp_path / "my_peft_recipes.py").write_text(MINE)  # a name that says another mode is no evidence
    (tmp_path / "rows").mkdir()
    for name in ("training", "validation"):
        rows = [{"input": f"say {number}:", "output": str(number)} for number in range(8)]
        (tmp_path / "rows" / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    target = f"my_peft_recipes.py:{function}"
    script = ROOT / "scripts" / "training" / "run_recipe.py"
    command = [sys.executable, str(script), "--recipe", target, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert reason.format(target) in done.stderr
    steps = STEP.findall(done.stdout)
    assert [number for number, _ in steps] == ["1", "2"], done.stdout
    assert all(0 < float(loss) < 15 for _, loss in steps)
