"""Hugging Face checkpoints in and out: starts the engine's conversion as a subprocess, because only the engine imports torch."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from autorecipe.api.data import rebuild_error
from autorecipe.errors import EnvironmentProblem

CONVERTER = "autorecipe.engine.hf"


def import_checkpoint(hf: Path, out: Path) -> dict[str, Any]:
    """Turn a Hugging Face folder into a checkpoint for `checkpoint.pretrained_checkpoint`.

    Args:
        hf: folder with `config.json` and safetensors.
        out: checkpoint folder to make.

    Returns:
        family, parameters, dtype and checkpoint.

    Raises:
        UsageError: a model that is not converted, or `out` is taken.
        NegativeAnswer: tensors and configuration disagree.
        EnvironmentProblem: packages or files are missing, or files are damaged.
    """
    return _convert("import", "--hf", str(hf), "--out", str(out))


def export_checkpoint(checkpoint: Path, hf: Path, out: Path) -> dict[str, Any]:
    """Turn a checkpoint of any layout into a Hugging Face folder.

    Args:
        checkpoint: a checkpoint, or a folder of them (the newest counts).
        hf: folder whose configuration, tokenizer files and weight type are taken.
        out: folder to make.

    Returns:
        family, parameters, dtype and folder.

    Raises:
        UsageError: a model that is not converted, or `out` is taken.
        NegativeAnswer: the checkpoint is of another model.
        EnvironmentProblem: packages or checkpoints are missing.
    """
    return _convert("export", "--checkpoint", str(checkpoint), "--hf", str(hf), "--out", str(out))


def _convert(*arguments: str) -> dict[str, Any]:
    missing = [name for name in ("torch", "megatron", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        raise EnvironmentProblem(f"conversion needs {' and '.join(missing)}", hint="pip install 'autorecipe[train,hf]'")
    done = subprocess.run([sys.executable, "-m", CONVERTER, *arguments], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        report: dict[str, Any] = json.loads(done.stdout)
        return report
    raise rebuild_error(done.returncode, done.stderr, program="the conversion")
