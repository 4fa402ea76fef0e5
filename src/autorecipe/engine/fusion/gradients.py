"""Weight gradients added straight into the main gradient buffer by the matrix product that makes them.

Megatron-Core asks an optional CUDA extension for this; torch's `addmm` with half-precision inputs and a float32 output does the
same. The extension's name and functions are answered here.
"""

from __future__ import annotations

import types
from typing import Any

import torch


def accumulate(main_grad: torch.Tensor, grad_output: torch.Tensor, inputs: torch.Tensor) -> None:
    """Add grad_output^T x inputs to a float32 buffer.

    Args:
        main_grad: float32 [output, input]; changed.
        grad_output: [rows, output].
        inputs: [rows, input], of the same type.
    """
    if main_grad.is_cuda and inputs.dtype != main_grad.dtype:
        torch.addmm(main_grad, grad_output.t(), inputs, out_dtype=main_grad.dtype, out=main_grad)
    else:
        main_grad.addmm_(grad_output.t().to(main_grad.dtype), inputs.to(main_grad.dtype))


def add_weight_gradient(weight: Any, grad_output: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor | None:
    """Add a weight's gradient to its main gradient where it has one; otherwise return it.

    Args:
        weight: parameter [output, input].
        grad_output: [..., output].
        inputs: [..., input].

    Returns:
        what the backward function returns for the weight: None, a placeholder that only triggers the data-parallel hook, or
        the gradient itself.
    """
    if not weight.requires_grad:
        return None
    grad_output, inputs = grad_output.reshape(-1, weight.shape[0]), inputs.reshape(-1, weight.shape[1])
    if not accumulates(weight):
        return grad_output.t() @ inputs
    accumulate(weight.main_grad, grad_output, inputs)
    # Without hooks nothing waits; tied to the embedding, the embedding's gradient triggers the hook.
    if getattr(weight, "reduces_without_hook", False) or getattr(weight, "zero_out_wgrad", False):
        return None
    weight.grad_added_to_main_grad = True
    return torch.empty(weight.shape, dtype=inputs.dtype, device=inputs.device)


def accumulates(weight: Any) -> bool:
    """Return whether a weight has a float32 main gradient that a backward function may add to."""
    main_grad = getattr(weight, "main_grad", None)
    return main_grad is not None and main_grad.dtype == torch.float32 and hasattr(weight, "grad_added_to_main_grad")


def hookless_target(weight: Any) -> torch.Tensor | None:
    """Return the main gradient of a weight whose hook nothing waits for; None where its gradient must be returned."""
    if not weight.requires_grad or not getattr(weight, "reduces_without_hook", False) or not accumulates(weight):
        return None
    main_grad: torch.Tensor = weight.main_grad
    return main_grad


def ready_weight(module: Any) -> torch.Tensor:
    """Return a module's weight, once the hooks that wait for its gathering have run: the module itself is not called."""
    _run_hooks(module)
    weight: torch.Tensor = module.weight
    return weight


def ready_weights(module: Any) -> list[torch.Tensor]:
    """Return the weights of grouped experts, as `ready_weight` does."""
    _run_hooks(module)
    return list(module.weights)


def _run_hooks(module: Any) -> None:
    for hook in module._forward_pre_hooks.values():
        hook(module, ())


def offer_accumulation() -> None:
    """Answer Megatron-Core's linear layers for the missing extension. Call before building a model that uses it."""
    from megatron.core.tensor_parallel import layers

    if layers._grad_accum_fusion_available:
        return

    def accumulate_from_inputs(inputs: torch.Tensor, grad_output: torch.Tensor, main_grad: torch.Tensor) -> None:
        accumulate(main_grad, grad_output, inputs)

    layers.fused_weight_gradient_mlp_cuda = types.SimpleNamespace(
        wgrad_gemm_accum_fp32=accumulate_from_inputs, wgrad_gemm_accum_fp16=accumulate_from_inputs
    )
    layers._grad_accum_fusion_available = True
