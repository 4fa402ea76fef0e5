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


class ShardReader:
    """The tensors of a folder by name; each file is mapped when it is first needed."""

    def __init__(self, folder: Path) -> None:
        """Look at the headers of every `*.safetensors` file.

        Args:
            folder: a Hugging Face model folder.

        Raises:
            EnvironmentProblem: there is none, or one cannot be read.
        """
        self._stack = contextlib.ExitStack()
        self._files: dict[str, Any] = {}
        paths = sorted(folder.glob("*.safetensors"))
        if not paths:
            hint = "save the model with safe_serialization=True"
            raise EnvironmentProblem(
                Problem(path=str(folder), code="no-weights", message="holds no .safetensors file", hint=hint)
            )
        for path in paths:
            try:
                file = self._stack.enter_context(safe_open(str(path), framework="pt"))
            except Exception as error:  # the library raises a class of its own for damage
                message = f"cannot be read: {error}"
                raise EnvironmentProblem(Problem(path=str(path), code="weights-damaged", message=message)) from error
            self._files.update(dict.fromkeys(file.keys(), file))

    @property
    def names(self) -> set[str]:
        """Every tensor that is there."""
        return set(self._files)

    def read(self, name: str) -> torch.Tensor:
        """Return one tensor."""
        tensor: torch.Tensor = self._files[name].get_tensor(name)
        return tensor

    def close(self) -> None:
        """Let the files go."""
        self._stack.close()


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
