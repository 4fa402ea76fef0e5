"""Everything a rule may look at: configuration, cluster, environment, releases, and sizes derived from them.

Derived sizes are computed when first asked for. Names in upper case (`TP`, `MICROBATCHES` ...) are listed in `derived.py`.
Where to start reading: `Context.read`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from autorecipe.config.views import view_layout, view_seq_length
from autorecipe.rules.derived import DERIVED
from autorecipe.rules.release import BRIDGE_CORE, DEFAULT_CORE, KNOWN_BOUNDS, parse_release
from autorecipe.rules.rule import BRIDGE, MEGATRON_LM
from autorecipe.rules.spelling import plain_name, read_preset
from autorecipe.schema import Cluster, Layout, RunConfig
from autorecipe.schema.run import OriginKind
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
        self.config: RunConfig = config
        self.cluster: Cluster | None = cluster
        self.framework = framework
        self.bridge = config.release or "0.6.2"
        self.core = core_release or BRIDGE_CORE.get(self.bridge, DEFAULT_CORE)
        self.core_given: bool = bool(core_release)
        self.environment = environment
        self.packages = packages or {}
        self.given: Facts = given or {}
        self.saved = saved or {}
        self.found = found or {}
        self.values: Mapping[str, Any] = config.values
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
        """Return the release of a package as comparable numbers, the bound that core sets, or `UNKNOWN`."""
        text = self.packages.get(name)
        if text is not None:
            return parse_release(str(text))
        since, bound = KNOWN_BOUNDS.get(name, ((), None))
        return bound if bound is not None and parse_release(self.core) >= since else UNKNOWN

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
        etp = self.integer("model.expert_tensor_parallel_size") or 0
        if not self.model("num_moe_experts") and etp > 0:
            layout = _replace_etp(layout, etp)
        if layout.etp < 1:
            layout = _replace_etp(layout, 1)
        if self.framework == MEGATRON_LM and self.model("expert_tensor_parallel_size") is None and self.model("num_moe_experts"):
            layout = _replace_etp(layout, layout.tp)
        return layout

    @cached_property
    def env_paths(self) -> tuple[str, ...]:
        """Paths of the recipe's environment variables."""
        return tuple(sorted(path for path in self.values if path.startswith("env_vars.")))

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

    def before_resolution(self, path: str) -> Any:
        """Return what a recipe or an override says, where validation derived another value from it; `UNKNOWN` where not known."""
        origin = self.config.origins.get(path)
        if origin is not None and origin.kind is OriginKind.DERIVED and origin.replaced is not None:
            return origin.replaced
        return self.values.get(path, UNKNOWN)

    def integer(self, path: str) -> int | None:
        """Return an integer value, or None."""
        value = self.values.get(path)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @cached_property
    def graph_modules(self) -> tuple[str, ...] | None:
        """CUDA graph modules in lower case from whichever spelling the release has; None where not known.

        Empty means the whole layer; the deprecated words for it and for the whole iteration are left out.
        """
        if "model.cuda_graph_modules" not in self.values and "model.cuda_graph_scope" not in self.values:
            return None
        return tuple(name for name in self._graph_names() if name not in ("full", "full_iteration", "full_iteration_inference"))

    @cached_property
    def precision(self) -> Mapping[str, Any]:
        """Precision that will act: the preset's fields before the model's, `UNKNOWN` where neither is known.

        Bridge copies every field of `mixed_precision` over the model's, the optimizer's and DDP's at start
        (mixed_precision.py:155 @ 067f987d).
        """
        acting: dict[str, Any] = {}
        preset = self.values.get("mixed_precision") if self.framework == BRIDGE else None
        named = read_preset(preset) if isinstance(preset, str) else {}
        for name in (
            "fp16",
            "bf16",
            "fp8",
            "fp8_recipe",
            "fp8_param",
            "fp4",
            "fp4_recipe",
            "fp4_param",
            "first_last_layers_bf16",
        ):
            own = self.values.get(f"mixed_precision.{name}", UNKNOWN) if self.framework == BRIDGE else UNKNOWN
            if own is UNKNOWN or (own is None and name not in ("fp8", "fp4")):
                own = named.get(name, UNKNOWN)
            acting[name] = self.values.get(f"model.{name}", UNKNOWN) if own is UNKNOWN else own
        return acting

    @cached_property
    def graph_impl(self) -> Any:
        """CUDA graph implementation after upstream's renaming of old spellings; `UNKNOWN` where not known."""
        impl = self.values.get("model.cuda_graph_impl", UNKNOWN)
        if impl in ("none", None, UNKNOWN):
            if self.values.get("model.enable_cuda_graph") is True:
                impl = "local"
            elif self.values.get("model.external_cuda_graph") is True:
                impl = "transformer_engine"
        if impl == "local" and "full_iteration" in self._graph_names():
            return "full_iteration"
        return "none" if impl is None else impl

    def _graph_names(self) -> tuple[str, ...]:
        # The deprecated `cuda_graph_scope` replaces `cuda_graph_modules` where it is set (transformer_config.py:2383 @ 0.19.2).
        for path in ("model.cuda_graph_scope", "model.cuda_graph_modules"):
            value = self.values.get(path)
            if value not in (None, [], (), "full"):
                return tuple(plain_name(item) for item in (value if isinstance(value, list | tuple) else str(value).split(",")))
        return ()


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
