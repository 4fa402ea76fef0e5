"""The vanilla GPT recipe on the CPU follows what Megatron Bridge's own program printed there for the same overrides.

Where this machine multiplies bfloat16 as the one did where Megatron-LM was recorded too, every digit is compared with that.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import tolerances  # noqa: E402

STEPS = 3
DOCUMENTED = shlex.split(
    "model.num_layers=2 model.hidden_size=256 model.num_attention_heads=4 model.ffn_hidden_size=1024 model.seq_length=512 "
    "dataset.seq_length=512 train.train_iters=10 train.global_batch_size=32 train.micro_batch_size=4 validation.eval_interval=10 "
    "validation.eval_iters=2 optimizer.lr=3e-4 optimizer.min_lr=3e-5 scheduler.lr_warmup_iters=1 scheduler.lr_decay_iters=10 "
    "rng.seed=1234 logger.log_interval=1 model.transformer_impl=local model.masked_softmax_fusion=false "
    "model.gradient_accumulation_fusion=false model.attention_dropout=0 model.hidden_dropout=0"
)
MATCHED = shlex.split(
    "scheduler.lr_decay_style=linear scheduler.lr_warmup_iters=0 optimizer.adam_beta2=0.999 scheduler.start_weight_decay=0.01 "
    "scheduler.end_weight_decay=0.01 optimizer.weight_decay=0.01"
)
RUNS = {"documented": DOCUMENTED, "matched": DOCUMENTED + MATCHED}
LINE = re.compile(r"iteration +(\d+)/.*learning rate: (\S+) .*lm loss: (\S+) .*grad norm: (\S+) ")


@pytest.mark.parametrize(
    ("name", "modules"),
    [("matched", "core-local"), ("documented", "core-local"), pytest.param("matched", "own", marks=pytest.mark.slow)],
)
def test_follows_bridge(name, modules, tmp_path):
    expected = LINE.findall((ROOT / f"tests/golden/parity/gpt_2l256h_bf16__bridge_{name}.log").read_text(encoding="utf-8"))
    actual = train([*RUNS[name], f"engine.modules={modules}"], tmp_path)
    assert len(actual) == STEPS
    bound = tolerances.GOLDEN_CPU
    for ours, theirs in zip(actual, expected, strict=False):
        assert ours[:2] == theirs[:2]  # iteration and learning rate as printed
        assert float(ours[2]) == pytest.approx(float(theirs[2]), rel=bound.loss)
        assert float(ours[3]) == pytest.approx(float(theirs[3]), rel=bound.grad_norm)
    if name == "matched" and modules == "core-local" and multiplies_as_recorded():
        recorded = (ROOT / "tests" / "golden" / "losses" / "cpu_gpt_bf16__core-local.txt").read_text(encoding="utf-8")
        assert [(row[0], row[2], row[3], row[1]) for row in actual] == [
            tuple(row.split()) for row in recorded.splitlines()[:STEPS]
        ]


def multiplies_as_recorded():
    """Whether bfloat16 products go through the same instructions and library release as in the record (one thread, AMX)."""
    import torch

    cpu = Path("/proc/cpuinfo")
    return cpu.exists() and "amx_bf16" in cpu.read_text() and torch.__version__.startswith("2.13.")


def train(overrides, folder):
    command = [
        sys.executable,
        str(ROOT / "scripts" / "training" / "run_recipe.py"),
        "--recipe",
        "vanilla_gpt_pretrain_config",
        "--dataset",
        "mock",
        *overrides,
        "checkpoint.save=null",
        "logger.tensorboard_dir=null",
        f"train.exit_interval={STEPS}",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return LINE.findall(done.stdout)
