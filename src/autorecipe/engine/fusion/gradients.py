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
        grad_output: [rows, output], half precision.
        inputs: [rows, input], half precision.
    """
    torch.addmm(main_grad, grad_output.t(), inputs, out_dtype=main_grad.dtype, out=main_grad)


def add_weight_gradient(weight: Any, grad_output: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor | None:
    """Add a weight's gradient to its main gradient where it has one; otherwise return it.

    Args:
        weight: parameter [output, input].
        grad_output: [rows, output].
        inputs: [rows, input].

    Returns:
        what the backward function returns for the weight: None, a placeholder that only triggers the data-parallel hook, or
        the gradient itself.
    """
    main_grad = getattr(weight, "main_grad", None)
    if main_grad is None or main_grad.dtype != torch.float32 or not hasattr(weight, "grad_added_to_main_grad"):
        return grad_output.t() @ inputs
    accumulate(main_grad, grad_output, inputs)
    if getattr(weight, "zero_out_wgrad", False):  # tied to the embedding, whose gradient triggers the hook
        return None
    weight.grad_added_to_main_grad = True
    return torch.empty(weight.shape, dtype=inputs.dtype, device=inputs.device)


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
