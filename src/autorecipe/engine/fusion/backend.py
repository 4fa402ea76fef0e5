"""Chooses who computes: Triton on CUDA (and in Triton's interpreter), plain torch elsewhere."""

from __future__ import annotations

import functools
import importlib.util
import os
from typing import Any

import torch

from autorecipe.engine.fusion import formulas


def backend(x: torch.Tensor) -> Any:
    """Return the module whose functions act on a tensor's device: `fusion.kernels` or `fusion.formulas`."""
    if not has_triton() or not (x.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"):
        return formulas
    from autorecipe.engine.fusion import kernels

    return kernels


@functools.cache
def has_triton() -> bool:
    """Return whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


def can_fuse() -> bool:
    """Return whether the kernels can run here: a CUDA device, and Triton."""
    return torch.cuda.is_available() and has_triton()
