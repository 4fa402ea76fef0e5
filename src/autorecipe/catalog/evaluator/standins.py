"""Stand-ins for packages that need CUDA, so that Megatron imports on any machine.

Attribute access on a stand-in module creates a class: it can be subclassed, called and used with isinstance. Leaves out any
behaviour; a recipe that would call into such a package gets an inert object.
"""

from __future__ import annotations

import abc
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import typing
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

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


class StandinMeta(abc.ABCMeta):
    """Metaclass whose classes grow nested stand-ins on attribute access; an ABCMeta, as upstream mixes them with ABC."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        member = make_class(f"{cls.__module__}.{cls.__name__}", name)
        setattr(cls, name, member)
        return member

    def __getitem__(cls, parameters: Any) -> Any:
        del parameters  # generic classes: `Base[int]` is as inert as `Base`
        return cls


def make_class(module: str, name: str) -> StandinMeta:
    """Return an inert class that accepts any arguments."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        del self, args, kwargs

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        # As a decorator it leaves the function alone; as anything else it stays inert.
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else self

    return StandinMeta(name, (), {"__module__": module, "__init__": __init__, "__call__": __call__})


class StandinModule(ModuleType):
    """A package in which every name exists."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        member = make_class(self.__name__, name)
        setattr(self, name, member)
        return member


class StandinFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads stand-in packages, and remembers which were used.

    Args:
        versions: import root -> version to claim.
    """

    def __init__(self, versions: Mapping[str, str]) -> None:
        self.versions = versions
        self.used: set[str] = set()

    def root_of(self, fullname: str) -> str | None:
        """Return the stand-in root that a module lies below, or None."""
        return next((root for root in self.versions if fullname == root or fullname.startswith(f"{root}.")), None)

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return a spec for every module below a stand-in root."""
        del path, target
        if self.root_of(fullname) is None:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Create the stand-in package."""
        module = StandinModule(spec.name)
        module.__path__ = []
        module.__version__ = self.versions[self.root_of(spec.name) or ""]  # type: ignore[attr-defined]
        module.__file__ = f"<stand-in {spec.name}>"
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give Transformer Engine's layer classes a torch base; everything else grows on demand."""
        self.used.add(self.root_of(module.__name__) or module.__name__)
        if module.__name__ != "transformer_engine.pytorch":
            return
        from torch import nn

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            del args, kwargs
            nn.Module.__init__(self)

        for name in MODULE_BASES:
            setattr(module, name, type(name, (nn.Module,), {"__module__": module.__name__, "__init__": __init__}))


def install() -> StandinFinder:
    """Put the stand-ins before every other importer, and answer version queries for them."""
    if not hasattr(typing, "override"):
        # Upstream targets Python 3.12; this is the one name it needs that 3.11 lacks.
        def override(method: Any) -> Any:
            return method

        typing.override = override  # type: ignore[attr-defined]
    missing = {name: version for name, version in VERSIONS_WHERE_MISSING.items() if not _is_installed(name)}
    finder = StandinFinder({**VERSIONS, **missing})
    sys.meta_path.insert(0, finder)
    real_version = importlib.metadata.version

    def version(distribution_name: str) -> str:
        root = distribution_name.replace("-", "_").lower()
        return finder.versions[root] if root in finder.versions else real_version(distribution_name)

    importlib.metadata.version = version
    return finder


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
