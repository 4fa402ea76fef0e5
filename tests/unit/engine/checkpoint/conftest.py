from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autorecipe.engine.checkpoint import folder
from autorecipe.engine.checkpoint.folder import Manifest


def manifest(iteration: int, **extra: Any) -> Manifest:
    fields: dict[str, Any] = {
        "iteration": iteration,
        "consumed_train_samples": iteration * 8,
        "consumed_valid_samples": 0,
        "world_size": 2,
        "layout": "TP2 PP1 CP1",
        "identity": {"num_layers": 2},
        "config": {"optimizer.lr": 3e-4},
        "scheduler": {"num_steps": iteration * 8},
        "core_release": "0.16.1",
    }
    return Manifest(**{**fields, **extra})


@pytest.fixture
def save() -> Callable[..., Path]:
    """Write a small checkpoint as the saver does and return its folder."""

    def save_one(root: Path, iteration: int, content: bytes = b"weights") -> Path:
        partial = folder.open_partial(root, iteration)
        (partial / "shard.distcp").write_bytes(content)
        return folder.publish(partial, manifest(iteration))

    return save_one
