"""GPU facts, each with its source."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from autorecipe.datafiles import data_file, read_lines
from autorecipe.errors import UsageError, unknown_name
from autorecipe.schema.evidence import Evidence, Provenance
from autorecipe.schema.hardware import Cluster, Gpu

GPUS = data_file("gpus.jsonl")
"""One GPU a line; every attribute with `value`, `source` and `evidence`."""

SAME_AS = {"r100": "vr200", "rubin": "vr200", "a100_80gb": "a100", "h100_80gb": "h100"}
"""Other ids of the same GPU."""


@functools.lru_cache(maxsize=1)
def load_gpus() -> Mapping[str, Gpu]:
    """Return GPUs by id, such as `h100`.

    Raises:
        EnvironmentProblem: the data file is missing or damaged.
    """
    gpus: dict[str, Gpu] = {}
    for line in read_lines(GPUS):
        facts = line["facts"]
        gpus[line["id"]] = Gpu(
            name=line["id"],
            title=line["title"],
            provenance={
                name: Provenance(source=fact["source"], evidence=Evidence(fact["evidence"])) for name, fact in facts.items()
            },
            **{name: fact["value"] for name, fact in facts.items()},
        )
    for alias, target in SAME_AS.items():
        gpus[alias] = gpus[target]
    return gpus


def find_gpu(name: str) -> Gpu:
    """Return one GPU by id, whatever its case and separators.

    Raises:
        UsageError: unknown id, with near misses.
    """
    gpus = load_gpus()
    folded = name.lower().replace("-", "_").replace(" ", "_")
    if folded not in gpus:
        raise UsageError(unknown_name("gpu", name, list(gpus), hint=f"use one of {', '.join(gpus)}"))
    return gpus[folded]


def make_cluster(name: str, num_gpus: int) -> Cluster:
    """Return a cluster of one GPU type with its usual GPUs per host (fewer GPUs than that are one host)."""
    gpu = find_gpu(name)
    return Cluster(gpu=gpu, num_gpus=num_gpus, gpus_per_node=min(gpu.gpus_per_node, num_gpus))
