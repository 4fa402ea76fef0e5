"""Swaps eligible parts of a finished model for their fused forms.

Each swap keeps parameters, names and checkpoints as they are: only `forward` changes. Start reading at `fuse_model`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from autorecipe.engine.fusion.backend import can_fuse
from autorecipe.engine.fusion.gradients import ready_weight
from autorecipe.engine.modules.norm import Norm
from autorecipe.engine.options import EngineOptions, Switch, is_on


def fuses_gradients(config: Any, options: EngineOptions) -> bool:
    """Return whether weight gradients go straight into the main gradients."""
    return _is_chosen(options.fused_grad, config)


def fuse_model(model: Any, options: EngineOptions) -> None:
    """Swap the eligible parts of a GPT model, where that is asked for or pays (half precision on CUDA).

    Args:
        model: Megatron-Core `GPTModel` without wrappers; changed.
        options: what may be fused.
    """
    config = model.config
    if _is_chosen(options.fused_layers, config):
        _fuse_modules(model)
    if _is_chosen(options.fused_grad, config) and config.tensor_model_parallel_size == 1 and hasattr(model, "embedding"):
        _fuse_embedding(model.embedding.word_embeddings)
    if _is_chosen(options.fused_loss, config) and (config.bf16 or options.fused_loss == "on") and _has_fusible_loss(model):
        _fuse_loss(model)


def _is_chosen(switch: Switch, config: Any) -> bool:
    """Resolve a switch: `on` holds on every device and in every precision, in plain torch where there is no kernel."""
    return is_on(switch, default=can_fuse() and (config.bf16 or config.fp16))


def _fuse_modules(model: Any) -> None:
    """Swap norms, rotation, feed-forward layers, mixtures of experts and whole layers."""
    from autorecipe.engine.fusion.experts import fuse_experts
    from autorecipe.engine.fusion.layer import can_fuse_feed_forward, fuse_layers

    _fuse_rotary()
    for module in model.modules():
        if can_fuse_feed_forward(module):
            module.forward = functools.partial(_gated_forward, module)
        if isinstance(module, Norm) and module.is_rms:
            module.is_fused = True
    fuse_experts(model)
    fuse_layers(model)


def _fuse_embedding(embedding: Any) -> None:
    """Look up rows; applies where the main gradient is there and no hook waits for the weight's gradient."""
    from autorecipe.engine.fusion.functions import Lookup

    unfused = embedding.forward

    def look_up(ids: torch.Tensor) -> torch.Tensor:
        weight = embedding.weight
        has_main_grad = getattr(weight, "main_grad", None) is not None and torch.is_grad_enabled()
        if not has_main_grad or not getattr(weight, "reduces_without_hook", False):
            return unfused(ids)
        return Lookup.apply(ids, weight)

    embedding.forward = look_up


def mark_hookless(chunk: Any) -> None:
    """Mark the parameters of a wrapped chunk whose gradients are reduced at the end of the step, not from hooks."""
    if chunk.ddp_config.overlap_grad_reduce:
        return
    for parameter in chunk.parameters():
        parameter.reduces_without_hook = True


def _has_fusible_loss(model: Any) -> bool:
    config = model.config
    return bool(
        model.post_process
        and config.tensor_model_parallel_size == 1
        and not config.mtp_num_layers
        and not getattr(config, "use_mup", False)
        and not config.defer_embedding_wgrad_compute
    )


def _fuse_loss(model: Any) -> None:
    """Replace output layer and cross entropy of a GPT model by one function."""
    from autorecipe.engine.fusion.functions import LinearCrossEntropy

    unfused = model._postprocess

    @functools.wraps(unfused)
    def postprocess(hidden_states: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        labels = named.get("labels")
        if labels is None or arguments or named.get("inference_context") is not None:
            return unfused(hidden_states, *arguments, **named)
        tied = model.share_embeddings_and_output_weights
        weight = model.shared_embedding_or_output_weight() if tied else ready_weight(model.output_layer)
        sequence, batch, width = hidden_states.shape
        order = labels.transpose(0, 1).reshape(-1)  # [S x B], as the hidden states
        losses = LinearCrossEntropy.apply(hidden_states.reshape(-1, width), weight, order)
        return losses.view(sequence, batch).transpose(0, 1).contiguous()

    model._postprocess = postprocess


def _gated_forward(module: Any, hidden_states: torch.Tensor, per_token_scale: Any = None, **_: Any) -> Any:
    from megatron.core.tensor_parallel import (
        reduce_from_tensor_model_parallel_region,
        reduce_scatter_to_sequence_parallel_region,
    )

    from autorecipe.engine.fusion.functions import SwigluLinear

    if per_token_scale is not None:
        return type(module).forward(module, hidden_states, per_token_scale)
    inner, _bias = module.linear_fc1(hidden_states)
    partial_output = SwigluLinear.apply(inner, ready_weight(module.linear_fc2))
    if module.config.tensor_model_parallel_size == 1:
        return partial_output, None
    group = module.linear_fc2.tp_group
    if module.linear_fc2.sequence_parallel:
        return reduce_scatter_to_sequence_parallel_region(partial_output, group=group), None
    return reduce_from_tensor_model_parallel_region(partial_output, group=group), None


def _fuse_rotary() -> None:
    """Rotate with one kernel instead of six, where rotation is the plain kind."""
    from megatron.core.transformer import attention

    from autorecipe.engine.fusion.layer import rotary_tables

    unfused = attention.apply_rotary_pos_emb
    if getattr(unfused, "is_fused", False):
        return

    @functools.wraps(unfused)
    def apply(
        t: torch.Tensor, freqs: torch.Tensor, config: Any, cu_seqlens: Any = None, mscale: float = 1.0, **named: Any
    ) -> Any:
        from autorecipe.engine.fusion.functions import Rotate

        plain = cu_seqlens is None and not config.rotary_interleaved and not config.multi_latent_attention
        plain = plain and t.dim() == 4 and t.stride(-1) == 1 and freqs.shape[1:3] == (1, 1)
        if not plain or t.dtype == torch.float32 or t.shape[0] != freqs.shape[0]:
            return unfused(t, freqs, config, cu_seqlens=cu_seqlens, mscale=mscale, **named)
        cos, sin = rotary_tables(freqs, mscale, t.dtype)
        return Rotate.apply(t, cos, sin)

    apply.is_fused = True  # type: ignore[attr-defined]
    attention.apply_rotary_pos_emb = apply
