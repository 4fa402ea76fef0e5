"""Stand-ins for packages that need CUDA, so that Megatron imports on any machine: which ones, and what must be real in them.

Leaves out any behaviour (`autorecipe.absent` makes the marks); a recipe that would call into such a package gets an inert object.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from autorecipe.absent import MarkFinder, add_override_decorator, is_installed, mark_packages

VERSIONS = {
    "transformer_engine": "2.19.0",
    "transformer_engine_torch": "2.19.0",
    "mamba_ssm": "2.3.2",
    "causal_conv1d": "1.6.0",
    "nvidia_resiliency_ext": "0.6.0",
    "modelopt": "0.46.0",
}
"""Import root -> version that the stand-in claims. Megatron branches on Transformer Engine's version at import."""

VERSIONS_WHERE_MISSING = {
    "megatron.energon": "7.0.0",
    "qwen_vl_utils": "0.0.14",
    "triton": "3.4.0",
    "wandb": "0.25.0",
    "webdataset": "1.0.2",
}
"""As `VERSIONS`, but an installed package is used: these import without a GPU."""

MODULE_BASES = (
    "DotProductAttention",
    "GroupedLinear",
    "LayerNorm",
    "LayerNormLinear",
    "LayerNormMLP",
    "Linear",
    "MultiheadAttention",
    "RMSNorm",
    "TransformerLayer",
)
"""Transformer Engine classes that Megatron subclasses together with torch modules."""


def install() -> MarkFinder:
    """Put the stand-ins before every other importer, whatever is installed, and answer version queries for them."""
    add_override_decorator()
    missing = {name: version for name, version in VERSIONS_WHERE_MISSING.items() if not is_installed(name)}
    return mark_packages({**VERSIONS, **missing}, strict=False, only_absent=False, fill=_add_layer_classes)


def _add_layer_classes(module: ModuleType) -> None:
    """Give Transformer Engine's layer classes a torch base."""
    if module.__name__ != "transformer_engine.pytorch":
        return
    from torch import nn

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        nn.Module.__init__(self)

    for name in MODULE_BASES:
        setattr(module, name, type(name, (nn.Module,), {"__module__": module.__name__, "__init__": __init__}))
