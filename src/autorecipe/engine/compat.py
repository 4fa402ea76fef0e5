"""Differences between Megatron-Core releases, and its gaps where Transformer Engine is absent.

Supported: 0.16.1 (the last for Python 3.11) to 0.19.2. Everything that asks "which release?" is here, and asks for the
feature, not for the number. Start reading at `prepare`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import torch

from autorecipe.engine import standin


@functools.cache
def prepare() -> None:
    """Make Megatron-Core importable and whole on this machine. Call before any other use of it; later calls cost nothing."""
    on_host = standin.install()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of each optional package that is absent
        import megatron.core

        _fill_transformer_engine_gaps()
        if on_host:
            from autorecipe.engine.standin import megatron as host

            host.adapt()
    # Printed once per deprecated default on every rank; nothing here can be changed by the user.
    warnings.filterwarnings("ignore", module=r"megatron\.core\..*")
    assert megatron.core.__version__


@functools.cache
def has_transformer_engine() -> bool:
    """Return whether Transformer Engine is installed."""
    return importlib.util.find_spec("transformer_engine") is not None


def core_release() -> str:
    """Return the installed Megatron-Core release, such as `0.16.1`."""
    import megatron.core

    return str(megatron.core.__version__)


def accepted(function: Callable[..., Any], **optional: Any) -> dict[str, Any]:
    """Return those keyword arguments that a function of this release accepts."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return optional
    return {name: value for name, value in optional.items() if name in parameters}


def slice_for_context_parallel(batch: dict[str, torch.Tensor], group: Any) -> dict[str, torch.Tensor]:
    """Keep this rank's two chunks of every sequence in a batch.

    The group is always named: without it release 0.19 takes the whole world in silence.
    """
    from megatron.core.utils import get_batch_on_this_cp_rank

    options = accepted(get_batch_on_this_cp_rank, is_hybrid_cp=False)
    sliced: dict[str, torch.Tensor] = get_batch_on_this_cp_rank(dict(batch), cp_group=group, **options)
    return sliced


def experts_spec(module: type, columns: type, rows: type) -> Any:
    """Describe grouped experts: a pair of class and submodules up to 0.16, a builder afterwards."""
    from megatron.core.transformer.moe import experts

    if hasattr(experts, "GroupedMLPSubmodules"):
        submodules = experts.GroupedMLPSubmodules(linear_fc1=columns, linear_fc2=rows)
        return functools.partial(module, submodules=submodules)
    from megatron.core.transformer.mlp import MLPSubmodules

    return module, MLPSubmodules(linear_fc1=columns, linear_fc2=rows)


def mark_expert_parameters(model: torch.nn.Module) -> None:
    """Let gradients of experts be reduced over the mesh of experts wherever it is not the dense one.

    Release 0.16 asks for EP > 1 alone. With TP 2, EP 1 and expert TP 1 both ranks then hold all experts, see other tokens, and
    never add up their gradients; 0.19 asks for the expert tensor parallel size as well (tensor_parallel/layers.py:961 @ 0.19.2).

    Args:
        model: a bare model, before gradient buffers are made.
    """
    config: Any = model.config
    if not config.num_moe_experts:
        return
    if config.expert_model_parallel_size == 1 and config.expert_tensor_parallel_size == config.tensor_model_parallel_size:
        return
    for name, parameter in model.named_parameters():
        if ".experts." in f".{name}":
            parameter.allreduce = False


def _fill_transformer_engine_gaps() -> None:
    """Repair the modules that use names of Transformer Engine without having imported it."""
    if has_transformer_engine():
        return
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.moe import moe_utils

    if not hasattr(random, "FP8GlobalStateManager"):  # recompute of single modules asks it whether fp8 is on
        random.FP8GlobalStateManager = types.SimpleNamespace(is_fp8_enabled=lambda: False, get_fp8_recipe=lambda: None)
        random.activation_recompute_forward = random.fp8_autocast = lambda *_, **__: contextlib.nullcontext()
    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None
    _replace_mocks()


def _replace_mocks() -> None:
    """Replace the mock objects that stand for Transformer Engine's classes by empty classes: isinstance refuses mocks."""
    for name in ("extensions.transformer_engine", "transformer.multi_latent_attention", "transformer.multi_token_prediction"):
        importlib.import_module(f"megatron.core.{name}")
    replaced: dict[int, type] = {}
    for name, module in list(sys.modules.items()):
        if not name.startswith("megatron.core") or module is None:
            continue
        for attribute, value in list(vars(module).items()):
            if isinstance(value, MagicMock) and attribute[:1].isupper():
                setattr(module, attribute, replaced.setdefault(id(value), type(attribute, (), {})))
