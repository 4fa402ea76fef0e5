"""A CPU stand-in for CUDA, so that Megatron-Core runs on plain machines over Gloo.

Megatron-Core asks for `device="cuda"`, CUDA streams and CUDA generators by name. `install` answers those calls on the CPU.
Where CUDA is present it does nothing at all. Call it before importing `megatron`.

Leaves out: what Megatron-Core lacks without Transformer Engine, on any device (see `engine.compat`). Start reading at
`install`; `device` holds the tensor and `torch.cuda` side, `collectives` what Gloo lacks.
"""

from __future__ import annotations

import os
import sys

import torch

from autorecipe.engine.standin import collectives, device

_installed = False


def install() -> bool:
    """Install the stand-in, once per process.

    Returns:
        True where the stand-in is active, False where CUDA is present and nothing was changed.
    """
    global _installed
    if _installed:
        return True
    if torch.cuda.is_available():
        return False
    # Megatron-Core wraps small functions in torch.compile at import; on the CPU that costs minutes and gains nothing.
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].config.disable = True
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    device.install()
    collectives.install()
    _installed = True
    return True


def is_active() -> bool:
    """Return whether the stand-in has been installed in this process."""
    return _installed
