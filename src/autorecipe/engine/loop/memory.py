"""What memory a process uses: the CUDA allocator's counters, or the resident set on the CPU."""

from __future__ import annotations

import resource
from pathlib import Path

import torch

from autorecipe.engine.graphs import held_bytes

MIB = 1024.0 * 1024.0


def read_memory_mib() -> dict[str, float]:
    """Return figures by name in MiB: Megatron-LM's four on CUDA, resident and max resident memory on the CPU.

    What CUDA graphs compute in is not in the allocator's count of allocated memory; it is added to the largest.
    """
    if torch.cuda.is_available():
        allocated = torch.cuda.memory_allocated()
        return {
            "allocated": allocated / MIB,
            "max allocated": max(torch.cuda.max_memory_allocated(), allocated + held_bytes()) / MIB,
            "reserved": torch.cuda.memory_reserved() / MIB,
            "max reserved": torch.cuda.max_memory_reserved() / MIB,
        }
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    status = Path("/proc/self/statm")
    if not status.exists():
        return {"max resident": peak_mib}
    pages = int(status.read_text().split()[1])
    return {"resident": pages * resource.getpagesize() / MIB, "max resident": peak_mib}
