"""Kernels against their formulas in Triton's interpreter (no GPU needed, Triton is)."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[3] / "gpu" / "check_kernels.py"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def test_kernels_equal_their_formulas():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, str(PROGRAM)], env=environment, capture_output=True, text=True, check=True)
    differences = json.loads(done.stdout)
    assert len(differences) == 24
    assert max(differences.values()) < 1e-5
