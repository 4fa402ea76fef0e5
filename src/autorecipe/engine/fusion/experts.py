"""Grouped experts: all of a layer's experts in single calls, without waiting for who goes where.

`GroupedProduct` is one linear layer of the experts, for every dispatcher. `Experts` is a whole layer of experts that live on
this rank: rows are gathered, multiplied and summed without a dispatcher. Start reading at `fuse_experts`.

Shapes: N tokens, K experts of each, R = N x K rows sorted by expert, H hidden size, F width of an expert, E experts.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F

from autorecipe.engine.fusion.backend import backend
from autorecipe.engine.fusion.gradients import accumulates, ready_weights
from autorecipe.engine.modules.experts import GroupedLinear, view_together


class GroupedProduct(torch.autograd.Function):
    """One linear layer of several experts; nothing but its input is kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ends: torch.Tensor, layer: GroupedLinear, *weights: torch.Tensor) -> torch.Tensor:
        """Return [R, output].

        Args:
            ctx: autograd context.
            x: [R, input], rows sorted by expert.
            ends: where each expert's rows end, int32 [E].
            layer: holds the weights.
            weights: the same weights, for autograd.
        """
        ctx.save_for_backward(x, ends)
        ctx.layer = layer
        product: torch.Tensor = backend(x).grouped_product(x, layer.stack_weights(), ends)
        return product

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        """Return the gradients of x and of the weights."""
        x, ends = ctx.saved_tensors
        grad = grads[0].contiguous()
        grad_x = backend(x).grouped_product(grad, ctx.layer.stack_weights(), ends, forward=False)
        return grad_x, None, None, *add_expert_gradients(ctx.layer, grad, x, ends)


class Experts(torch.autograd.Function):
    """Gated experts of a layer, all on this rank; the activation is computed twice."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        probs: torch.Tensor,
        routing_map: torch.Tensor,
        per_token: int,
        first: GroupedLinear,
        second: GroupedLinear,
        *weights: torch.Tensor,
    ) -> torch.Tensor:
        """Return the weighted sums of the experts' outputs, [N, H].

        Args:
            ctx: autograd context.
            hidden: [N, H].
            probs: weight of each token and expert, [N, E].
            routing_map: chosen experts, bool [N, E], `per_token` in each row.
            per_token: K.
            first: gate over linear, E x [2F, H].
            second: E x [H, F].
            weights: those of `first`, then those of `second`, for autograd; none where nothing waits for their gradients.
        """
        kernels = backend(hidden)
        ends, places, tokens, slots, row_weights = kernels.route(routing_map, probs, per_token)
        inner = kernels.grouped_product(kernels.gather_rows(hidden, tokens), first.stack_weights(), ends)
        active = kernels.weighted_swiglu(inner, row_weights)
        out = kernels.grouped_product(active, second.stack_weights(), ends)
        ctx.save_for_backward(hidden, probs, routing_map, ends, places, tokens, slots, row_weights, inner)
        ctx.layers = (first, second)
        ctx.num_weights = len(weights)
        total: torch.Tensor = kernels.sum_rows(out, slots)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        """Return the gradients of the input, the probabilities and the weights."""
        hidden, probs, routing_map, ends, places, tokens, slots, row_weights, inner = ctx.saved_tensors
        first, second = ctx.layers
        kernels = backend(hidden)
        grad_out = kernels.gather_rows(grads[0].contiguous(), tokens)
        grad_active = kernels.grouped_product(grad_out, second.stack_weights(), ends, forward=False)
        grad_inner, grad_rows, active = kernels.weighted_swiglu_backward(inner, row_weights, grad_active)
        down = add_expert_gradients(second, grad_out, active, ends)
        del grad_out, grad_active, active
        up = add_expert_gradients(first, grad_inner, kernels.gather_rows(hidden, tokens), ends)
        grad_hidden = kernels.sum_rows(kernels.grouped_product(grad_inner, first.stack_weights(), ends, forward=False), slots)
        grad_probs = torch.where(routing_map, grad_rows[(places - 1).t().long()], 0.0).to(probs.dtype)
        return grad_hidden, grad_probs, None, None, None, None, *(*up, *down)[: ctx.num_weights]


def add_expert_gradients(
    layer: GroupedLinear, grad: torch.Tensor, x: torch.Tensor, ends: torch.Tensor
) -> list[torch.Tensor | None]:
    """Add the gradients of a layer's weights to their main gradients where they have some.

    Args:
        layer: E weights, [output, input].
        grad: [R, output].
        x: [R, input].
        ends: where each expert's rows end, int32 [E].

    Returns:
        what a backward function returns for the weights: nothing, placeholders that trigger hooks, or gradients.
    """
    weights: list[Any] = list(layer.weights)
    if not weights[0].requires_grad:
        return [None] * len(weights)
    main_grads = view_main_grads(layer)
    if main_grads is None:
        whole = torch.zeros((len(weights), *weights[0].shape), dtype=torch.float32, device=grad.device)
        backend(grad).add_weight_gradients(whole, grad, x, ends)
        return list(whole.to(weights[0].dtype))
    backend(grad).add_weight_gradients(main_grads, grad, x, ends)
    if is_hookless(layer):
        return [None] * len(weights)
    for weight in weights:
        weight.grad_added_to_main_grad = True
    return [torch.empty(weight.shape, dtype=weight.dtype, device=grad.device) for weight in weights]


def view_main_grads(layer: GroupedLinear) -> torch.Tensor | None:
    """Return all main gradients as one tensor, float32 [E, output, input]; None where they are of another kind."""
    weights: list[Any] = list(layer.weights)
    if not layer.config.gradient_accumulation_fusion or not all(accumulates(weight) for weight in weights):
        return None
    return view_together([weight.main_grad for weight in weights])


def is_hookless(layer: GroupedLinear) -> bool:
    """Return whether nothing waits for the hooks of a layer's weights."""
    return all(getattr(weight, "reduces_without_hook", False) for weight in layer.weights)


def fuse_experts(model: Any) -> None:
    """Replace the forward of each eligible mixture of experts of a model."""
    for module in model.modules():
        if can_fuse_experts(module):
            module.forward = functools.partial(_forward_experts, module)


def is_fused(layer: Any) -> bool:
    """Return whether a mixture of experts has been replaced by `fuse_experts`."""
    return getattr(vars(layer).get("forward"), "func", None) is _forward_experts


def can_fuse_experts(layer: Any) -> bool:
    """Return whether a mixture of experts is dropless, gated by SiLU, grouped, and whole on this rank."""
    from megatron.core.transformer.moe.experts import TEGroupedMLP
    from megatron.core.transformer.moe.moe_layer import MoELayer

    if type(layer) is not MoELayer or type(layer.experts) is not TEGroupedMLP:
        return False
    config = layer.config
    projections = (layer.experts.linear_fc1, layer.experts.linear_fc2)
    return (
        all(isinstance(projection, GroupedLinear) and not projection.has_bias for projection in projections)
        and config.expert_model_parallel_size == 1
        and config.expert_tensor_parallel_size in (None, 1)
        and config.tensor_model_parallel_size == 1
        and bool(config.gated_linear_unit)
        and config.activation_func is F.silu
        and config.activation_func_clamp_value is None
        and not config.glu_linear_offset
        and getattr(config, "moe_mlp_glu_interleave_size", None) is None
        and not config.moe_apply_probs_on_input
        and config.moe_expert_capacity_factor is None
        and not config.moe_pad_expert_input_to_capacity
        and not getattr(config, "moe_latent_size", None)
        and not (layer.use_shared_expert and layer.shared_expert_overlap)
        and config.recompute_granularity is None
    )


def _forward_experts(
    layer: Any, hidden_states: torch.Tensor, intermediate_tensors: Any = None, padding_mask: torch.Tensor | None = None
) -> Any:
    if intermediate_tensors is not None or padding_mask is not None:
        return type(layer).forward(layer, hidden_states, intermediate_tensors, padding_mask)
    shared = layer.shared_experts(hidden_states) if layer.use_shared_expert else None
    probs, routing_map = layer.router(hidden_states)
    first, second = layer.experts.linear_fc1, layer.experts.linear_fc2
    weights = [*ready_weights(first), *ready_weights(second)]
    if all(view_main_grads(part) is not None and is_hookless(part) for part in (first, second)):
        weights = []
    rows = hidden_states.reshape(-1, hidden_states.shape[-1])
    out = Experts.apply(rows, probs, routing_map, layer.config.moe_router_topk, first, second, *weights)
    out = out.view(hidden_states.shape)
    return out if shared is None else out + shared, None
