"""Public measurements that ship with the package, as the estimators' arguments, and the errors that the estimators show on
them.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Mapping
from typing import Any

from autorecipe.record import dataclass, replace
from autorecipe.schema.batch import Batch
from autorecipe.schema.estimate import (
    Adapters,
    ExecutionPolicy,
    LayerImplementation,
    Precision,
    PublishedError,
    Recompute,
    Sharding,
    StageSplit,
)
from autorecipe.schema.layout import Layout
from autorecipe.schema.model import ModelShape

MEGATRON_SOURCES = ("Megatron", "NeMo 2", "NeMo 24", "NVIDIA dgxc")
"""Sources whose runs are Megatron-Core's."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One published measurement.

    Attributes:
        id: row id of the source family.
        source: who published it.
        version: release or container.
        task: pretrain, sft or lora.
        model: model id of data/calibration/models.jsonl.
        gpu: GPU id.
        gpus: GPUs of the run.
        shape: the model.
        layout: parallel layout.
        batch: batch sizes and sequence.
        policy: execution policy, as far as the source or the recipe of the same name says.
        policy_from: where the policy comes from.
        flag: what is wrong with the row; empty where nothing was found.
        step_seconds: measured step time, or 0.
        peak_bytes: measured peak of allocated bytes, or 0.
        peak_rank: `max`, `first` or `last` stage that the peak belongs to.
        group: class of configuration, for the error tables.
    """

    id: str
    source: str
    version: str
    task: str
    model: str
    gpu: str
    gpus: int
    shape: ModelShape
    layout: Layout
    batch: Batch
    policy: ExecutionPolicy
    policy_from: str
    flag: str
    step_seconds: float = 0.0
    peak_bytes: float = 0.0
    peak_rank: str = "max"
    group: str = ""

    @property
    def is_megatron(self) -> bool:
        """Whether the run used Megatron-Core."""
        return self.source.startswith(MEGATRON_SOURCES)


def _read(name: str) -> list[dict[str, Any]]:
    text = importlib.resources.files("autorecipe").joinpath(f"data/calibration/{name}").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line]


def shape_from(values: Mapping[str, Any]) -> ModelShape:
    """Make a shape from plain values; `moe_layer_pattern` is a text of 0 and 1."""
    given = dict(values)
    if "moe_layer_pattern" in given:
        given["moe_layer_pattern"] = tuple(letter == "1" for letter in given["moe_layer_pattern"])
    if given.get("window_size") is not None:
        given["window_size"] = tuple(given["window_size"])
    return ModelShape(**given)


def policy_from(values: Mapping[str, Any]) -> ExecutionPolicy:
    """Make a policy from plain values; what is absent keeps its default."""
    given = dict(values)
    for name, make in (("precision", Precision), ("layers", LayerImplementation), ("sharding", Sharding)):
        if name in given:
            given[name] = make(given[name])
    if "recompute" in given:
        given["recompute"] = Recompute(**{**given["recompute"], "modules": frozenset(given["recompute"].get("modules", ()))})
    if "split" in given:
        given["split"] = StageSplit(**{**given["split"], "explicit": tuple(given["split"].get("explicit", ()))})
    if "graph_modules" in given:
        given["graph_modules"] = frozenset(given["graph_modules"])
    if given.get("adapters") is not None:
        given["adapters"] = Adapters(**{**given["adapters"], "targets": frozenset(given["adapters"]["targets"])})
    return ExecutionPolicy(**given)


@functools.lru_cache(maxsize=1)
def load_shapes() -> Mapping[str, ModelShape]:
    """Return the shapes of the measured models by id."""
    return {row["model"]: shape_from(row["shape"]) for row in _read("models.jsonl")}


def load_throughput() -> tuple[Measurement, ...]:
    """Return published step times."""
    return tuple(_measurement(row) for row in _read("throughput.jsonl"))


def load_memory() -> tuple[Measurement, ...]:
    """Return published peaks of allocated memory."""
    return tuple(_measurement(row) for row in _read("memory.jsonl"))


def _measurement(row: Mapping[str, Any]) -> Measurement:
    shape = shape_from(row["shape"]) if "shape" in row else load_shapes()[row["model"]]
    if "num_layers" in row:
        layers = row["num_layers"]
        shape = replace(shape, num_layers=layers, moe_layer_pattern=shape.moe_layer_pattern[:layers])
    return Measurement(
        id=row["id"],
        source=row["source"],
        version=row.get("version", ""),
        task=row.get("task", "pretrain"),
        model=row["model"],
        gpu=row["gpu"],
        gpus=row["gpus"],
        shape=shape,
        layout=Layout(**row.get("layout", {})),
        batch=Batch(
            global_batch_size=row["global_batch_size"],
            micro_batch_size=row["micro_batch_size"],
            seq_length=row["seq_length"],
        ),
        policy=policy_from(row.get("policy", {})),
        policy_from=row.get("policy_from", ""),
        flag=row.get("flag", ""),
        step_seconds=row.get("step_seconds", 0.0),
        peak_bytes=row.get("peak_bytes", 0.0),
        peak_rank=row.get("peak_rank", "max"),
        group=row.get("group", ""),
    )


@functools.lru_cache(maxsize=1)
def load_errors() -> Mapping[str, Mapping[str, PublishedError]]:
    """Return the published errors: estimator (`time`, `memory`) -> class of configuration -> error."""
    text = importlib.resources.files("autorecipe").joinpath("data/calibration/errors.json").read_text(encoding="utf-8")
    return {
        estimator: {name: PublishedError(**values) for name, values in classes.items()}
        for estimator, classes in json.loads(text).items()
    }


def time_class(shape: ModelShape, policy: ExecutionPolicy) -> str:
    """Return the class of configuration that a time error is published for."""
    kind = "hybrid" if shape.is_hybrid or shape.linear_attention_freq is not None else "moe" if shape.is_moe else "dense"
    if policy.adapters is not None:
        return f"{kind} adapters"
    return f"{kind} {'quantized' if policy.precision.is_quantized else '16-bit'}"


def memory_class(shape: ModelShape, policy: ExecutionPolicy) -> str:
    """Return the class of configuration that a memory error is published for."""
    return "hybrid" if shape.is_hybrid or shape.linear_attention_freq is not None else "moe" if shape.is_moe else "dense"
