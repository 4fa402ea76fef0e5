"""Pretends to be the GPU that a recipe's name states, because some recipe code branches on the device."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

DEVICES: dict[str, tuple[str, int, int]] = {
    "a100": ("NVIDIA A100-SXM4-80GB", 8, 0),
    "h100": ("NVIDIA H100 80GB HBM3", 9, 0),
    "b200": ("NVIDIA B200", 10, 0),
    "b300": ("NVIDIA B300 SXM6 AC", 10, 3),
    "gb200": ("NVIDIA GB200", 10, 0),
    "gb300": ("NVIDIA GB300", 10, 3),
    # Rubin's compute capability is assumed; recipe code only asks whether its major number is Blackwell's.
    "r100": ("NVIDIA R100", 10, 7),
    "vr200": ("NVIDIA VR200", 10, 7),
}
"""GPU id in recipe names -> device name, compute capability major, minor."""

PROBES = (
    "current_device",
    "device_count",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "is_available",
)


@contextmanager
def pretend(gpu: str) -> Iterator[set[str]]:
    """Answer `torch.cuda` probes as the given GPU would.

    Args:
        gpu: an id of `DEVICES`.

    Yields:
        the set of probes that were used, filled while the block runs.
    """
    name, major, minor = DEVICES[gpu]
    used: set[str] = set()
    properties = types.SimpleNamespace(name=name, major=major, minor=minor, total_memory=80 << 30, multi_processor_count=132)
    answers: dict[str, Any] = {
        "current_device": 0,
        "device_count": 8,
        "get_device_capability": (major, minor),
        "get_device_name": name,
        "get_device_properties": properties,
        "is_available": True,
    }
    saved = {probe: getattr(torch.cuda, probe) for probe in PROBES}
    for probe in PROBES:
        setattr(torch.cuda, probe, _answering(probe, answers[probe], used))
    try:
        yield used
    finally:
        for probe, function in saved.items():
            setattr(torch.cuda, probe, function)


def _answering(probe: str, answer: Any, used: set[str]) -> Callable[..., Any]:
    def respond(*args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        used.add(probe)
        return answer

    return respond
