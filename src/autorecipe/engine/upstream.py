"""Starts an unmodified upstream program: Megatron-LM's `pretrain_gpt.py` or Megatron Bridge's `run_recipe.py`.

    python -m torch.distributed.run --nproc_per_node=2 -m autorecipe.engine.upstream mlm CHECKOUT --num-layers 2 ...
    python -m torch.distributed.run --nproc_per_node=1 -m autorecipe.engine.upstream bridge CHECKOUT --recipe NAME ...

With CUDA it only sets the import path and runs the program. Without, the CPU stand-in is installed first, process groups are
Gloo's, and what core lacks without Transformer Engine comes from this project. No file of the checkout is changed. For Bridge
the order of imports
decides: core first, while Transformer Engine is absent, so that it falls back; then marks for what Bridge itself imports.
Leaves out: checkpoint writing by Bridge on the CPU (its writer spawns a process without the stand-in).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import runpy
import sys
import sysconfig
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCRIPTS = {"mlm": "pretrain_gpt.py", "bridge": "scripts/training/run_recipe.py"}
MARKED_PACKAGES = {
    "transformer_engine": "2.9.0",
    "transformer_engine_torch": "2.9.0",
    "mamba_ssm": "2.2.4",
    "causal_conv1d": "1.5.0",
    "nvidia_resiliency_ext": "0.4.1",
    "modelopt": "0.37.0",
}
"""Packages that Bridge imports and a laptop lacks, with a version that satisfies its checks."""

_CORE_FIRST = (
    "megatron.core",
    "megatron.core.models.gpt.gpt_model",
    "megatron.core.models.gpt.gpt_layer_specs",
    "megatron.core.optimizer",
    "megatron.core.distributed",
    "megatron.core.pipeline_parallel",
    "megatron.core.transformer.transformer_layer",
    "megatron.core.extensions.transformer_engine",
    "megatron.core.tensor_parallel.random",
    "megatron.core.transformer.moe.experts",
    "megatron.core.utils",
)


def main(arguments: Sequence[str]) -> int:
    """Run an upstream program in this process.

    Args:
        arguments: `mlm` or `bridge`, the checkout (or the script in it), and the program's own arguments.

    Returns:
        exit status; the program's own where it exits by itself.
    """
    if len(arguments) < 2 or arguments[0] not in SCRIPTS:
        print(f"usage: python -m autorecipe.engine.upstream {'|'.join(SCRIPTS)} CHECKOUT ARGUMENTS...", file=sys.stderr)
        return 2
    program, place, rest = arguments[0], Path(arguments[1]), list(arguments[2:])
    script = place if place.suffix == ".py" else place / SCRIPTS[program]
    if not script.is_file():
        print(f"error[no-checkout]: {script}: no such file\nhint: clone the upstream repository there", file=sys.stderr)
        return 3
    root = script.parents[2] if program == "bridge" else script.parent
    sys.path[:0] = [str(path) for path in _import_paths(program, root)]
    import torch

    if not torch.cuda.is_available():
        _prepare_host(program)
    sys.argv = [str(script), *rest]
    runpy.run_path(str(script), run_name="__main__")
    return 0


def _import_paths(program: str, root: Path) -> list[Path]:
    """Return where the checkout's packages are; Bridge brings its own Megatron-LM."""
    if program == "mlm":
        return [root]
    paths = [root / "src"]
    bundled = root / "3rdparty" / "Megatron-LM"
    return [*paths, bundled] if (bundled / "megatron").is_dir() else paths


def _prepare_host(program: str) -> None:
    """Make core importable and whole on the CPU, before the program imports it."""
    import torch
    import torch.distributed as dist

    from autorecipe.engine import compat

    if not hasattr(typing, "override"):
        typing.override = lambda function: function  # type: ignore[attr-defined]
    compat.prepare()
    start = dist.init_process_group

    def start_gloo(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        return start("gloo", *args, **kwargs)

    dist.init_process_group = start_gloo
    torch.accelerator.is_available = lambda: False  # the data loader would pin memory
    for name in _CORE_FIRST:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    _use_compiled_helpers()
    _use_own_modules()
    if program == "bridge":
        sys.meta_path.insert(0, MarkFinder())
        _answer_versions()
        torch.cuda.is_available = lambda: True
        torch.cuda.device_count = lambda: int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        _use_local_layers()


def _use_compiled_helpers() -> None:
    """Take the compiled dataset helpers of an installed Megatron-Core where the checkout has none."""
    name = "megatron.core.datasets.helpers_cpp"
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
        return
    folder = Path(sysconfig.get_paths()["purelib"]) / "megatron" / "core" / "datasets"
    built = sorted(folder.glob("helpers_cpp*.so"))
    if built:
        spec = importlib.util.spec_from_file_location(name, built[0])
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
        utils = importlib.import_module("megatron.core.datasets.utils")
        utils.compile_helpers = lambda: None  # type: ignore[attr-defined]


def _use_own_modules() -> None:
    """Give core's local layer specification this project's norms and attention, and its optimizer this project's Adam."""
    from autorecipe.engine.adam import Adam
    from autorecipe.engine.modules.norm import Norm
    from autorecipe.engine.modules.spec import OwnProvider

    specs = importlib.import_module("megatron.core.models.gpt.gpt_layer_specs")
    specs.LocalSpecProvider = OwnProvider  # type: ignore[attr-defined]
    for name in ("megatron.core.models.gpt.gpt_layer_specs", "megatron.core.models.backends"):
        module = importlib.import_module(name)
        if hasattr(module, "LNImpl"):
            setattr(module, "LNImpl", Norm)  # noqa: B010 - the module is not typed
    block = importlib.import_module("megatron.core.transformer.transformer_block")
    block.LayerNormImpl = Norm  # type: ignore[attr-defined]
    prediction = importlib.import_module("megatron.core.transformer.multi_token_prediction")
    if hasattr(prediction, "LocalSpecProvider"):
        setattr(prediction, "LocalSpecProvider", OwnProvider)  # noqa: B010 - the module is not typed
    optimizer = importlib.import_module("megatron.core.optimizer")
    if getattr(optimizer, "USING_PYTORCH_OPTIMIZER", False):
        sharded = importlib.import_module("megatron.core.optimizer.distrib_optimizer")
        optimizer.Adam = sharded.Adam = Adam  # type: ignore[attr-defined]
        optimizer.USING_PYTORCH_OPTIMIZER = False  # type: ignore[attr-defined]
        sharded.HAVE_APEX_OR_TE = sharded.USING_APEX_OPTIMIZER = True  # type: ignore[attr-defined]


def _use_local_layers() -> None:
    """Let Bridge's GPT provider take core's local layers: there is no Transformer Engine to take."""
    provider = importlib.import_module("megatron.bridge.models.gpt_provider")
    provider.transformer_engine_layer_spec = provider.local_layer_spec  # type: ignore[attr-defined]
    if hasattr(provider, "default_layer_spec"):
        setattr(provider, "default_layer_spec", provider.local_layer_spec)  # noqa: B010 - the module is not typed


class _MarkType(type):
    """The type of marks: any attribute is another mark."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        mark = _make_mark(f"{cls.__module__}.{cls.__name__}", name)
        setattr(cls, name, mark)
        return mark


def _make_mark(module: str, name: str) -> type:
    return _MarkType(name, (), {"__module__": module, "__init__": lambda self, *args, **kwargs: None})


class _MarkModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        mark = _make_mark(self.__name__, name)
        setattr(self, name, mark)
        return mark


class MarkFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports packages that are absent as empty marks, so that what never runs can still be named."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Return a specification for the marked packages and everything below them."""
        if fullname.split(".")[0] in MARKED_PACKAGES:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Return a module whose attributes are marks."""
        module = _MarkModule(spec.name)
        module.__path__ = []
        module.__version__ = MARKED_PACKAGES[spec.name.split(".")[0]]  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Give Transformer Engine's layer classes a torch base, because others derive from them."""
        if module.__name__ == "transformer_engine.pytorch":
            import torch

            for name in (
                "Linear",
                "LayerNormLinear",
                "LayerNorm",
                "RMSNorm",
                "DotProductAttention",
                "GroupedLinear",
                "LayerNormMLP",
            ):
                setattr(module, name, type(name, (torch.nn.Module,), {"__module__": module.__name__}))


def _answer_versions() -> None:
    """Answer version questions about the marked packages."""
    real = importlib.metadata.version

    def version(distribution_name: str) -> str:
        marked = MARKED_PACKAGES.get(distribution_name.replace("-", "_"))
        return marked if marked is not None else real(distribution_name)

    importlib.metadata.version = version


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
