"""Swaps eligible parts of a finished model for their fused forms.

Each swap keeps parameters, names and checkpoints as they are: only `forward` changes. Start reading at `fuse_model`.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import torch
import torch.nn.functional as F

from autorecipe.engine.modules.norm import Norm
from autorecipe.engine.options import EngineOptions, is_on


def can_fuse() -> bool:
    """Return whether the kernels can run here: a CUDA device, and Triton."""
    return torch.cuda.is_available() and importlib.util.find_spec("triton") is not None


def fuses_gradients(config: Any, options: EngineOptions) -> bool:
    """Return whether weight gradients go straight into the main gradients: half precision with float32 main gradients."""
    return can_fuse() and (config.bf16 or config.fp16) and is_on(options.fused_grad, default=True)


def fuse_model(model: Any, options: EngineOptions) -> None:
    """Swap the eligible parts of a GPT model on CUDA; does nothing elsewhere.

    Args:
        model: Megatron-Core `GPTModel` without wrappers; changed.
        options: what may be fused.
    """
    config = model.config
    if not can_fuse() or not (config.bf16 or config.fp16):
        return
    if is_on(options.fused_layers, default=True):
        _fuse_rotary(config)
        for module in model.modules():
            _fuse_mlp(module)
            if isinstance(module, Norm) and module.is_rms:
                module.is_fused = True
    if is_on(options.fused_grad, default=True) and config.tensor_model_parallel_size == 1 and hasattr(model, "embedding"):
        _fuse_embedding(model.embedding.word_embeddings)
    if is_on(options.fused_loss, default=True) and _has_fusible_loss(model):
        _fuse_loss(model)


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
        and config.bf16
        and config.tensor_model_parallel_size == 1
        and not config.mtp_num_layers
        and not getattr(config, "use_mup", False)
        and not config.defer_embedding_wgrad_compute
    )


def _fuse_loss(model: Any) -> None:
    from autorecipe.engine.fusion.functions import LinearCrossEntropy

    unfused = model._postprocess

    @functools.wraps(unfused)
    def postprocess(hidden_states: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        labels = named.get("labels")
        if labels is None or arguments or named.get("inference_context") is not None:
            return unfused(hidden_states, *arguments, **named)
        tied = model.share_embeddings_and_output_weights
        weight = model.shared_embedding_or_output_weight() if tied else model.output_layer.weight
        sequence, batch, width = hidden_states.shape
        order = labels.transpose(0, 1).reshape(-1)  # [S x B], as the hidden states
        losses = LinearCrossEntropy.apply(hidden_states.reshape(-1, width), weight, order)
        return losses.view(sequence, batch).transpose(0, 1).contiguous()

    model._postprocess = postprocess


def _fuse_mlp(module: Any) -> None:
    from megatron.core.tensor_parallel.layers import RowParallelLinear
    from megatron.core.transformer.mlp import MLP

    config: Any = getattr(module, "config", None)
    if type(module) is not MLP or not isinstance(module.linear_fc2, RowParallelLinear):
        return
    if not config.gated_linear_unit or config.activation_func is not F.silu or config.add_bias_linear:
        return
    if config.activation_func_clamp_value is not None or config.glu_linear_offset:
        return
    module.forward = functools.partial(_gated_forward, module)


def _gated_forward(module: Any, hidden_states: torch.Tensor, per_token_scale: Any = None, **_: Any) -> Any:
    from megatron.core.tensor_parallel import (
        reduce_from_tensor_model_parallel_region,
        reduce_scatter_to_sequence_parallel_region,
    )

    from autorecipe.engine.fusion.functions import SwigluLinear

    if per_token_scale is not None:
        return type(module).forward(module, hidden_states, per_token_scale)
    inner, _bias = module.linear_fc1(hidden_states)
    partial_output = SwigluLinear.apply(inner, module.linear_fc2.weight)
    if module.config.tensor_model_parallel_size == 1:
        return partial_output, None
    group = module.linear_fc2.tp_group
    if module.linear_fc2.sequence_parallel:
        return reduce_scatter_to_sequence_parallel_region(partial_output, group=group), None
    return reduce_from_tensor_model_parallel_region(partial_output, group=group), None


def _fuse_rotary(config: Any) -> None:
    """Rotate with one kernel instead of six, where rotation is the plain kind."""
    from megatron.core.transformer import attention

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
        cos, sin = _rotary_tables(freqs, mscale, t.dtype)
        return Rotate.apply(t, cos, sin)

    apply.is_fused = True  # type: ignore[attr-defined]
    attention.apply_rotary_pos_emb = apply


def _rotary_tables(freqs: torch.Tensor, mscale: float, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos and sin, [S, R / 2], rounded to the run's type as upstream does; kept with the angles they come from."""
    kept = getattr(freqs, "rotary_tables", None)
    if kept is None or kept[0] != (mscale, dtype):
        half = freqs[:, 0, 0, : freqs.shape[-1] // 2]  # the second half repeats the first
        tables = tuple((table * mscale).to(dtype).contiguous() for table in (half.cos(), half.sin()))
        kept = ((mscale, dtype), tables)
        freqs.rotary_tables = kept
    cos, sin = kept[1]
    return cos, sin
