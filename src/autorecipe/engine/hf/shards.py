"""Reads and writes sharded safetensors one tensor at a time, so that a whole model is never held twice."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from autorecipe.errors import EnvironmentProblem, Problem

INDEX = "model.safetensors.index.json"
SHARD_BYTES = 4 * 1024**3
"""Weights per written file, before the last tensor."""
WINDOW_BYTES = 1024**3
"""Bytes read of a mapped file before it is let go."""


class ShardReader:
    """The tensors of a folder by name; one file is open at a time, and anew after each `window` bytes of it.

    An open file is mapped, and what was read of it stays in this process's memory until it is closed.
    """

    def __init__(self, folder: Path, *, window_bytes: int = WINDOW_BYTES) -> None:
        """Look at the headers of every `*.safetensors` file.

        Args:
            folder: a Hugging Face model folder.
            window_bytes: bytes read of a file before it is closed and opened again.

        Raises:
            EnvironmentProblem: there is none, one cannot be read, or one of the index is missing.
        """
        self._window = window_bytes
        self._paths: dict[str, Path] = {}
        self._open: tuple[Path, Any] | None = None
        self._stack = contextlib.ExitStack()
        self._read_bytes = 0
        paths = sorted(folder.glob("*.safetensors"))
        if not paths:
            hint = "save the model with safe_serialization=True"
            raise EnvironmentProblem(
                Problem(path=str(folder), code="no-weights", message="holds no .safetensors file", hint=hint)
            )
        _check_index(folder)
        for path in paths:
            self._paths.update(dict.fromkeys(self._enter(path).keys(), path))
        self.close()

    @property
    def names(self) -> set[str]:
        """Every tensor that is there."""
        return set(self._paths)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of one tensor."""
        return tuple(self._enter(self._paths[name]).get_slice(name).get_shape())

    def read(self, name: str) -> torch.Tensor:
        """Return one tensor, with memory of its own."""
        if self._read_bytes >= self._window:
            self.close()
        tensor: torch.Tensor = self._enter(self._paths[name]).get_tensor(name).clone()
        self._read_bytes += tensor.numel() * tensor.element_size()
        return tensor

    def close(self) -> None:
        """Let the file go."""
        self._stack.close()
        self._open, self._read_bytes = None, 0

    def _enter(self, path: Path) -> Any:
        if self._open is None or self._open[0] != path:
            self.close()
            try:
                self._open = path, self._stack.enter_context(safe_open(str(path), framework="pt"))
            except Exception as error:  # the library raises a class of its own for damage
                message = f"cannot be read, {path.stat().st_size if path.is_file() else 0:,} bytes: {error}"
                hint = "the file is cut off or damaged: download it again and compare its size with the hub's"
                raise EnvironmentProblem(Problem(path=str(path), code="weights-damaged", message=message, hint=hint)) from error
        return self._open[1]


def _check_index(folder: Path) -> None:
    """Compare the files with the index, where there is one."""
    index = folder / INDEX
    if not index.is_file():
        return
    try:
        listed = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"cannot be read: {error}"
        raise EnvironmentProblem(Problem(path=str(index), code="weights-damaged", message=message)) from None
    hint = f"complete the download of {folder}"
    problems = [
        Problem(path=str(folder / name), code="weights-missing", message="is listed in the index and is not there", hint=hint)
        for name in listed
        if not (folder / name).is_file()
    ]
    if problems:
        raise EnvironmentProblem(problems)


class ShardWriter:
    """Writes tensors into numbered files of limited size, and their index."""

    def __init__(self, folder: Path, *, shard_bytes: int = SHARD_BYTES) -> None:
        """Prepare.

        Args:
            folder: where to; it exists.
            shard_bytes: size at which a file is written.
        """
        self._folder = folder
        self._limit = shard_bytes
        self._held: dict[str, torch.Tensor] = {}
        self._written: list[list[str]] = []
        self._bytes = self._total = 0

    def write(self, name: str, tensor: torch.Tensor) -> None:
        """Add one tensor."""
        self._held[name] = tensor.detach().clone().contiguous()
        self._bytes += tensor.numel() * tensor.element_size()
        if self._bytes >= self._limit:
            self._flush()

    def close(self) -> int:
        """Write what is left, give the files their final names, write the index, and return the bytes of all tensors."""
        self._flush()
        count = len(self._written)
        weight_map = {}
        for number, names in enumerate(self._written, start=1):
            final = "model.safetensors" if count == 1 else f"model-{number:05d}-of-{count:05d}.safetensors"
            (self._folder / f"part-{number:05d}.partial").rename(self._folder / final)
            weight_map.update(dict.fromkeys(names, final))
        if count > 1:
            index = {"metadata": {"total_size": self._total}, "weight_map": weight_map}
            (self._folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
        return self._total

    def _flush(self) -> None:
        if not self._held:
            return
        number = len(self._written) + 1
        save_file(self._held, str(self._folder / f"part-{number:05d}.partial"), metadata={"format": "pt"})
        self._written.append(list(self._held))
        self._total += self._bytes
        self._held, self._bytes = {}, 0
