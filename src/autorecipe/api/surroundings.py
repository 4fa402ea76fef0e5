"""What lies around a run on this machine: the environment, and what is at the paths of a configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from autorecipe.schema import RunConfig

LOOKED_AT = ("checkpoint.load", "checkpoint.save", "checkpoint.pretrained_checkpoint")
TRACKERS = ("latest_checkpointed_iteration.txt", "latest_train_state.pt")
RELEVANT = ("CUDA_", "NCCL_", "NVTE_", "PYTORCH_", "CUBLAS_", "TORCH_")
"""Prefixes of the variables that rules look at; no other variable is read."""


def process_environment() -> Mapping[str, str]:
    """Return the variables of this process that concern a run."""
    return {name: value for name, value in os.environ.items() if name.startswith(RELEVANT)}


def look_at_paths(config: RunConfig) -> dict[str, str]:
    """Return what lies at the checkpoint paths of a configuration.

    Returns:
        path as configured -> `missing`, `empty`, `folder`, `megatron` or `hf`.
    """
    found = {}
    for key in LOOKED_AT:
        value = config.get(key, None)
        if isinstance(value, str) and value:
            found[value] = describe_path(Path(value.replace("${CWD}", str(Path.cwd()))))
    return found


def describe_path(path: Path) -> str:
    """Say what a path holds."""
    if not path.exists():
        return "missing"
    if not path.is_dir():
        return "folder"
    names = {entry.name for entry in path.iterdir()}
    if not names:
        return "empty"
    if names & set(TRACKERS) or any(name.startswith("iter_") for name in names) or {"run_config.yaml", ".metadata"} & names:
        return "megatron"
    if "config.json" in names and any(name.endswith((".safetensors", ".bin", ".index.json")) for name in names):
        return "hf"
    return "folder"
