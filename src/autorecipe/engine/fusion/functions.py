"""Differentiable functions over the kernels.

Shapes: S sequence, B batch, H hidden size, F feed-forward width on this rank, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch

from autorecipe.engine.fusion import kernels
from autorecipe.engine.fusion.gradients import add_weight_gradient


class SwigluLinear(torch.autograd.Function):
    """SwiGLU followed by a linear layer; the activation is computed again in the backward pass instead of being kept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Return [S, B, H] from x [S, B, 2F] and weight [H, F]."""
        ctx.save_for_backward(x, weight)
        active = kernels.swiglu(x.view(-1, x.shape[-1]))
        return (active @ weight.t()).view(*x.shape[:-1], weight.shape[0])

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the gradients of x and of the weight."""
        x, weight = ctx.saved_tensors
        grad = grads[0].reshape(-1, weight.shape[0])
        grad_x, active = kernels.swiglu_backward(x.view(-1, x.shape[-1]), grad @ weight)
        return grad_x.view(x.shape), add_weight_gradient(weight, grad, active)


class Rotate(torch.autograd.Function):
    """Rotary position embedding."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Return x [S, B, heads, head size] rotated by cos and sin [S, R / 2]."""
        ctx.save_for_backward(cos, sin)
        return kernels.rotate(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Rotate the gradient back."""
        grad = grads[0]
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        return kernels.rotate(grad, *ctx.saved_tensors, inverse=True), None, None


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
        losses = kernels.cross_entropy_(logits, labels)
        ctx.save_for_backward(hidden, weight, logits)
        return losses

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        """Return the gradients of the hidden states and of the weight; each row is scaled by its loss's gradient."""
        hidden, weight, grad_logits = ctx.saved_tensors
        scale = grads[0].to(torch.float32)[:, None]
        grad_hidden = ((grad_logits @ weight) * scale).to(hidden.dtype)
        grad_weight = add_weight_gradient(weight, grad_logits, (hidden * scale).to(hidden.dtype))
        return grad_hidden, grad_weight, None


class RmsNorm(torch.autograd.Function):
    """RMS normalisation of the last dimension."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Return x [..., H] normalised and scaled by weight [H]."""
        rows = x.reshape(-1, x.shape[-1])
        out, scale = kernels.rms_norm(rows, weight, eps)
        ctx.save_for_backward(rows, weight, scale)
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        """Return the gradients of x and of the weight."""
        rows, weight, scale = ctx.saved_tensors
        grad = grads[0].reshape(rows.shape)
        grad_x, grad_weight = kernels.rms_norm_backward(rows, weight, scale, grad.contiguous())
        return grad_x.view(grads[0].shape), grad_weight.to(weight.dtype), None


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
