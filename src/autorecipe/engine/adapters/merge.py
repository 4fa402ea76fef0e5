"""Adapters merged into the weights they adapt: the same function without an adapter. Start reading at `merge_adapter`.

Tensors stream: neither the weights nor the adapter are held whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from autorecipe.engine.abstract import abstract_model
from autorecipe.engine.adapters.attach import attach_adapters
from autorecipe.engine.adapters.settings import is_adapter_key
from autorecipe.engine.checkpoint.pretrained import PATH
from autorecipe.engine.checkpoint.streaming import Place, StoredTensors, list_places
from autorecipe.engine.checkpoint.weights import claim_folder, whole_content, write_checkpoint
from autorecipe.engine.saved import SavedModel, read_saved
from autorecipe.errors import Problem, UsageError

DOWN, UP, MAGNITUDE = "adapter.linear_in.weight", "adapter.linear_out.weight", "adapter.magnitude"
"""Names of an adapter's parameters below its layer."""


def merge_adapter(checkpoint: Path, root: Path, *, base: Path | None = None) -> dict[str, Any]:
    """Write the weights that an adapter and its base make together.

    Args:
        checkpoint: a checkpoint of an adapter, or a folder of them (the newest counts).
        root: checkpoint folder to make, new or empty; what a killed conversion left there is removed.
        base: weights that the adapter belongs to; None takes those that its training started from.

    Returns:
        adapter, base, number of merged layers, path of the checkpoint, and notes for the user.

    Raises:
        UsageError: the checkpoint holds no adapter, or `root` is taken.
        NegativeAnswer: the base is of another model.
        EnvironmentProblem: nothing whole is there.
    """
    saved = read_saved(checkpoint, base=base)
    if saved.adapter is None:
        message = "holds a whole model, and no adapter to merge"
        raise UsageError(Problem(path=str(saved.candidate.path), code="no-adapter", message=message))
    notes = claim_folder(root)
    assert saved.candidate.manifest is not None
    config = {name: value for name, value in saved.candidate.manifest.config.items() if not name.startswith("peft")}
    with abstract_model(saved.conversion_run) as chunk:
        content = whole_content(chunk)
        attach_adapters([chunk], saved.adapter, seed=0)
        merged = MergedTensors(saved, chunk)
        path = write_checkpoint(content, config={**config, PATH: None}, identity=saved.identity, root=root, read=merged.read)
    assert saved.base is not None
    return {
        "adapter": saved.adapter.render(),
        "base": str(saved.base.path),
        "layers": len(merged.layers),
        "checkpoint": str(path),
        "notes": notes,
    }


class MergedTensors:
    """The parameters of a base with an adapter merged in, one by one."""

    def __init__(self, saved: SavedModel, chunk: Any) -> None:
        """Look at both checkpoints.

        Args:
            saved: checkpoint of the adapter.
            chunk: its model without storage, adapters attached.
        """
        assert saved.base is not None and saved.adapter is not None
        chunk.trains_adapter_only = False
        self.places: Mapping[str, Place] = list_places(whole_content(chunk)["model"])
        self.layers = sorted(name.removesuffix(f".{DOWN}") for name in self.places if name.endswith(f".{DOWN}"))
        self._adapted = set(self.layers)
        whole = {f"{layer}.{part}" for layer in self.layers for part in (DOWN, UP, MAGNITUDE)}
        grouped = sorted(name for name in self.places if is_adapter_key(name) and name not in whole)
        if grouped:
            message = f"{grouped[0].partition('.adapter.')[0]}: adapters on experts with biases are neither merged nor exported"
            hint = "generate from the checkpoint as it is, or train with peft.target_modules=[linear_qkv,linear_proj]"
            raise UsageError(Problem(path=str(saved.candidate.path), code="engine-unsupported", message=message, hint=hint))
        self._scale = saved.adapter.scale
        self._base, self._adapter = StoredTensors(saved.base.path), StoredTensors(saved.candidate.path)

    def read(self, name: str) -> torch.Tensor:
        """Return a parameter of the model, by its name there."""
        if is_adapter_key(name):
            return self._adapter.read(self.places[name])
        weight = self._base.read(self.places[name])
        layer = name.removesuffix(".weight")
        if layer not in self._adapted:
            return weight
        return merge_weight(
            weight,
            down=self.read(f"{layer}.{DOWN}"),
            up=self.read(f"{layer}.{UP}"),
            magnitude=self.read(f"{layer}.{MAGNITUDE}") if f"{layer}.{MAGNITUDE}" in self.places else None,
            scale=self._scale,
        )


@torch.no_grad()
def merge_weight(
    weight: torch.Tensor, *, down: torch.Tensor, up: torch.Tensor, magnitude: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """Return the weight of one layer with its adapter merged in, in the weight's type.

    Formula: W + s B A; for DoRA m / |W + s B A| (W + s B A), row by row. Computed in float32.

    Args:
        weight: W, [outputs, inputs].
        down: A, [dim, inputs].
        up: B, [outputs, dim].
        magnitude: m, [outputs], or None for LoRA.
        scale: s.
    """
    whole = weight.float() + scale * (up.float() @ down.float())
    if magnitude is not None:
        whole = whole * (magnitude.float() / torch.linalg.vector_norm(whole, dim=1))[:, None]
    return whole.to(weight.dtype)
