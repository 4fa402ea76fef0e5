"""Situations written as words: the examples on each rule, and quick experiments.

`gpus=8 gpu=h100 TP=2 num_moe_experts=8 ddp.overlap_grad_reduce=true env.NCCL_ALGO=Ring given.mode=sft core=0.15`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from autorecipe.record import dataclass, field, replace
from autorecipe.rules.context import Context
from autorecipe.rules.derived import AXIS_PATHS
from autorecipe.rules.rule import BRIDGE, Example
from autorecipe.schema import Cluster, Gpu, RunConfig

CAPABILITIES = {
    "v100": "7.0",
    "a100": "8.0",
    "h100": "9.0",
    "h200": "9.0",
    "b200": "10.0",
    "gb200": "10.0",
    "b300": "10.3",
    "gb300": "10.3",
}


SECTIONS = ("mixed_precision", "comm_overlap", "peft", "dataset", "env_vars")
"""Sections that may also be a value of their own: a preset's name, or unset."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Everything that a check looks at, in one value that can be changed and checked again.

    Attributes:
        config: resolved configuration.
        cluster: GPUs, or None.
        framework: `bridge` or `megatron-lm`.
        core_release: empty for the one that goes with the configuration.
        environment: complete process environment, or None where not known.
        packages: releases of installed packages.
        given: what the launch says beside the configuration.
        saved: configuration of the checkpoint to resume from.
        found: what lies at paths on disk.
    """

    config: RunConfig
    cluster: Cluster | None = None
    framework: str = BRIDGE
    core_release: str = ""
    environment: Mapping[str, Any] | None = None
    packages: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    saved: Mapping[str, Any] = field(default_factory=dict)
    found: Mapping[str, str] = field(default_factory=dict)

    def context(self) -> Context:
        """Return a fresh context for the rules."""
        return Context(
            self.config,
            self.cluster,
            framework=self.framework,
            core_release=self.core_release,
            environment=self.environment,
            packages=self.packages,
            given=self.given,
            saved=self.saved,
            found=self.found,
        )

    def changed(self, overrides: Mapping[str, Any]) -> Situation:
        """Return this situation with overrides applied; `gpus` and `env.NAME` as in `Fix`."""
        values: dict[str, Any] | None = None
        situation = self
        for path, value in overrides.items():
            space, _, name = path.partition(".")
            if path == "gpus":
                if situation.cluster is not None:
                    situation = replace(situation, cluster=replace(situation.cluster, num_gpus=int(value)))
            elif space == "env":
                environment = {**(situation.environment or {}), name: value}
                situation = replace(situation, environment={key: item for key, item in environment.items() if item is not None})
            elif space == "given":
                situation = replace(situation, given={**situation.given, name: value})
            else:
                values = dict(situation.config.values) if values is None else values
                values[path] = value
        if values is not None:
            situation = replace(situation, config=replace(situation.config, values=values))
        return situation


def read_situation(example: Example | str) -> Situation:
    """Read a situation from words.

    Args:
        example: words; bare names are model fields, upper-case names parallel axes, later words win.
    """
    import yaml  # only examples need it, and it is slow to import

    text = example if isinstance(example, str) else example.words
    values: dict[str, Any] = {}
    spaces: dict[str, dict[str, Any]] = {"env": {}, "given": {}, "saved": {}, "found": {}, "package": {}}
    plain: dict[str, Any] = {}
    for word in shlex.split(text):
        key, _, raw = word.partition("=")
        value = yaml.safe_load(raw) if raw else None
        space, _, rest = key.partition(".")
        if space in spaces:
            spaces[space][rest] = value if space != "package" else raw
        elif key in ("gpus", "gpu", "core", "framework", "mode", "kind", "recipe", "release", "gpus_per_node", "environment"):
            plain[key] = raw
        elif key in AXIS_PATHS:
            values[AXIS_PATHS[key]] = value
        else:
            values[key if "." in key or key in SECTIONS else f"model.{key}"] = value
    gpu = plain.get("gpu", "h100")
    cluster = None
    if "gpus" in plain or "gpu" in plain:
        cluster = Cluster(
            gpu=plain_gpu(gpu),
            num_gpus=int(plain.get("gpus", 8)),
            gpus_per_node=int(plain.get("gpus_per_node", 4 if gpu.startswith("g") else 8)),
        )
    known = "environment" in plain or bool(spaces["env"])
    return Situation(
        config=RunConfig(
            values=values,
            mode=plain.get("mode", ""),
            kind=plain.get("kind", ""),
            recipe=plain.get("recipe", ""),
            release=plain.get("release", ""),
        ),
        cluster=cluster,
        framework=plain.get("framework", BRIDGE),
        core_release=plain.get("core", ""),
        environment={name: value for name, value in spaces["env"].items() if value is not None} if known else None,
        packages=spaces["package"],
        given=spaces["given"],
        saved=spaces["saved"],
        found=spaces["found"],
    )


def plain_gpu(name: str) -> Gpu:
    """Return a GPU with the few facts that rules read; memory and speeds are those of no real device."""
    rack = name.startswith("gb")
    return Gpu(
        name=name,
        title=name.upper(),
        memory_bytes=0,
        peak_flops={},
        hbm_bandwidth=0.0,
        nvlink_bandwidth=0.0,
        nvlink_domain_size=72 if rack else 8,
        network_bandwidth=0.0,
        gpus_per_node=4 if rack else 8,
        compute_capability=CAPABILITIES.get(name, "9.0"),
    )
