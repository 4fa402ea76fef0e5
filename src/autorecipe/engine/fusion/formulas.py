"""The functions of `fusion.kernels` in plain torch: the reference, and what acts on devices without Triton.

Same names, arguments and results; rounding to half precision happens at the same places.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F


def swiglu(x: torch.Tensor) -> torch.Tensor:
    """Return silu(first half) x second half: [..., 2F] to [..., F]."""
    gate, linear = x.float().chunk(2, -1)
    return (F.silu(gate) * linear).to(x.dtype)


def swiglu_backward(x: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradient of the input, [..., 2F], and the activation once more, [..., F]."""
    gate, linear = x.float().chunk(2, -1)
    sigmoid = torch.sigmoid(gate)
    wide = grad.float()
    grad_gate = wide * linear * sigmoid * (1.0 + gate * (1.0 - sigmoid))
    grad_x = torch.cat((grad_gate, wide * gate * sigmoid), -1)
    return grad_x.to(x.dtype), (gate * sigmoid * linear).to(x.dtype)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x / rms(x) x (weight + offset), [..., H], and 1 / rms of each row, float32 [...]."""
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1) + eps)
    return (wide * scale[..., None] * (weight.float() + offset)).to(x.dtype), scale


def add_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0, *, in_place: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x + residual, its normalised form, both [..., H], and 1 / rms of each row of the sum, float32 [...]."""
    total = x.add_(residual) if in_place else x + residual
    return (total, *rms_norm(total, weight, eps, offset))


def norm_backward(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    grad: torch.Tensor,
    offset: float = 0.0,
    *,
    passed: torch.Tensor | None = None,
    into: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the gradients of x, [..., H], and of the weight, float32 [H], which is added to `into` instead where given."""
    normal, inner = x.float() * scale[..., None], grad.float() * (weight.float() + offset)
    grad_x = scale[..., None] * (inner - normal * (inner * normal).mean(-1, keepdim=True))
    if passed is not None:
        grad_x = grad_x + passed.float()
    grad_weight = (grad.float() * normal).reshape(-1, x.shape[-1]).sum(0)
    if into is not None:
        into.add_(grad_weight)
    return grad_x.to(x.dtype), grad_weight if into is None else None


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, inverse: bool = False) -> torch.Tensor:
    """Rotate the halves of each head of x, [S, B, heads, D], by cos and sin, [S, R / 2]; the rest is copied."""
    size = 2 * cos.shape[1]
    wide_cos, wide_sin = cos.float()[:, None, None], sin.float()[:, None, None] * (-1.0 if inverse else 1.0)
    first, second = x[..., :size].float().chunk(2, -1)
    turned = torch.cat((first * wide_cos - second * wide_sin, second * wide_cos + first * wide_sin), -1)
    return torch.cat((turned.to(x.dtype), x[..., size:]), -1)


def split_heads(
    mixed: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, groups: int, per_group: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cut the projection's heads, [S, B, groups x (per_group + 2) x D], apart and rotate query and key."""
    sequence, batch, _ = mixed.shape
    heads = mixed.view(sequence, batch, groups, per_group + 2, -1)
    query = heads[:, :, :, :per_group].reshape(sequence, batch, groups * per_group, -1)
    return rotate(query, cos, sin), rotate(heads[:, :, :, per_group], cos, sin), heads[:, :, :, per_group + 1].contiguous()


def merge_heads(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Undo `split_heads` for gradients: rotate query and key back and put the heads in the projection's order."""
    sequence, batch, groups, size = key.shape
    query = rotate(query, cos, sin, inverse=True).view(sequence, batch, groups, -1, size)
    key = rotate(key, cos, sin, inverse=True)
    return torch.cat((query, key[:, :, :, None], value[:, :, :, None]), 3).view(sequence, batch, -1)


def cross_entropy_(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return each row's cross entropy, float32 [N], and overwrite the logits, [N, V], by their gradient."""
    wide = logits.float()
    log_total = torch.logsumexp(wide, -1)
    places = labels[:, None]
    loss = log_total - wide.gather(1, places)[:, 0]
    gradient = torch.exp(wide - log_total[:, None])
    gradient.scatter_add_(1, places, torch.full_like(places, -1.0, dtype=gradient.dtype))
    logits.copy_(gradient)
    return loss


def scale_rows(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return each row of x, [N, H], times its factor, float32 [N]."""
    return (x.float() * scale[:, None]).to(x.dtype)


def route(
    routing_map: torch.Tensor, probs: torch.Tensor, per_token: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sort (token, expert) pairs by expert, then token; see `kernels.experts.route`."""
    places = routing_map.t().flatten().cumsum(0, dtype=torch.int32).view(routing_map.shape[1], -1)
    ends = places[:, -1].contiguous()
    token, expert = routing_map.nonzero(as_tuple=True)  # by token, then expert
    slots = places[expert, token] - 1
    tokens = torch.empty_like(slots).scatter_(0, slots.long(), token.to(torch.int32))
    weights = torch.empty(slots.shape, dtype=torch.float32, device=probs.device)
    weights.scatter_(0, slots.long(), probs[token, expert].float())
    return ends, places, tokens, slots.view(-1, per_token), weights


def gather_rows(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return rows of x, [N, H], by index, int32 [R]."""
    return x.index_select(0, index)


def sum_rows(x: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """Return sums of rows of x, [R, H], by slots, int32 [N, K]; [N, H]."""
    return x[slots.long()].float().sum(1).to(x.dtype)


def grouped_product(x: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor, *, forward: bool = True) -> torch.Tensor:
    """Return each expert's rows of x times its weight's transpose, or times its weight; see `kernels.experts`."""
    bounds = [0, *ends.tolist()]
    parts = [x[first:last] for first, last in itertools.pairwise(bounds)]
    return torch.cat([part @ (weight.t() if forward else weight) for part, weight in zip(parts, weights, strict=True)])


def weighted_swiglu(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return silu(first half) x second half x the row's weight: [R, 2F] and float32 [R] to [R, F]."""
    gate, linear = x.float().chunk(2, -1)
    return (F.silu(gate) * linear * weights[:, None]).to(x.dtype)


def weighted_swiglu_backward(
    x: torch.Tensor, weights: torch.Tensor, grad: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of x, [R, 2F], and of the weights, float32 [R], and the activation once more, [R, F]."""
    gate, linear = x.float().chunk(2, -1)
    sigmoid = torch.sigmoid(gate)
    active, wide = gate * sigmoid * linear, grad.float() * weights[:, None]
    grad_gate = wide * linear * sigmoid * (1.0 + gate * (1.0 - sigmoid))
    grad_x = torch.cat((grad_gate, wide * gate * sigmoid), -1).to(x.dtype)
    return grad_x, (grad.float() * active).sum(-1), (active * weights[:, None]).to(x.dtype)


def add_weight_gradients(main_grads: torch.Tensor, grad: torch.Tensor, x: torch.Tensor, ends: torch.Tensor) -> None:
    """Add grad^T x of each expert's rows, which end at `ends`, to its main gradient, float32 [experts, output, input]."""
    first = 0
    for main_grad, last in zip(main_grads, ends.tolist(), strict=True):
        main_grad.addmm_(grad[first:last].t().to(main_grad.dtype), x[first:last].to(main_grad.dtype))
        first = last
