"""Differentiable functions over single kernels; `fusion.blocks` joins several into halves of a layer.

Shapes: S sequence, B batch, H hidden size, F feed-forward width on this rank, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch

from autorecipe.engine.fusion.backend import backend
from autorecipe.engine.fusion.gradients import add_weight_gradient, hookless_target


class SwigluLinear(torch.autograd.Function):
    """SwiGLU followed by a linear layer; the activation is computed again in the backward pass instead of being kept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Return [S, B, H] from x [S, B, 2F] and weight [H, F]."""
        ctx.save_for_backward(x, weight)
        active: torch.Tensor = backend(x).swiglu(x)
        return active @ weight.t()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the gradients of x and of the weight."""
        x, weight = ctx.saved_tensors
        grad = grads[0]
        grad_x, active = backend(x).swiglu_backward(x, (grad @ weight).contiguous())
        return grad_x, add_weight_gradient(weight, grad, active)


class Rotate(torch.autograd.Function):
    """Rotary position embedding."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Return x [S, B, heads, head size] rotated by cos and sin [S, R / 2]."""
        ctx.save_for_backward(cos, sin)
        turned: torch.Tensor = backend(x).rotate(x, cos, sin)
        return turned

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Rotate the gradient back."""
        grad = grads[0]
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        return backend(grad).rotate(grad, *ctx.saved_tensors, inverse=True), None, None


class LinearCrossEntropy(torch.autograd.Function):
    """Output projection and cross entropy; keeps one half-precision matrix [S x B, V], first logits, then their gradient."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of each token, float32 [S x B].

        Args:
            ctx: autograd context.
            hidden: [S x B, H].
            weight: [V, H].
            labels: int64 [S x B].
        """
        logits = hidden @ weight.t()
        losses: torch.Tensor = backend(logits).cross_entropy_(logits, labels)
        ctx.save_for_backward(hidden, weight, logits)
        return losses

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        """Return the gradients of the hidden states and of the weight; each row is scaled by its loss's gradient."""
        hidden, weight, grad_logits = ctx.saved_tensors
        scale = grads[0].to(torch.float32)
        kernels = backend(hidden)
        grad_hidden = kernels.scale_rows(grad_logits @ weight, scale)
        return grad_hidden, add_weight_gradient(weight, grad_logits, kernels.scale_rows(hidden, scale)), None


class RmsNorm(torch.autograd.Function):
    """RMS normalisation of the last dimension."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0) -> torch.Tensor:
        """Return x [..., H] normalised and scaled by weight [H] + offset."""
        x = x.contiguous()
        out, scale = backend(x).rms_norm(x, weight, eps, offset)
        ctx.save_for_backward(x, weight, scale)
        ctx.offset = offset
        normal: torch.Tensor = out
        return normal

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None, None]:
        """Return the gradients of x and of the weight."""
        x, weight, scale = ctx.saved_tensors
        into = hookless_target(weight)
        grad_x, grad_weight = backend(x).norm_backward(x, weight, scale, grads[0].contiguous(), ctx.offset, into=into)
        return grad_x, None if grad_weight is None else grad_weight.to(weight.dtype), None, None


class Lookup(torch.autograd.Function):
    """Embedding whose gradient is added to the rows of the main gradient, without a dense gradient in between."""

    @staticmethod
    def forward(ctx: Any, ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Return [..., H] from int64 ids [...] and weight [V, H]."""
        ctx.save_for_backward(ids)
        ctx.weight = weight
        return torch.nn.functional.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[None, None]:
        """Add to the main gradient, equal ids in a fixed order."""
        (ids,) = ctx.saved_tensors
        rows = grads[0].reshape(-1, grads[0].shape[-1]).to(ctx.weight.main_grad.dtype)
        ctx.weight.main_grad.index_put_((ids.reshape(-1),), rows, accumulate=True)
        return None, None
