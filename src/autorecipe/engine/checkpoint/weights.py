"""Checkpoints of weights alone, streamed: what imports and merges write, and training starts from."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from autorecipe.engine import compat
from autorecipe.engine.checkpoint import folder
from autorecipe.engine.checkpoint.content import build_content
from autorecipe.engine.checkpoint.folder import Manifest
from autorecipe.engine.checkpoint.streaming import write_streamed
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.value import to_jsonable


def claim_folder(root: Path) -> list[str]:
    """Refuse a folder that holds anything but what a killed conversion left of its weights, and remove that.

    Returns:
        what was removed, for the user.

    Raises:
        UsageError: the folder is taken, or is a file.
    """
    leftovers = folder.list_leftovers(root, iteration=0)
    message = ""
    if root.exists() and not root.is_dir():
        message = "is a file"
    elif folder.list_checkpoints(root):
        message = "already holds a checkpoint"
    elif root.is_dir():
        held = sorted({path.name for path in root.iterdir()} - set(leftovers))
        if held:
            message = f"is not empty: it holds {held[0]!r}{f' and {len(held) - 1} more' if len(held) > 1 else ''}"
    if message:
        raise UsageError(Problem(path=str(root), code="exists", message=message, hint="give a new or an empty folder as --out"))
    return [f"removed {root / name}: an earlier conversion was killed while writing it" for name in folder.clear_leftovers(root)]


def whole_content(chunk: Any) -> dict[str, Any]:
    """Return what a checkpoint of weights alone holds of a model that is whole on this process."""
    return build_content([chunk], None, common={"iteration": 0, "checkpoint_version": 3.0}, with_rng=False, is_loading=False)


def write_checkpoint(
    content: dict[str, Any],
    *,
    root: Path,
    read: Callable[[str], torch.Tensor],
    identity: Mapping[str, Any],
    config: Mapping[str, Any],
) -> Path:
    """Write weights as the checkpoint of iteration 0, and return its folder.

    Args:
        content: what `whole_content` returned for the model without storage.
        root: checkpoint folder.
        read: gives a parameter by its name in the model.
        identity: of the model.
        config: flat configuration that the checkpoint remembers.
    """
    partial = folder.open_partial(root, 0)
    try:
        write_streamed(partial, content, read)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    manifest = Manifest(
        iteration=0,
        consumed_train_samples=0,
        consumed_valid_samples=0,
        world_size=1,
        layout="TP1 PP1 CP1",
        identity=identity,
        config=to_jsonable(config),
        scheduler={},
        core_release=compat.core_release(),
        has_optimizer=False,
        has_rng=False,
    )
    return folder.publish(partial, manifest)
