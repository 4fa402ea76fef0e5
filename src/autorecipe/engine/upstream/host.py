"""Makes upstream's programs run where there is no CUDA.

The order decides: first marks for what core imports unguarded, then core itself while Transformer Engine is absent, so that it
falls back to its local layers; then this project's modules in place of what core lacks without it; for Bridge, marks for what
Bridge itself imports, last. Leaves out: checkpoint writing by Bridge (its writer spawns a process without the stand-in). Start
at `prepare`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from autorecipe.absent import add_override_decorator, mark_packages

CORE_IMPORTS = {"triton": "3.4.0"}
"""Imported by Megatron-Core 0.19 without a guard; CPU builds of torch do not bring it."""

BRIDGE_IMPORTS = {
    "transformer_engine": "2.9.0",
    "transformer_engine_torch": "2.9.0",
    "mamba_ssm": "2.2.4",
    "causal_conv1d": "1.5.0",
    "nvidia_resiliency_ext": "0.4.1",
    "modelopt": "0.37.0",
    "megatron.energon": "7.0.0",
    "qwen_vl_utils": "0.0.14",
    "wandb": "0.25.0",
    "webdataset": "1.0.2",
}
"""Imported by Megatron Bridge, with versions that satisfy its checks."""

_LAYER_CLASSES = (
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
"""Transformer Engine classes that Bridge subclasses together with torch modules."""

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


def prepare(program: str) -> None:
    """Make core importable and whole on the CPU, before the program imports it.

    Args:
        program: `mlm` or `bridge`.
    """
    import torch
    import torch.distributed as dist

    from autorecipe.engine import compat

    add_override_decorator()
    mark_packages(CORE_IMPORTS, strict=True)
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
    # Both programs refuse to start without CUDA; from here on the stand-in answers for it.
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if program == "bridge":
        mark_packages(BRIDGE_IMPORTS, strict=True, fill=_add_real_names)
        _use_local_layers()


def _use_compiled_helpers() -> None:
    """Take the compiled dataset helpers of an installed Megatron-Core where upstream's tree has none for this Python."""
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


def _add_real_names(module: ModuleType) -> None:
    """Add what must be more than a mark: classes with a torch base, and an answer that a plain run asks for."""
    if module.__name__ == "transformer_engine.pytorch":
        import torch

        for name in _LAYER_CLASSES:
            setattr(module, name, type(name, (torch.nn.Module,), {"__module__": module.__name__}))
    elif module.__name__ == "modelopt.torch.distill.plugins.megatron":
        # Asked in every step; None is its answer for a model that is not being distilled.
        setattr(module, "get_tensor_shapes_adjust_fn_for_distillation", lambda *_, **__: None)  # noqa: B010 - not typed
