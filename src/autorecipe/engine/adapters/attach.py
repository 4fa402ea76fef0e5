"""Freezes a model and gives its targeted linear layers adapters. Start reading at `attach_adapters`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from autorecipe.engine.adapters.experts import adapt_grouped, can_adapt_grouped
from autorecipe.engine.adapters.layers import adapt, can_adapt
from autorecipe.engine.adapters.settings import AdapterSettings
from autorecipe.errors import Problem, UsageError

_LOCAL_LAYER = re.compile(r"(?<=\bdecoder\.layers\.)\d+")
_LOCAL_EXPERT = re.compile(r"(?<=\.local_experts\.)\d+")


def attach_adapters(chunks: Sequence[Any], settings: AdapterSettings, *, seed: int) -> None:
    """Freeze the models of this rank and attach adapters, in place; only these train and are saved from then on.

    Called by every rank. A pipeline stage without a targeted layer only passes on what it gets.

    Args:
        chunks: bare GPT models with their final weights.
        settings: the adapter.
        seed: of the run.

    Raises:
        UsageError: on every rank alike: a targeted layer cannot take an adapter, or no layer of the model is targeted.
    """
    from megatron.core.tensor_parallel import set_defaults_if_not_set_tensor_model_parallel_attributes

    targets = [(name, module) for chunk in chunks for name, module in _named_linears(chunk) if settings.matches(name)]
    _agree([problem for name, module in targets if (problem := _refusal(name, module)) is not None], settings, len(targets))
    for chunk in chunks:
        chunk.requires_grad_(False)
        chunk.trains_adapter_only = True
        # The bias that balances experts is no parameter: it would go on changing, and is not saved with an adapter.
        chunk.config.moe_router_bias_update_rate = 0.0
        if hasattr(chunk, "embedding"):
            # Recomputed layers and earlier pipeline stages pass gradients on only where their input asks for some.
            chunk.embedding.register_forward_hook(_ask_for_gradient)
    for name, module in targets:
        attach = adapt_grouped if can_adapt_grouped(module) else adapt
        attach(module, settings, name=name, seed=seed)
    for chunk in chunks:
        for parameter in chunk.parameters():
            set_defaults_if_not_set_tensor_model_parallel_attributes(parameter)


def _agree(problems: list[Problem], settings: AdapterSettings, count: int) -> None:
    """Raise on every rank what any rank found."""
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, (problems, count))
    if not any(found for _, found in everywhere):
        message = f"no linear layer matches {list(settings.targets or settings.excluded)!r}"
        hint = "use names such as linear_qkv, linear_proj, linear_fc1, linear_fc2, or patterns such as *.layers.0.*.linear_qkv"
        raise UsageError(Problem(path="peft.target_modules", code="no-match", message=message, hint=hint))
    every = [problem for found, _ in everywhere for problem in found]
    if every:
        raise UsageError(list(dict.fromkeys(every))[:20])


def count_trainable(chunks: Sequence[Any]) -> int:
    """Return the parameters of this rank that train."""
    return sum(parameter.numel() for chunk in chunks for parameter in chunk.parameters() if parameter.requires_grad)


def _named_linears(chunk: Any) -> Iterator[tuple[str, Any]]:
    """Yield linear layers under names that count layers over the whole model, whatever the pipeline layout."""
    numbers = {
        f"decoder.layers.{index}": layer.layer_number - 1
        for index, layer in enumerate(chunk.decoder.layers if getattr(chunk, "decoder", None) is not None else ())
    }
    for name, module in chunk.named_modules():
        last = name.rsplit(".", 1)[-1]
        if last.startswith("linear_"):
            head = ".".join(name.split(".")[:3])
            full = _LOCAL_LAYER.sub(str(numbers[head]), name, count=1) if head in numbers else name
            yield _LOCAL_EXPERT.sub(lambda found: str(_first_expert(chunk) + int(found[0])), full), module


def _first_expert(chunk: Any) -> int:
    """Return the number of this rank's first expert over the whole layer."""
    from megatron.core import parallel_state

    size, rank = (
        parallel_state.get_expert_model_parallel_world_size(),
        parallel_state.get_expert_model_parallel_rank(),
    )
    return int(chunk.config.num_moe_experts) // size * rank


def _refusal(name: str, module: Any) -> Problem | None:
    hint = "leave it out of peft.target_modules, such as peft.target_modules=[linear_qkv,linear_proj]; or add --engine bridge"
    if not can_adapt(module) and not can_adapt_grouped(module):
        why = f"a {type(module).__name__} takes no adapter in --engine core"
        if "TE" in type(module).__name__:
            hint = "add engine.modules=own"
    elif getattr(module, "gather_output", False):
        why = "a layer that gathers its output takes no adapter in --engine core"
    else:
        return None
    return Problem(path="peft.target_modules", code="engine-unsupported", message=f"{name}: {why}", hint=hint)


def _ask_for_gradient(_module: Any, _arguments: Any, output: Any) -> Any:
    if torch.is_grad_enabled() and not output.requires_grad:
        return output.requires_grad_(True)
    return output
