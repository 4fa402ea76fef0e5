"""The forward pass of a transformer layer with its additions and norms fused, and its halves where they are of the plain kind.

A layer hands the normalised form of its output to the norm that comes next as an attribute of the output (`Norm` takes it).
Start reading at `fuse_layers`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from autorecipe.engine.fusion.blocks import AddNorm, FeedForward, Heads, Project
from autorecipe.engine.fusion.gradients import ready_weight
from autorecipe.engine.modules.attention import SdpaAttention
from autorecipe.engine.modules.norm import Norm


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """What of one layer is fused besides its additions and norms.

    Attributes:
        attention: projections and rotation around core attention.
        feed_forward: the gated feed-forward layer.
        next_norm: norm of the layer's output, where it is known.
    """

    attention: bool
    feed_forward: bool
    next_norm: Norm | None


def fuse_layers(model: Any) -> None:
    """Replace the forward of each eligible decoder layer of a GPT model.

    Args:
        model: Megatron-Core `GPTModel` whose norms are fused already; changed.
    """
    block = getattr(model, "decoder", None)
    layers = list(getattr(block, "layers", ()))
    norms = [getattr(layer, "input_layernorm", None) for layer in layers[1:]]
    norms.append(getattr(block, "final_layernorm", None))
    for layer, norm in zip(layers, norms, strict=True):
        if can_fuse_layer(layer):
            plan = LayerPlan(
                attention=can_fuse_attention(layer.self_attention),
                feed_forward=can_fuse_feed_forward(layer.mlp) and layer.config.tensor_model_parallel_size == 1,
                next_norm=norm if _is_fused_norm(norm) else None,
            )
            layer.forward = functools.partial(forward_layer, layer, plan)


def can_fuse_layer(layer: Any) -> bool:
    """Return whether a layer is norm, attention, addition, norm, feed-forward, addition, and nothing else."""
    from megatron.core.transformer.identity_op import IdentityOp
    from megatron.core.transformer.transformer_layer import TransformerLayer

    if type(layer) is not TransformerLayer:
        return False
    config = layer.config
    return (
        _is_fused_norm(layer.input_layernorm)
        and _is_fused_norm(layer.pre_mlp_layernorm)
        and isinstance(layer.cross_attention, IdentityOp)
        and isinstance(layer.pre_cross_attn_layernorm, IdentityOp)
        and not config.hidden_dropout
        and not config.fp32_residual_connection
        and config.recompute_granularity is None
        and not config.cpu_offloading
        and not getattr(config, "fine_grained_activation_offloading", False)
        and getattr(config, "mlp_chunks_for_training", 1) == 1
    )


def can_fuse_attention(attention: Any) -> bool:
    """Return whether a self-attention is one projection, a plain rotation, our core attention and one projection back."""
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.attention import SelfAttention
    from megatron.core.transformer.identity_op import IdentityOp

    config = getattr(attention, "config", None)
    if type(attention) is not SelfAttention or config is None or config.tensor_model_parallel_size > 1:
        return False
    projections = (attention.linear_qkv, attention.linear_proj)
    norms = (attention.q_layernorm, attention.k_layernorm)
    return (
        type(projections[0]) is ColumnParallelLinear
        and type(projections[1]) is RowParallelLinear
        and all(projection.bias is None for projection in projections)
        and all(norm is None or isinstance(norm, IdentityOp) for norm in norms)
        and isinstance(attention.core_attention, SdpaAttention)
        and not config.rotary_interleaved
        and not config.no_rope_freq
        and not getattr(config, "attention_output_gate", False)
        and not config.test_mode
    )


def can_fuse_feed_forward(mlp: Any) -> bool:
    """Return whether a feed-forward layer is SwiGLU between two parallel linear layers without biases."""
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.mlp import MLP

    config: Any = getattr(mlp, "config", None)
    return (
        type(mlp) is MLP
        and type(mlp.linear_fc1) is ColumnParallelLinear
        and type(mlp.linear_fc2) is RowParallelLinear
        and bool(config.gated_linear_unit)
        and config.activation_func is F.silu
        and not config.add_bias_linear
        and config.activation_func_clamp_value is None
        and not config.glu_linear_offset
    )


def forward_layer(
    layer: Any,
    plan: LayerPlan,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    **named: Any,
) -> tuple[torch.Tensor, None]:
    """Do what a Megatron-Core transformer layer does.

    Args:
        layer: Megatron-Core `TransformerLayer`.
        plan: what is fused.
        hidden_states: [S, B, H].
        attention_mask: [B or 1, 1, S, T], True where attention is forbidden.
        named: further arguments of the layer; inference and cross attention go to the layer's own forward.

    Returns:
        [S, B, H], and no context.
    """
    given = {name: value for name, value in named.items() if value is not None}
    if given.keys() - {"rotary_pos_emb", "attention_bias", "packed_seq_params", "padding_mask"}:
        unfused: tuple[torch.Tensor, None] = type(layer).forward(layer, hidden_states, attention_mask, **named)
        return unfused
    total, normal = _attend(layer, plan, hidden_states, layer.input_layernorm(hidden_states), attention_mask, given)
    return _feed_forward(layer, plan, total, normal, given), None


def _attend(
    layer: Any, plan: LayerPlan, hidden: torch.Tensor, normal: torch.Tensor, mask: torch.Tensor | None, given: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    attention, norm = layer.self_attention, layer.pre_mlp_layernorm
    rotation = given.get("rotary_pos_emb")
    names = ("rotary_pos_emb", "attention_bias", "packed_seq_params")
    if plan.attention and "packed_seq_params" not in given and _is_plain(rotation, hidden):
        cos, sin = rotary_tables(rotation, _rotary_scale(attention.config), hidden.dtype)
        groups = attention.num_query_groups_per_partition
        per_group = attention.num_attention_heads_per_partition // groups
        heads = Heads.apply(normal, ready_weight(attention.linear_qkv), cos, sin, groups, per_group)
        attended = attention.core_attention(
            *heads, mask, attn_mask_type=attention.attn_mask_type, attention_bias=given.get("attention_bias")
        )
        fused: tuple[torch.Tensor, torch.Tensor] = Project.apply(
            attended, ready_weight(attention.linear_proj), hidden, ready_weight(norm), norm.eps, norm.offset
        )
        return fused
    out, bias = attention(normal, attention_mask=mask, **{name: given[name] for name in names if name in given})
    out = out if bias is None else out + bias
    added: tuple[torch.Tensor, torch.Tensor] = AddNorm.apply(out, hidden, ready_weight(norm), norm.eps, norm.offset)
    return added


def _feed_forward(layer: Any, plan: LayerPlan, total: torch.Tensor, normal: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
    norm = plan.next_norm
    weight, eps, offset = (None, 0.0, 0.0) if norm is None else (ready_weight(norm), norm.eps, norm.offset)
    if plan.feed_forward:
        up, down = ready_weight(layer.mlp.linear_fc1), ready_weight(layer.mlp.linear_fc2)
        result: Any = FeedForward.apply(normal, up, down, total, weight, eps, offset)
    else:
        masks = {"padding_mask": given["padding_mask"]} if "padding_mask" in given else {}
        out, bias = layer.mlp(normal, **masks)
        out = out if bias is None else out + bias
        result = out + total if weight is None else AddNorm.apply(out, total, weight, eps, offset)
    if norm is None:
        whole: torch.Tensor = result
        return whole
    output: Any
    output, following = result
    output.normalised = (norm, following)
    return output


def rotary_tables(freqs: Any, mscale: float, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos and sin, [S, R / 2], rounded to the run's type as upstream does; kept with the angles they come from."""
    kept = getattr(freqs, "rotary_tables", None)
    if kept is None or kept[0] != (mscale, dtype):
        half = freqs[:, 0, 0, : freqs.shape[-1] // 2]  # the second half repeats the first
        tables = tuple((table * mscale).to(dtype).contiguous() for table in (half.cos(), half.sin()))
        kept = ((mscale, dtype), tables)
        freqs.rotary_tables = kept
    cos, sin = kept[1]
    return cos, sin


def _is_plain(rotation: Any, hidden: torch.Tensor) -> bool:
    """Return whether a rotation is one table of angles, [S, 1, 1, R], for all sequences."""
    return torch.is_tensor(rotation) and rotation.shape[1:3] == (1, 1) and rotation.shape[0] == hidden.shape[0]


def _rotary_scale(config: Any) -> float:
    from megatron.core.models.common.embeddings.yarn_rotary_pos_embedding import _yarn_get_concentration_factor_from_config

    return float(_yarn_get_concentration_factor_from_config(config))


def _is_fused_norm(norm: Any) -> bool:
    return isinstance(norm, Norm) and norm.is_fused
