"""What this machine has: memory, cores, GPUs. Read from the operating system and `nvidia-smi`; never from torch."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from autorecipe.record import dataclass
from autorecipe.schema.hardware import Gpu


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One host.

    Attributes:
        num_cores: processor cores that this process may use.
        memory_available_bytes: host memory that can still be taken.
        num_gpus: NVIDIA GPUs; 0 trains on the CPU.
        gpu_title: name of the first GPU; empty without one.
        gpu_memory_bytes: memory of the first GPU; 0 without one.
    """

    num_cores: int
    memory_available_bytes: int
    num_gpus: int = 0
    gpu_title: str = ""
    gpu_memory_bytes: int = 0

    def render(self) -> str:
        """Return one line for the user."""
        if self.num_gpus:
            return f"{self.num_gpus} x {self.gpu_title} ({self.gpu_memory_bytes / 1024**3:.0f} GiB each)"
        return f"no GPU, {self.num_cores} cores, {self.memory_available_bytes / 1024**3:.1f} GiB of memory available"


def read_machine() -> Machine:
    """Read what is here."""
    title, count, memory = _read_gpus()
    return Machine(
        num_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_available_bytes=_available_memory(),
        num_gpus=count,
        gpu_title=title,
        gpu_memory_bytes=memory,
    )


def match_gpu(machine: Machine, known: Mapping[str, Gpu]) -> Gpu | None:
    """Return the known GPU type whose name appears in this machine's GPU title, the longest name first."""
    title = machine.gpu_title.lower().replace("-", " ")
    for name in sorted(known, key=len, reverse=True):
        if name in title.split():
            return known[name]
    return None


def _read_gpus() -> tuple[str, int, int]:
    """Return (name of the first GPU, count, memory of the first in bytes); ("", 0, 0) where there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "", 0, 0
    query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (subprocess.SubprocessError, OSError):
        return "", 0, 0  # a driver that does not answer: torch will not find a GPU either
    rows = [line.rsplit(",", 1) for line in text.splitlines() if "," in line]
    if not rows:
        return "", 0, 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = len(rows) if visible is None else len([item for item in visible.split(",") if item.strip()])
    return (rows[0][0].strip(), count, int(float(rows[0][1])) * 1024**2) if count else ("", 0, 0)


def _available_memory() -> int:
    """Return the lesser of the host's available memory and what a container's limit leaves."""
    candidates = []
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        if "MemAvailable" in fields:
            candidates.append(int(fields["MemAvailable"].split()[0]) * 1024)
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        candidates.append(max(0, int(limit.read_text()) - int(used.read_text())))
    if not candidates:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return int(pages)
    return min(candidates)
