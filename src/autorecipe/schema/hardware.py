"""GPUs and clusters."""

from __future__ import annotations

from collections.abc import Mapping

from autorecipe.record import dataclass, field
from autorecipe.schema.evidence import Provenance


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU type, as its published facts.

    Attributes:
        name: lower-case id as used in recipe names, such as `h100`.
        title: vendor's name.
        memory_bytes: device memory by the vendor's data sheet (bytes).
        peak_flops: dense peak FLOP/s by precision id (`bf16`, `fp8`, `mxfp8`, `nvfp4`, `fp32`).
        hbm_bandwidth: bytes/s.
        nvlink_bandwidth: bytes/s, one direction, per GPU.
        nvlink_domain_size: GPUs that reach each other over NVLink.
        network_bandwidth: bytes/s, one direction, per GPU, between NVLink domains.
        gpus_per_node: usual GPUs of one host.
        compute_capability: such as `9.0`.
        visible_memory_bytes: device memory that a process was seen to have (bytes), or None; see `usable_memory`.
        measured_hbm_bandwidth: bytes/s that a copy was seen to reach, reads and writes together, or None.
        provenance: source per attribute name.
    """

    name: str
    title: str
    memory_bytes: int
    peak_flops: Mapping[str, float]
    hbm_bandwidth: float
    nvlink_bandwidth: float
    nvlink_domain_size: int
    network_bandwidth: float
    gpus_per_node: int
    compute_capability: str
    visible_memory_bytes: int | None = None
    measured_hbm_bandwidth: float | None = None
    provenance: Mapping[str, Provenance] = field(default_factory=dict)

    @property
    def usable_memory(self) -> tuple[str, int]:
        """Memory by which it is judged what fits: (name of the fact, bytes).

        What a process sees, where that is known: data sheets count in other units and leave out what the driver keeps (H100: 80
        printed, 79.1 GiB seen; H200: 141 GB printed, which is 131.3 GiB, 139.8 GiB seen). Else the data sheet's.
        """
        if self.visible_memory_bytes is not None:
            return "visible_memory_bytes", self.visible_memory_bytes
        return "memory_bytes", self.memory_bytes

    @property
    def has_rack_scale_nvlink(self) -> bool:
        """Whether NVLink reaches beyond one node (NVL72 class)."""
        return self.nvlink_domain_size > self.gpus_per_node


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """GPUs of one type given to one run.

    Attributes:
        gpu: the GPU type.
        num_gpus: total GPUs (the world size).
        gpus_per_node: GPUs of each host.
    """

    gpu: Gpu
    num_gpus: int
    gpus_per_node: int

    @property
    def num_nodes(self) -> int:
        """Hosts needed, rounded up."""
        return -(-self.num_gpus // self.gpus_per_node)

    @property
    def nvlink_reach(self) -> int:
        """GPUs that NVLink joins in this cluster, the largest sensible TP: the host, or the domain of rack-scale NVLink."""
        return self.gpu.nvlink_domain_size if self.gpu.has_rack_scale_nvlink else self.gpus_per_node
