"""Layers of change: what moving a path does to a training run, and why.

A table of declared fields (`data/layers.jsonl`) is corrected and completed by a reviewed one (`data/layer_reviews.jsonl`);
patterns classify keys inside dictionaries, classes of sections and derived values. A path that neither knows is treated like
convergence. Start reading at `classify_path`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from autorecipe.datafiles import data_file, read_lines
from autorecipe.record import dataclass
from autorecipe.schema.field import ConfigSchema
from autorecipe.schema.layer import Layer

UNCLASSIFIED = "not classified: treated like convergence"


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A rule for paths that no release declares one by one."""

    expression: str
    layer: Layer
    reason: str

    def matches(self, path: str) -> bool:
        """Return whether the whole path matches."""
        return re.fullmatch(self.expression, path) is not None


_C, _E, _I = Layer.CONVERGENCE, Layer.EXECUTION, Layer.IO

PATTERNS: tuple[Pattern, ...] = (
    # Environment variables, by name: numerics first, then transport, then where things are written.
    Pattern(
        expression=r"env(_vars)?\.(NVTE_\w*(FP8|MXFP8|NVFP4|FP4|INT8)\w*|NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32\w*)",
        layer=_C,
        reason="changes the arithmetic precision",
    ),
    Pattern(
        expression=r"env(_vars)?\.NVTE_(FLASH|FUSED|UNFUSED)_ATTN\w*|env(_vars)?\.NVTE_(FWD|BWD)_LAYERNORM_SM_MARGIN",
        layer=_E,
        reason="attention backend or kernel launch choice of Transformer Engine",
    ),
    Pattern(
        expression=r"env(_vars)?\.NVTE_(ALLOW_NONDETERMINISTIC_ALGO|CPU_OFFLOAD_V1|NORM_FWD_USE_CUDNN|NORM_BWD_USE_CUDNN|BATCH_MHA_\w+)",
        layer=_E,
        reason="kernel or offload choice of Transformer Engine",
    ),
    Pattern(expression=r"env(_vars)?\.NVTE_DEBUG\w*", layer=_I, reason="diagnostics of Transformer Engine"),
    Pattern(
        expression=r"env(_vars)?\.NVTE_\w+",
        layer=_C,
        reason="a switch of Transformer Engine that is not known to keep numerics: treated like convergence",
    ),
    Pattern(
        expression=r"env(_vars)?\.(NCCL|TORCH_NCCL|NVSHMEM|UCX|GLOO|CUDA|CUDNN|CUBLAS|CUBLASLT|PYTORCH|TORCHINDUCTOR|TORCH_\w*COMPILE"
        r"|OMP|MKL|UB|DEEPEP|HYBRID_EP|MC|NVLINK|NUM_OF|USE_MNNVL|MASTER|SLURM|PYTHON)\w*",
        layer=_E,
        reason="transport, allocator or launch setting",
    ),
    Pattern(
        expression=r"env(_vars)?\.(HF|TRANSFORMERS|TOKENIZERS|WANDB|MLFLOW|COMET|TENSORBOARD|TRITON|XDG|TMPDIR|NEMO|LOG)\w*",
        layer=_I,
        reason="caches, offline switches and logging",
    ),
    # Classes of sections, and whole sections that appear or vanish.
    Pattern(expression=r"(model|dataset|peft|tokenizer|optimizer)(\.[\w.]+)?\._class", layer=_C, reason="another kind of object"),
    Pattern(expression=r"mixed_precision(\._class)?", layer=_C, reason="precision preset"),
    Pattern(expression=r"peft", layer=_C, reason="trainable parameters"),
    Pattern(expression=r"model|dataset|optimizer|scheduler|tokenizer|train|rng", layer=_C, reason="the whole section"),
    Pattern(
        expression=r"comm_overlap|ft|straggler|nvrx_straggler|inprocess_restart|ddp|dist|checkpoint|validation|rerun_state_machine",
        layer=_E,
        reason="the whole section",
    ),
    Pattern(expression=r"(profiling|tensor_inspect|logger)", layer=_I, reason="logging, profiling or diagnostics"),
    Pattern(
        expression=r"(comm_overlap|ft|straggler|nvrx_straggler|inprocess_restart|ddp|dist|train|scheduler|checkpoint|validation|rng"
        r"|rerun_state_machine|optimizer_config_override_provider)\._class",
        layer=_E,
        reason="configuration class of the section",
    ),
    Pattern(expression=r"(profiling|tensor_inspect|logger)\.[\w.]+", layer=_I, reason="logging, profiling or diagnostics"),
    # Values that resolution derives.
    Pattern(expression=r"data_parallel_size", layer=_E, reason="parallel topology"),
    Pattern(expression=r"derived\.padded_vocab_size", layer=_C, reason="padded rows of the vocabulary join the softmax"),
    Pattern(expression=r"derived\.num_microbatches", layer=Layer.FINGERPRINT, reason="gradient accumulation"),
)
"""First match wins."""


@functools.cache
def load_field_layers() -> Mapping[str, tuple[Layer, str]]:
    """Return the layer and reason of every declared field; reviews win over the first table."""
    layers = {layer.value: layer for layer in Layer}
    table = {row["path"]: (layers[row["layer"]], row["reason"]) for row in _rows("layers.jsonl")}
    for row in _rows("layer_reviews.jsonl"):
        table |= dict.fromkeys(row["paths"], (layers[row["layer"]], row["reason"]))
    return table


def _rows(name: str) -> list[dict[str, Any]]:
    return list(read_lines(data_file(name)))


def classify_path(path: str, schema: ConfigSchema | None = None) -> tuple[Layer | None, str]:
    """Return the layer and reason of a path; None where it has not been classified.

    Args:
        path: a field, a key inside a dictionary field (takes the field's layer, except environment variables), a list item.
        schema: schema of the release; its own classification counts where the reviewed table has none.
    """
    table = load_field_layers()
    if path in table:
        return table[path]
    for pattern in PATTERNS:
        if pattern.matches(path):
            return pattern.layer, pattern.reason
    declared = schema.get(path) if schema is not None else None
    if declared is not None and declared.layer is not None:
        return declared.layer, declared.reason
    if path.startswith(("env_vars.", "env.")):
        return None, UNCLASSIFIED
    holder = path
    while "." in holder:
        holder = holder.rpartition(".")[0]
        if holder in table:
            return table[holder]
    return None, UNCLASSIFIED


def layer_of(path: str, schema: ConfigSchema | None = None) -> tuple[Layer, str]:
    """Return the layer and reason of a path; an unclassified path counts as convergence and the reason says so."""
    layer, reason = classify_path(path, schema)
    return (layer if layer is not None else Layer.CONVERGENCE), reason


ROUTING_SWITCHES = ("model.moe_router_force_load_balancing", "model.moe_router_force_biased")
"""Benchmark-only switches that also replace the objective: moving one is a new experiment as well."""


def starts_new_experiment(path: str, layer: Layer | None) -> bool:
    """Return whether moving a path of this layer makes another experiment."""
    if layer is None or layer is Layer.CONVERGENCE:
        return True
    return layer is Layer.BENCHMARK_ONLY and (path in ROUTING_SWITCHES or path.startswith("dataset."))
