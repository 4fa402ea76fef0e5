"""The commands that people paste, run as they are pasted: from a checkout, nothing installed."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEP = re.compile(r"iteration +(\d+)/ +\d+ \|.* lm loss: (\S+) \|")

pytestmark = pytest.mark.xdist_group("ranks")

# The overrides of the correlation guide's two-GPU run, at a size that trains in seconds.
PASTED = shlex.split("""
  --recipe vanilla_gpt_pretrain_config
  model.tensor_model_parallel_size=2 model.sequence_parallel=true
  model.num_layers=2 model.hidden_size=64
  model.num_attention_heads=4 model.ffn_hidden_size=128
  model.seq_length=64 dataset.seq_length=64
  train.train_iters=3 train.global_batch_size=4 train.micro_batch_size=2
  validation.eval_interval=3 validation.eval_iters=1
  scheduler.lr_warmup_iters=1 scheduler.lr_decay_iters=3
  logger.log_interval=1
""")


def run_recipe(folder: Path, *words: str, processes: int = 1, launcher: bool = True) -> "subprocess.CompletedProcess[str]":
    launch = [
        "-m",
        "torch.distributed.run",
        f"--nproc_per_node={processes}",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
    ]
    command = [sys.executable, *(launch if launcher else []), str(ROOT / "scripts" / "training" / "run_recipe.py"), *words]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["OMP_NUM_THREADS"] = "1"
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def test_the_two_process_command_trains_and_the_next_one_resumes(tmp_path: Path) -> None:
    done = run_recipe(tmp_path, *PASTED, processes=2)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = STEP.findall(done.stdout)
    assert [number for number, _ in steps] == ["1", "2", "3"]
    assert "validation loss at iteration 3 on test set" in done.stdout
    assert (tmp_path / "nemo_experiments" / "default" / "checkpoints" / "iter_0000003").is_dir()
    again = run_recipe(
        tmp_path, *PASTED, "train.train_iters=4", "scheduler.lr_decay_iters=4", "--metrics", "m.jsonl", processes=2
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert "RESUMING from" in again.stdout and "iteration 3, 12 samples consumed" in again.stdout
    assert [number for number, _ in STEP.findall(again.stdout)] == ["4"]
    assert (tmp_path / "m.jsonl").exists()


def test_a_dry_run_says_what_would_run_and_trains_nothing(tmp_path: Path) -> None:
    done = run_recipe(tmp_path, *PASTED, "--dry-run", "model.tensor_model_parallel_size=1", launcher=False)
    assert done.returncode == 0, done.stderr
    assert "model.num_layers: 2" in done.stdout
    assert re.search(r"pipeline stage 0: [\d,]+ parameters per rank, 2 layers", done.stdout)
    assert "would train 3 iterations" in done.stdout
    assert not (tmp_path / "nemo_experiments").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--recipe", "vanilla_gpt_pretrain_confg"], 2, "vanilla_gpt_pretrain_config"),
        (["--recipe", "llama3_8b_pretrain_config", "--dataset", "mock", "train.train_iter=3"], 2, "train.train_iters"),
        (["--recipe", "llama3_70b_pretrain_config", "--dataset", "mock"], 1, "error["),
        ([*PASTED, "--engine", "mlm", "model.tensor_model_parallel_size=1", "model.sequence_parallel=false"], 3, "MEGATRON_LM"),
    ],
)
def test_what_cannot_run_says_why_with_the_promised_code(tmp_path: Path, words: list[str], code: int, message: str) -> None:
    done = run_recipe(tmp_path, *words, launcher=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert message in done.stderr


def test_the_demo_recommends_trains_twice_and_proves_the_same_loss() -> None:
    """Runs in this checkout, because it is what `make demo` runs; its output folder is its own."""
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = ["bash", str(ROOT / "scripts" / "demo.sh"), str(Path(sys.executable).parent)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "within-rounding" in done.stdout
    assert (ROOT / "demo-output" / "parity.png").stat().st_size > 10_000


def write_squad(folder: Path) -> Path:
    """Write 40 rows with SQuAD's columns."""
    folder.mkdir(parents=True)
    towns = ["Oslo", "Lima", "Kyoto", "Cairo"]
    rows = []
    for number in range(40):
        town = towns[number % 4]
        context = f"Ada lives in {town}. Emil lives in {towns[(number + 1) % 4]}."
        answers = {"text": [town], "answer_start": [context.index(town)]}
        rows.append({"id": str(number), "context": context, "question": "Where does Ada live?", "answers": answers})
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


SHORT = ["train.train_iters=2", "scheduler.lr_decay_iters=2", "validation.eval_iters=0", "dataset.seq_length=64"]


def test_the_sft_command_runs_as_a_smoke_run_on_a_local_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_squad(tmp_path / "sets" / "squad")
    monkeypatch.setenv("AUTORECIPE_DATASETS", str(tmp_path / "sets"))
    monkeypatch.setenv("AUTORECIPE_CACHE", str(tmp_path / "cache"))
    words = ["--recipe", "llama3_8b_sft_config", "--dataset", "squad", "--shrink", *SHORT]
    done = run_recipe(tmp_path, *words, processes=2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "40 rows" in done.stdout and "4 of these rows are held out" in done.stdout
    assert [number for number, _ in STEP.findall(done.stdout)] == ["1", "2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--recipe", "llama3_8b_peft_config", "--dataset", "mock"], "hint: --dataset tulu3\n"),
        (["--recipe", "vanilla_gpt_pretrain_config", "--dataset", "squad", "model.num_layers=2"], "hint: --dataset mock\n"),
    ],
)
def test_data_for_another_mode_is_refused_with_the_right_one(tmp_path: Path, words: list[str], message: str) -> None:
    sizes = ["model.hidden_size=64", "model.num_attention_heads=4", "model.ffn_hidden_size=128"]
    done = run_recipe(tmp_path, *words, *(sizes if "vanilla" in words[1] else []), launcher=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "error[LCH001]" in done.stderr and message in done.stderr
