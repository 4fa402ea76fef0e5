"""LoRA and DoRA train as the peft package trains them: the same Llama, the same start, the same losses."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import ROOT

sys.path.insert(0, str(Path(__file__).resolve().parent))  # hf_models.py

from hf_models import make_model

pytest.importorskip("transformers")
pytest.importorskip("peft")
pytestmark = pytest.mark.xdist_group("ranks")

KINDS = ("LoRA", "DoRA")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Give what both sides found: 20 losses by kind of adapter and side, and one layer with dropout."""
    folder = tmp_path_factory.mktemp("pair")
    make_model("llama2", folder / "hf")
    command = [sys.executable, str(Path(__file__).with_name("peft_pair.py")), str(folder), *KINDS]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines = [line.partition(" ") for line in done.stdout.splitlines()]
    return {name: json.loads(text) for name, _, text in lines if name in ("TRACES", "DROPPED")}


@pytest.fixture(scope="module")
def traces(printed: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Give 20 losses by kind of adapter and side."""
    found: dict[str, dict[str, list[float]]] = printed["TRACES"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_twenty_steps_lose_what_peft_loses(traces: dict[str, dict[str, list[float]]], kind: str) -> None:
    here, there = traces[kind]["here"], traces[kind]["there"]
    assert len(here) == len(there) == 20
    assert there[-1] < there[0] - 0.5
    # the largest difference seen is 9.5e-7
    assert max(abs(a - b) for a, b in zip(here, there, strict=True)) < 1e-5


def test_the_two_kinds_do_not_train_alike(traces: dict[str, dict[str, list[float]]]) -> None:
    assert abs(traces["LoRA"]["here"][-1] - traces["DoRA"]["here"][-1]) > 1e-3


def test_dropout_in_dora_acts_as_in_peft(printed: dict[str, Any]) -> None:
    """The same mask: the same output and gradients, in which the base's own product sees no dropout."""
    here, there = printed["DROPPED"]["here"], printed["DROPPED"]["there"]
    for ours, theirs in zip(here, there, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-4)
