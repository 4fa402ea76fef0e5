"""Everything a rule may look at: configuration, cluster, environment, releases, and sizes derived from them.

Derived sizes are computed when first asked for. Names in upper case (`TP`, `MICROBATCHES` ...) are listed in `DERIVED`.
Where to start reading: `Context.read`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from autorecipe.config.views import view_layout, view_seq_length
from autorecipe.rules.release import BRIDGE_CORE, DEFAULT_CORE, parse_release
from autorecipe.rules.rule import BRIDGE, MEGATRON_LM
from autorecipe.schema import Cluster, Layout, RunConfig
from autorecipe.schema.value import UNKNOWN

Facts = Mapping[str, Any]


class Context:
    """One situation to be judged.

    Args:
        config: resolved configuration; Megatron-LM options without a Bridge field stand under `mlm.DEST`.
        cluster: GPUs, or None where not known.
        framework: `bridge` or `megatron-lm`.
        core_release: Megatron-Core release; empty for the one that goes with the configuration's Bridge release.
        environment: process environment, complete where given (a name that is absent is unset), or None where not known.
        packages: releases of installed packages (`transformer-engine`, `torch`), as far as known.
        given: what the launch says beside the configuration (`dataset`, `mode`, `num_samples`, `processes` ...).
        saved: configuration of the checkpoint to resume from, by path, as far as known.
        found: what lies at paths on disk (`missing`, `empty`, `folder`, `megatron`, `hf`), as far as looked at.
    """

    def __init__(
        self,
        config: RunConfig,
        cluster: Cluster | None,
        *,
        framework: str = BRIDGE,
        core_release: str = "",
        environment: Facts | None = None,
        packages: Facts | None = None,
        given: Facts | None = None,
        saved: Facts | None = None,
        found: Mapping[str, str] | None = None,
    ) -> None:
        self.config = config
        self.cluster = cluster
        self.framework = framework
        self.bridge = config.release or "0.6.2"
        self.core = core_release or BRIDGE_CORE.get(self.bridge, DEFAULT_CORE)
        self.environment = environment
        self.packages = packages or {}
        self.given = given or {}
        self.saved = saved or {}
        self.found = found or {}
        self.values = config.values
        self._derived: dict[str, Any] = {}

    def read(self, path: str) -> Any:
        """Return the value at a configuration path, None where unset, `UNKNOWN` where not known."""
        return self.values.get(path, UNKNOWN)

    def get(self, path: str, default: Any = None) -> Any:
        """Return the value at a path, or the default where it is unset or not known."""
        value = self.values.get(path)
        return default if value is None else value

    def model(self, name: str, default: Any = None) -> Any:
        """Return a model field, or the default where it is unset or not known."""
        return self.get(f"model.{name}", default)

    def env(self, name: str) -> Any:
        """Return an environment variable: the process wins over the recipe's `env_vars`, which fill what is unset."""
        if self.environment is not None and self.environment.get(name) is not None:
            return str(self.environment[name])
        own = self.values.get(f"env_vars.{name}", (self.values.get("env_vars") or {}).get(name))
        if own is not None and self.framework == BRIDGE:
            return str(own)
        return UNKNOWN if self.environment is None else None

    def package(self, name: str) -> Any:
        """Return the release of a package as comparable numbers, or `UNKNOWN`."""
        text = self.packages.get(name)
        return UNKNOWN if text is None else parse_release(str(text))

    def origin(self, path: str) -> str:
        """Return who decided a path (`override`, `recipe` ...), or the empty text."""
        origin = self.config.origins.get(path)
        return str(origin.kind) if origin else ""

    def derived(self, name: str) -> Any:
        """Return a derived size by its upper-case name; `UNKNOWN` where its inputs are not known."""
        try:
            return self._derived[name]
        except KeyError:
            value = DERIVED[name](self)
            self._derived[name] = value
            return value

    @cached_property
    def layout(self) -> Layout:
        """The layout as the framework will use it: an unset ETP is TP in Megatron-LM, 1 with EP > 1 in Bridge."""
        layout = view_layout(self.config)
        if not self.model("num_moe_experts") and isinstance(self.model("expert_tensor_parallel_size"), int):
            layout = _replace_etp(layout, self.model("expert_tensor_parallel_size"))
        if self.framework == MEGATRON_LM and self.model("expert_tensor_parallel_size") is None and self.model("num_moe_experts"):
            layout = _replace_etp(layout, layout.tp)
        return layout

    @property
    def world(self) -> int | None:
        """World size, or None where there is no cluster."""
        return self.cluster.num_gpus if self.cluster else None

    @cached_property
    def dp(self) -> int | None:
        """Dense data-parallel size, or None where the world is not known or not divisible."""
        world, size = self.world, self.layout.dense_model_parallel_size
        return world // size if world and world % size == 0 else None

    @cached_property
    def microbatches(self) -> int | None:
        """Microbatches per step, or None where not known or not whole."""
        gbs, mbs = self.integer("train.global_batch_size"), self.integer("train.micro_batch_size")
        if not gbs or not mbs or not self.dp or gbs % (mbs * self.dp):
            return None
        return gbs // (mbs * self.dp)

    @cached_property
    def seq_length(self) -> int | None:
        """Sequence length that takes effect."""
        return view_seq_length(self.config)

    def integer(self, path: str) -> int | None:
        """Return an integer value, or None."""
        value = self.values.get(path)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @cached_property
    def graph_modules(self) -> tuple[str, ...] | None:
        """CUDA graph modules in lower case from whichever spelling the release has; None where not known."""
        seen = False
        for path in ("model.cuda_graph_modules", "model.cuda_graph_scope"):
            value = self.values.get(path, UNKNOWN)
            if value is UNKNOWN:
                continue
            seen = True
            if value not in (None, [], ()):
                items = value if isinstance(value, list | tuple) else [value]
                return tuple(plain_name(item) for item in items)
        return () if seen else None


def plain_name(value: Any) -> str:
    """Return the last part of an enum, dtype or callable value in lower case: `AttnBackend.flash` -> `flash`."""
    return str(value).rsplit(":", 1)[-1].rsplit(".", 1)[-1].lower()


DTYPES = {"float32": "fp32", "float": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "uint8": "fp8"}


def dtype_name(value: Any) -> str:
    """Return `fp32`, `bf16`, `fp16` or `fp8` for any spelling of a dtype."""
    name = plain_name(value)
    return DTYPES.get(name, name)


def _replace_etp(layout: Layout, etp: int) -> Layout:
    return Layout(
        tp=layout.tp,
        pp=layout.pp,
        vp=layout.vp,
        cp=layout.cp,
        ep=layout.ep,
        etp=etp,
        sequence_parallel=layout.sequence_parallel,
    )


def _known(value: Any) -> Any:
    return UNKNOWN if value is None else value


def _axis(name: str) -> Callable[[Context], Any]:
    return lambda context: getattr(context.layout, name)


def _dataset_class(context: Context) -> Any:
    value = context.values.get("dataset._class", UNKNOWN)
    return value if value is UNKNOWN or value is None else plain_name(value)


def _is_finetuning(context: Context) -> Any:
    mode = context.given.get("mode") or context.config.mode
    if mode:
        return str(mode) in ("sft", "peft", "lora", "dora", "finetune")
    dataset = _dataset_class(context)
    return UNKNOWN if dataset is UNKNOWN else "sft" in str(dataset) or "finetun" in str(dataset)


def _is_hybrid(context: Context) -> Any:
    for path in ("model.hybrid_layer_pattern", "model.hybrid_override_pattern"):
        if context.values.get(path):
            return True
    return "hybrid" in str(context.get("model._class", "")).lower() or "mamba" in str(context.get("model._class", "")).lower()


def _capability(context: Context) -> Any:
    if context.cluster is None:
        return UNKNOWN
    return parse_release(context.cluster.gpu.compute_capability)


def _fsdp(context: Context) -> Any:
    flags = [context.read(path) for path in ("ddp.use_megatron_fsdp", "dist.use_megatron_fsdp", "ddp.use_custom_fsdp")]
    if any(flag is True for flag in flags):
        return True
    return UNKNOWN if all(flag is UNKNOWN for flag in flags) else False


DERIVED: dict[str, Callable[[Context], Any]] = {
    "TP": _axis("tp"),
    "PP": _axis("pp"),
    "VP": _axis("vp"),
    "CP": _axis("cp"),
    "EP": _axis("ep"),
    "ETP": _axis("etp"),
    "WORLD": lambda context: _known(context.world),
    "DP": lambda context: _known(context.dp),
    "MBS": lambda context: _known(context.integer("train.micro_batch_size")),
    "GBS": lambda context: _known(context.integer("train.global_batch_size")),
    "SEQ": lambda context: _known(context.seq_length),
    "MICROBATCHES": lambda context: _known(context.microbatches),
    "LAYERS": lambda context: _known(context.integer("model.num_layers")),
    "MOE": lambda context: (
        UNKNOWN if "model.num_moe_experts" not in context.values else bool(context.values["model.num_moe_experts"])
    ),
    "GRAPHS": lambda context: _known(context.graph_modules),
    "GPU": lambda context: context.cluster.gpu.name if context.cluster else UNKNOWN,
    "CAPABILITY": _capability,
    "TE": lambda context: context.package("transformer-engine"),
    "TORCH": lambda context: context.package("torch"),
    "FSDP": _fsdp,
    "DATASET": _dataset_class,
    "FINETUNING": _is_finetuning,
    "HYBRID": _is_hybrid,
}
"""Derived names that expressions may use."""

AXIS_PATHS = {
    "TP": "model.tensor_model_parallel_size",
    "PP": "model.pipeline_model_parallel_size",
    "VP": "model.virtual_pipeline_model_parallel_size",
    "CP": "model.context_parallel_size",
    "EP": "model.expert_model_parallel_size",
    "ETP": "model.expert_tensor_parallel_size",
    "WORLD": "gpus",
    "MBS": "train.micro_batch_size",
    "GBS": "train.global_batch_size",
    "SEQ": "dataset.seq_length",
    "LAYERS": "model.num_layers",
    "MOE": "model.num_moe_experts",
    "GRAPHS": "model.cuda_graph_modules",
    "FSDP": "ddp.use_megatron_fsdp",
    "DATASET": "dataset._class",
    "DP": "gpus",
    "MICROBATCHES": "train.global_batch_size",
    "GPU": "gpu",
    "CAPABILITY": "gpu",
    "TE": "package.transformer-engine",
    "TORCH": "package.torch",
    "FINETUNING": "given.mode",
    "HYBRID": "model.hybrid_layer_pattern",
}
"""Where each derived name comes from."""
