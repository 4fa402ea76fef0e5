"""Checkpoints converted and merged: starts the engine's conversion as a subprocess, because only the engine imports torch."""

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


def import_checkpoint(hf: Path, out: Path, *, peft: Path | None = None, vocab_size: int | None = None) -> dict[str, Any]:
    """Turn a Hugging Face folder into a checkpoint for `checkpoint.pretrained_checkpoint`.

    Args:
        hf: folder with `config.json` and safetensors.
        out: checkpoint folder to make.
        peft: folder of an adapter of that model in the peft package's format, to be merged into the weights; or None.
        vocab_size: tokens of the checkpoint, those that the folder lacks as rows of zeros; None takes the folder's own.

    Returns:
        family, parameters, dtype, checkpoint and merged_layers.

    Raises:
        UsageError: a model or an adapter that is not converted, or `out` is taken.
        NegativeAnswer: tensors and configuration disagree.
        EnvironmentProblem: packages or files are missing, or files are damaged.
    """
    options = [*(["--peft", str(peft)] if peft is not None else []), *_vocabulary(vocab_size)]
    return _convert("import", "--hf", str(hf), "--out", str(out), *options)


def export_checkpoint(
    checkpoint: Path, hf: Path, out: Path, *, base: Path | None = None, merge: bool = False, vocab_size: int | None = None
) -> dict[str, Any]:
    """Turn a checkpoint of any layout into a Hugging Face folder, and one of an adapter into a folder of the peft package.

    Args:
        checkpoint: a checkpoint, or a folder of them (the newest counts).
        hf: folder whose configuration, tokenizer files and weight type are taken.
        out: folder to make.
        base: weights that an adapter belongs to; None takes those that its training started from.
        merge: merge an adapter into its weights, and export these.
        vocab_size: tokens of the checkpoint, whose rows beyond the folder's are left out; None where it has no more.

    Returns:
        family, parameters, dtype, format (`weights`, `merged` or `peft`) and folder.

    Raises:
        UsageError: a model that is not converted, or `out` is taken.
        NegativeAnswer: the checkpoint is of another model.
        EnvironmentProblem: packages or checkpoints are missing.
    """
    options = [*(["--base", str(base)] if base is not None else []), *(["--merge"] if merge else []), *_vocabulary(vocab_size)]
    return _convert("export", "--checkpoint", str(checkpoint), "--hf", str(hf), "--out", str(out), *options)


def merge_checkpoint(checkpoint: Path, out: Path, *, base: Path | None = None) -> dict[str, Any]:
    """Merge an adapter into the weights it was trained on.

    Args:
        checkpoint: a checkpoint of an adapter, or a folder of them (the newest counts).
        out: checkpoint folder to make.
        base: weights that the adapter belongs to; None takes those that its training started from.

    Returns:
        adapter, base, layers and checkpoint.

    Raises:
        UsageError: the checkpoint holds no adapter, or `out` is taken.
        NegativeAnswer: the base is of another model.
        EnvironmentProblem: packages or checkpoints are missing.
    """
    options = ["--base", str(base)] if base is not None else []
    return _convert("merge", "--checkpoint", str(checkpoint), "--out", str(out), *options)


def _vocabulary(size: int | None) -> list[str]:
    return ["--vocab-size", str(size)] if size is not None else []


def _convert(*arguments: str) -> dict[str, Any]:
    missing = [name for name in ("torch", "megatron", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        raise EnvironmentProblem(f"conversion needs {' and '.join(missing)}", hint="pip install 'autorecipe[train,hf]'")
    done = subprocess.run([sys.executable, "-m", CONVERTER, *arguments], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        report: dict[str, Any] = json.loads(done.stdout)
        return report
    raise rebuild_error(done.returncode, done.stderr, program="the conversion")
