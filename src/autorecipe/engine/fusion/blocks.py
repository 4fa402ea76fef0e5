"""The two halves of a transformer layer, each from one normalisation to the next.

A half is `y = inner(normal); total = residual + y; normal = norm(total)`: the addition and the next normalisation are one kernel,
and so are their backward passes. Weight gradients go straight into main gradients where there are some.

Shapes: S sequence, B batch, H hidden size, F feed-forward width, G key/value heads, D head size.
"""

from __future__ import annotations

from typing import Any

import torch

from autorecipe.engine.fusion.backend import backend
from autorecipe.engine.fusion.gradients import add_weight_gradient, hookless_target


class Heads(torch.autograd.Function):
    """Projection to query, key and value heads, and their rotation."""

    @staticmethod
    def forward(
        ctx: Any,
        normal: torch.Tensor,
        weight: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        groups: int,
        per_group: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return query [S, B, G x per_group, D], key and value [S, B, G, D].

        Args:
            ctx: autograd context.
            normal: [S, B, H].
            weight: [G x (per_group + 2) x D, H]: of each group its query heads, then its key, then its value.
            cos: [S, R / 2], R <= D rotated dimensions.
            sin: [S, R / 2].
            groups: G.
            per_group: query heads of each key/value head.
        """
        ctx.save_for_backward(normal, weight, cos, sin)
        heads: tuple[torch.Tensor, ...] = backend(normal).split_heads(normal @ weight.t(), cos, sin, groups, per_group)
        query, key, value = heads
        return query, key, value

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None, None, None, None]:
        """Return the gradients of the input and of the weight."""
        normal, weight, cos, sin = ctx.saved_tensors
        mixed = backend(normal).merge_heads(*grads, cos, sin)
        return mixed @ weight, add_weight_gradient(weight, mixed, normal), None, None, None, None


class Project(torch.autograd.Function):
    """Output projection of attention, addition to the residual, normalisation of the sum."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        residual: torch.Tensor,
        norm_weight: torch.Tensor,
        eps: float,
        offset: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sum and its normalised form, [S, B, H].

        Args:
            ctx: autograd context.
            x: attended values, [S, B, heads x D].
            weight: [H, heads x D].
            residual: [S, B, H].
            norm_weight: [H].
            eps: of the norm.
            offset: added to the norm's weight.
        """
        total, normal, scale = backend(x).add_norm(x @ weight.t(), residual, norm_weight, eps, offset, in_place=True)
        ctx.save_for_backward(x, weight, total, norm_weight, scale)
        ctx.offset = offset
        ctx.set_materialize_grads(False)
        return total, normal

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of the attended values, the weight, the residual and the norm's weight."""
        x, weight, total, norm_weight, scale = ctx.saved_tensors
        grad, grad_norm = _through_norm(total, norm_weight, scale, ctx.offset, *grads)
        return grad @ weight, add_weight_gradient(weight, grad, x), grad, grad_norm, None, None


class FeedForward(torch.autograd.Function):
    """Gated feed-forward layer, addition to the residual, normalisation of the sum; the activation is computed twice."""

    @staticmethod
    def forward(
        ctx: Any,
        normal: torch.Tensor,
        up: torch.Tensor,
        down: torch.Tensor,
        residual: torch.Tensor,
        norm_weight: torch.Tensor | None,
        eps: float,
        offset: float,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Return the sum, [S, B, H], and its normalised form where there is a norm.

        Args:
            ctx: autograd context.
            normal: [S, B, H].
            up: gate over linear, [2F, H].
            down: [H, F].
            residual: [S, B, H].
            norm_weight: of the next norm, [H], or None.
            eps: of the next norm.
            offset: added to its weight.
        """
        kernels = backend(normal)
        inner = normal @ up.t()  # [S, B, 2F]
        out = kernels.swiglu(inner) @ down.t()
        ctx.offset = offset
        ctx.set_materialize_grads(False)
        if norm_weight is None:
            ctx.save_for_backward(normal, up, down, inner)
            total: torch.Tensor = out.add_(residual)
            return total
        total, following, scale = kernels.add_norm(out, residual, norm_weight, eps, offset, in_place=True)
        ctx.save_for_backward(normal, up, down, inner, total, norm_weight, scale)
        return total, following

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of the input, both weights, the residual and the norm's weight."""
        normal, up, down, inner, *rest = ctx.saved_tensors
        grad, grad_norm = grads[0], None
        if rest:
            grad, grad_norm = _through_norm(*rest, ctx.offset, *grads)
        assert grad is not None
        grad = grad.contiguous()
        grad_inner, active = backend(normal).swiglu_backward(inner, grad @ down)
        grad_down = add_weight_gradient(down, grad, active)
        del active
        return grad_inner @ up, add_weight_gradient(up, grad_inner, normal), grad_down, grad, grad_norm, None, None


class AddNorm(torch.autograd.Function):
    """Addition to the residual and normalisation of the sum, after a half that is not fused."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, residual: torch.Tensor, norm_weight: torch.Tensor, eps: float, offset: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sum and its normalised form, [S, B, H]."""
        total, normal, scale = backend(x).add_norm(x.contiguous(), residual, norm_weight, eps, offset)
        ctx.save_for_backward(total, norm_weight, scale)
        ctx.offset = offset
        ctx.set_materialize_grads(False)
        return total, normal

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of both addends and of the norm's weight."""
        grad, grad_norm = _through_norm(*ctx.saved_tensors, ctx.offset, *grads)
        return grad, grad, grad_norm, None, None


def _through_norm(
    total: torch.Tensor,
    norm_weight: torch.Tensor,
    scale: torch.Tensor,
    offset: float,
    *grads: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the gradient of a sum that was also normalised, and that of the norm's weight (None: already added, or none).

    Args:
        total: the sum, [S, B, H].
        norm_weight: [H].
        scale: 1 / rms of each row, float32 [S, B].
        offset: added to the norm's weight.
        grads: of the sum and of its normalised form; None where nothing used it.
    """
    grad_total, grad_normal = grads
    passed = None if grad_total is None else grad_total.contiguous()
    if grad_normal is None:
        assert passed is not None
        return passed, None
    into = hookless_target(norm_weight)
    grad, grad_weight = backend(total).norm_backward(
        total, norm_weight, scale, grad_normal.contiguous(), offset, passed=passed, into=into
    )
    return grad, None if grad_weight is None else grad_weight.to(norm_weight.dtype)
