"""The data of a fine-tuning run as it is typed: which preset, where its rows lie, prompts or chats. No torch.

Start reading at `place_dataset`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from autorecipe.config.datasets import DatasetPreset, load_dataset_presets
from autorecipe.config.grammar import render_value
from autorecipe.errors import Problem, UsageError, unknown_name

LOCAL = "local-jsonl"
PRETRAINING = ("mock", "megatron-indexed")
CHAT_PREPROCESSING = "dataset.preprocessing={_target_:megatron.bridge.data.sft_processing.ChatSFTPreprocessingConfig}"
CONVERSATION_COLUMNS = ("messages", "conversation", "conversations")
TRAINING_FILE = "training.jsonl"


def check_dataset_name(name: str | None) -> None:
    """Check that a preset exists for text.

    Raises:
        UsageError: an unknown one, with its near misses.
    """
    known = [*PRETRAINING, *load_dataset_presets()]
    if name is not None and name not in known:
        raise UsageError(unknown_name("dataset", name, known, hint=f"--engine core reads {', '.join(known)}"))


def is_finetuning_preset(name: str | None) -> bool:
    """Return whether a preset is for SFT and adapters."""
    return name in load_dataset_presets()


def place_dataset(name: str, paths: Sequence[str], *, typed: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the overrides that a fine-tuning preset needs for the rows it is pointed to.

    Args:
        name: preset.
        paths: what `--dataset-path` named; none leaves the rows where the preset has them.
        typed: overrides of the user, which decide first.

    Raises:
        UsageError: several paths.
    """
    if len(paths) > 1:
        message, hint = f"--dataset {name} takes one --dataset-path, not {len(paths)}", "put the files into one folder"
        raise UsageError(Problem(path="--dataset-path", code="contradiction", message=message, hint=hint))
    if name == LOCAL:
        root = next((text.split("=", 1)[1] for text in reversed(typed) if text.startswith("dataset.dataset_root=")), None)
        root = root or (paths[0] if paths else None)
        chooses = any(text.lstrip("+~").startswith("dataset.preprocessing") for text in typed)
        chat = (CHAT_PREPROCESSING,) if root is not None and not chooses and holds_chats(Path(root)) else ()
        return (*((f"dataset.dataset_root={render_value(paths[0])}",) if paths else ()), *chat)
    return _point_sources(load_dataset_presets()[name], paths[0]) if paths else ()


def holds_chats(root: Path) -> bool:
    """Return whether the first row of a local data set is a conversation; False where it cannot be told."""
    file = root.expanduser() if root.expanduser().is_file() else root.expanduser() / TRAINING_FILE
    try:
        with file.open(encoding="utf-8") as lines:
            row = json.loads(next((line for line in lines if line.strip()), "null"))
    except (OSError, ValueError):
        return False  # reading the data says what is wrong, with the line
    return isinstance(row, dict) and any(name in row for name in CONVERSATION_COLUMNS)


def _point_sources(preset: DatasetPreset, path: str) -> tuple[str, ...]:
    """Point every source of a named preset to local rows of the same columns."""
    overrides = []
    for field, value in preset.fields.items():
        if field.endswith(".dataset_name"):
            section = f"dataset.{field.removesuffix('.dataset_name')}"
            adapter = "null" if value == "tulu3" else str(value)
            overrides += [f"{section}.dataset_name=null", f"{section}.path_or_dataset={render_value(path)}"]
            overrides.append(f"{section}.schema_adapter={adapter}")
    return tuple(overrides)
