"""The fine-tuning guide, followed to the letter: a toy learns eight facts, an adapter learns to be asked for them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "finetune.md"
BLOCK = re.compile(r"<!-- not run: tests/e2e/test_finetune_guide.py[^>]*-->\n```console\n(.*?)```", re.DOTALL)
LOSS = re.compile(r"iteration +\d+/ +\d+ \|.* lm loss: (\S+) \|")

pytestmark = pytest.mark.xdist_group("ranks")


def follow(block: str, folder: Path) -> str:
    """Run a block's commands in one shell, as if this checkout were installed, and return what they print."""
    lines = ["\n".join(line.removeprefix("$ ") for line in block.splitlines())]
    functions = f'autorecipe() {{ "{sys.executable}" -m autorecipe "$@"; }}; python() {{ "{sys.executable}" "$@"; }}'
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "src"),
        "AUTORECIPE_CACHE": str(folder / "cache"),
    }
    script = "\n".join(["set -e", functions, *lines])
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_the_guide_teaches_a_toy_and_then_an_adapter(tmp_path: Path) -> None:
    for name in ("examples", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    first, second = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    small = next(line for line in first.splitlines() if line.startswith("$ export"))
    trained = follow(first, tmp_path)
    losses = [float(text) for text in LOSS.findall(trained)]
    assert len(losses) == 60 and losses[0] > 5 and losses[-1] < 0.1
    assert re.findall(r"answer: +(\w+)", trained) == ["Lima", "Tokyo"]
    adapted = follow(f"{small}\n{second}", tmp_path)
    losses = [float(text) for text in LOSS.findall(adapted)]
    assert len(losses) == 40 and losses[-1] < 0.1 < losses[0]
    assert re.findall(r"answer: +(\w+)", adapted) == ["Lima"]
    assert "Lima" not in re.findall(r"before: *(.*)", adapted)[0]
