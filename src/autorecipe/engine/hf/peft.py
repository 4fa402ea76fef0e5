"""Adapters in the format of the peft package: `adapter_config.json` and `adapter_model.safetensors`.

A layer here may be several there (query, key and value; gate and up): each part gets the same A, and its rows of B and of
DoRA's magnitude. That is exact, because both act row by row. Start reading at `write_peft`.

Source: names and fields as peft 0.21 saves and loads them. Evidence: measured (equal logits, tests/e2e).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from autorecipe.engine.adapters.merge import DOWN, MAGNITUDE, UP, MergedTensors, merge_weight
from autorecipe.engine.adapters.settings import AdapterSettings
from autorecipe.engine.hf.model import HfModel
from autorecipe.errors import EnvironmentProblem, NegativeAnswer, Problem, UsageError

EXPERT = re.compile(r"\.experts\.local_experts\.\d+")
FEED_FORWARD = re.compile(r"\.linear_fc[12]$")
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."

_UNSET: tuple[Any, ...] = (None, False, "none", {}, [])
_HARMLESS = frozenset(
    (
        *("auto_mapping", "base_model_name_or_path", "inference_mode", "peft_version", "revision", "runtime_config", "task_type"),
        *("exclude_modules", "layers_pattern", "layers_to_transform", "target_modules", "ensure_weight_tying"),
        *("lora_alpha", "lora_dropout", "r", "rank_pattern", "use_dora", "use_rslora", "qalora_group_size"),
        *("megatron_config", "megatron_core"),
    )
)
"""Fields of peft's LoRA that change nothing of what its tensors mean, or that are read off the tensors."""
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "init_lora_weights": (None, True, False, "gaussian", "orthogonal"),  # other starts change the base, too
}


def write_peft(folder: Path, model: HfModel, settings: AdapterSettings, tensors: MergedTensors, *, base_name: str) -> int:
    """Write an adapter, and return the number of its parameters there.

    transformers 5 stacks the experts of a layer in two parameters; their adapters are stacked as peft stacks them for such
    parameters. In a model with experts peft takes the names of other feed-forward layers for experts, so these layers are
    named as parameters, too.

    Args:
        folder: where to; it exists.
        model: of the weights.
        settings: the adapter.
        tensors: gives its parameters.
        base_name: name or folder of the weights, for peft to find them.

    Raises:
        UsageError: DoRA on layers that peft knows as parameters.
    """
    pieces = {piece.name: piece for piece in model.pieces}
    has_experts = bool(model.values.get("model.num_moe_experts"))
    experts = [layer for layer in tensors.layers if EXPERT.search(layer)]
    as_parameters = [layer for layer in tensors.layers if has_experts and FEED_FORWARD.search(layer)]
    if settings.kind == "DoRA" and as_parameters:
        message = f"{as_parameters[0]}: peft has no DoRA for the feed-forward layers of a model with experts"
        raise UsageError(Problem(path="peft", code="peft-unsupported", message=message, hint="add --merge"))
    found: dict[str, torch.Tensor] = {}
    modules: list[str] = []
    parameters: set[str] = set()
    for layer in tensors.layers:
        if layer in experts:
            continue
        piece = pieces[f"{layer}.weight"]
        ups = piece.split(tensors.read(f"{layer}.{UP}"))
        magnitudes = piece.split(tensors.read(f"{layer}.{MAGNITUDE}")) if settings.kind == "DoRA" else [None] * len(ups)
        down = tensors.read(f"{layer}.{DOWN}")
        for source, up, magnitude in zip(piece.sources, ups, magnitudes, strict=True):
            module = source.removesuffix(".weight")
            if layer in as_parameters:
                parameters.add(source)
            else:
                modules.append(module)
            found[f"{PREFIX}{module}.lora_A.weight"] = down.clone()
            found[f"{PREFIX}{module}.lora_B.weight"] = up.contiguous()
            if magnitude is not None:
                found[f"{PREFIX}{module}.lora_magnitude_vector"] = magnitude.contiguous()
    parameters |= _stack_experts(experts, model, settings, tensors, found)
    save_file(found, str(folder / WEIGHTS), metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_name,
        "inference_mode": True,
        "r": settings.dim,
        "lora_alpha": int(settings.alpha) if settings.alpha == int(settings.alpha) else settings.alpha,
        "lora_dropout": 0.0 if parameters else settings.dropout,
        "use_dora": settings.kind == "DoRA",
        "bias": "none",
        "fan_in_fan_out": False,
        "target_modules": _shortest_names(modules, [source for piece in pieces.values() for source in piece.sources]),
        "target_parameters": sorted(parameters) or None,
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return sum(tensor.numel() for tensor in found.values())


def _stack_experts(
    experts: list[str], model: HfModel, settings: AdapterSettings, tensors: MergedTensors, found: dict[str, torch.Tensor]
) -> set[str]:
    """Stack the adapters of experts, add them to `found`, and return the names of the parameters that they adapt.

    Source: peft 0.21 tuners/lora/layer.py, ParamWrapper: A is [experts x dim, inputs], expert by expert; B is
    [outputs, dim x experts], and the second of two adapted parameters of one module wraps the first.
    """
    count = int(model.values["model.num_moe_experts"]) if experts else 0
    layers = sorted({(EXPERT.split(name)[0], name.rsplit(".", 1)[1]) for name in experts})
    adapted: set[str] = set()
    for head, last in layers:
        names = [f"{head}.experts.local_experts.{expert}.{last}" for expert in range(count)]
        present = [name for name in names if name in experts]
        like_down, like_up = (tensors.places[f"{present[0]}.{part}"] for part in (DOWN, UP))
        downs = [tensors.read(f"{name}.{DOWN}") if name in experts else torch.zeros(like_down.shape) for name in names]
        ups = [tensors.read(f"{name}.{UP}") if name in experts else torch.zeros(like_up.shape) for name in names]
        module = f"model.layers.{head.split('.')[2]}.mlp.experts"
        both = {(head, "linear_fc1"), (head, "linear_fc2")} <= set(layers)
        place = f"{module}.base_layer" if both and last == "linear_fc1" else module
        adapted.add(f"{module}.{'gate_up_proj' if last == 'linear_fc1' else 'down_proj'}")
        found[f"{PREFIX}{place}.lora_A.weight"] = torch.cat([down.to(downs[0].dtype) for down in downs])
        found[f"{PREFIX}{place}.lora_B.weight"] = torch.stack([up.to(ups[0].dtype) for up in ups], dim=2).flatten(1).contiguous()
    return adapted


def _shortest_names(modules: list[str], sources: list[str]) -> list[str]:
    """Return names that mean these modules and no others: last parts where they do, else whole names."""
    every = {source.removesuffix(".weight") for source in sources if source.endswith(".weight")}
    chosen = set(modules)
    short = {module.rsplit(".", 1)[-1] for module in chosen}
    meant = {module for module in every if module.rsplit(".", 1)[-1] in short}
    return sorted(short) if meant == chosen else sorted(chosen)


class PeftTensors:
    """An adapter of the peft package, merged into the tensors of its model one by one."""

    def __init__(self, folder: Path) -> None:
        """Read an adapter.

        Args:
            folder: with `adapter_config.json` and `adapter_model.safetensors`.

        Raises:
            EnvironmentProblem: a file is missing or damaged.
            UsageError: a kind of adapter that is not merged, every reason at once.
        """
        self._folder = folder
        try:
            config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            self._tensors = load_file(str(folder / WEIGHTS))
        except (OSError, ValueError, SafetensorError) as error:
            message, hint = f"cannot be read: {error}", "give a folder that peft's save_pretrained made"
            raise EnvironmentProblem(Problem(path=str(folder), code="bad-adapter", message=message, hint=hint)) from None
        problems = [
            Problem(path=str(folder / CONFIG), code="peft-unsupported", message=f"{name}={value!r} is not merged")
            for name, value in config.items()
            if name not in _HARMLESS and value not in _NEUTRAL.get(name, _UNSET)
        ]
        if "lora_alpha" not in config:
            problems.append(Problem(path=str(folder / CONFIG), code="bad-adapter", message="has no lora_alpha"))
        if problems:
            raise UsageError(problems)
        self._alpha = float(config["lora_alpha"])
        self._ranks_by_root = bool(config.get("use_rslora", False))
        self.layers = sorted(
            name.removeprefix(PREFIX).removesuffix(".lora_A.weight") for name in self._tensors if name.endswith(".lora_A.weight")
        )

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Compare the adapter with the tensors of a model.

        Args:
            shapes: by name.

        Raises:
            NegativeAnswer: a tensor of the adapter has no place there, or another shape.
        """
        known = set()
        problems = []
        for layer in self.layers:
            down, up, magnitude = self._of(layer)
            known |= {f"{PREFIX}{layer}.{part}" for part in ("lora_A.weight", "lora_B.weight")}
            known |= {f"{PREFIX}{layer}.lora_magnitude_vector"} if magnitude is not None else set()
            shape = shapes.get(f"{layer}.weight")
            if up is None or shape is None or shape != (up.shape[0], down.shape[1]) or up.shape[1] != down.shape[0]:
                message = f"does not fit the model, whose {layer}.weight has shape {list(shape) if shape else 'none'}"
                problems.append(Problem(path=f"{PREFIX}{layer}", code="peft-tensors", message=message))
        problems += [
            Problem(path=name, code="peft-tensors", message="is no part of an adapter that is merged")
            for name in sorted(set(self._tensors) - known)[:10]
            if not any(name.startswith(f"{problem.path}.") for problem in problems)
        ]
        if problems:
            raise NegativeAnswer(problems)

    def merge(self, name: str, weight: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the model with the adapter merged in."""
        layer = name.removesuffix(".weight")
        if f"{PREFIX}{layer}.lora_A.weight" not in self._tensors:
            return weight
        down, up, magnitude = self._of(layer)
        assert up is not None
        rank = down.shape[0]
        scale = self._alpha / (math.sqrt(rank) if self._ranks_by_root else rank)
        return merge_weight(weight, down=down, up=up, magnitude=magnitude, scale=scale)

    def _of(self, layer: str) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        head = f"{PREFIX}{layer}"
        tensors = self._tensors
        return (
            tensors[f"{head}.lora_A.weight"],
            tensors.get(f"{head}.lora_B.weight"),
            tensors.get(f"{head}.lora_magnitude_vector"),
        )
