"""The data of a fine-tuning run as it is typed: which preset, where its rows lie, prompts or chats, what would be learned.

Start reading at `place_dataset` and `preview_data`. No torch.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autorecipe.api.train import TrainRequest, resolve_request
from autorecipe.config.datasets import DatasetPreset, load_dataset_presets
from autorecipe.config.grammar import render_value
from autorecipe.errors import (
    AutorecipeError,
    EnvironmentProblem,
    InternalError,
    NegativeAnswer,
    Problem,
    UsageError,
    unknown_name,
)
from autorecipe.schema.preset import TEXT_PRETRAINING
from autorecipe.schema.value import UNKNOWN, to_jsonable

PREVIEWER = "autorecipe.engine.finetune.preview"
ERRORS: dict[int, type[AutorecipeError]] = {1: NegativeAnswer, 2: UsageError, 3: EnvironmentProblem}
LOCAL = "local-jsonl"
CHAT_PREPROCESSING = "dataset.preprocessing={_target_:megatron.bridge.data.sft_processing.ChatSFTPreprocessingConfig}"
CONVERSATION_COLUMNS = ("messages", "conversation", "conversations")
TRAINING_FILE = "training.jsonl"


def check_dataset_name(name: str | None) -> None:
    """Check that a preset exists for text.

    Raises:
        UsageError: an unknown one, with its near misses.
    """
    known = [*TEXT_PRETRAINING, *load_dataset_presets()]
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


def preview_data(
    recipe: str,
    overrides: Sequence[str] = (),
    *,
    dataset: str | None = None,
    paths: Sequence[str] = (),
    rows: int = 2,
    max_bad_rows: int = 0,
) -> dict[str, Any]:
    """Tokenize a recipe's fine-tuning data, as training would, and show what is learned. Starts the engine as a subprocess.

    Args:
        recipe: recipe name or alias.
        overrides: `KEY=VALUE` texts.
        dataset: preset; None keeps the recipe's own data.
        paths: where the preset's rows lie, when they do not come from a hub.
        rows: training rows to show.
        max_bad_rows: rows of each source that may be left out.

    Returns:
        the data in a line, counts, lengths and packs of each split, notes, and the pieces of each row shown.

    Raises:
        UsageError: an unknown recipe, preset or key, or a recipe that does not fine-tune on text.
        NegativeAnswer: rows that cannot be read, by file and line.
        EnvironmentProblem: packages, rows or tokenizer files are missing.
    """
    check_dataset_name(dataset)
    placed = place_dataset(dataset, paths, typed=overrides) if dataset is not None and is_finetuning_preset(dataset) else ()
    run = resolve_request(TrainRequest(recipe=recipe, overrides=(*placed, *overrides), dataset=dataset))
    kind = run.get("dataset._class", None)
    if kind != "GPTSFTDatasetConfig":
        message, hint = f"is a {kind}: nothing of it can be shown", "choose a recipe for SFT or adapters, and --dataset squad"
        raise UsageError(Problem(path="dataset", code="not-fine-tuning", message=message, hint=hint))
    if importlib.util.find_spec("numpy") is None:
        raise EnvironmentProblem("reading fine-tuning data needs numpy", hint="pip install 'autorecipe[train,hf]'")
    known = {path: to_jsonable(value) for path, value in run.values.items() if value is not UNKNOWN}
    request = {"values": known, "rows": rows, "max_bad_rows": max_bad_rows}
    done = subprocess.run(
        [sys.executable, "-m", PREVIEWER], input=json.dumps(request), capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, *ERRORS) or not done.stdout.strip():
        raise InternalError(f"the preview ended with exit code {done.returncode}:\n{done.stderr.strip()}")
    answer: dict[str, Any] = json.loads(done.stdout)
    if done.returncode:
        raise ERRORS[done.returncode]([Problem(**problem) for problem in answer["problems"]])
    return answer


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
