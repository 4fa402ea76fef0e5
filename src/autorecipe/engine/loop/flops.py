"""Floating-point operations of one training step, counted as Megatron-LM counts them.

Leaves out: recomputed activations (model FLOPs, not hardware FLOPs), hybrid and linear-attention layers.
"""

from __future__ import annotations

from autorecipe.schema.model import ModelShape


def count_step_flops(shape: ModelShape, *, samples: int, padded_vocab_size: int) -> float:
    """Return the FLOPs of one optimizer step, forward and backward.

    Formula: 6 x samples x seq x (matrix parameters that a token meets) + 6 x samples x seq^2 x heads x (key + value size) / 2.
    Source: Megatron-LM megatron/training/training.py `num_floating_point_operations` @ core 0.19.2.
    Evidence: published.

    Args:
        shape: the model.
        samples: sequences of the step.
        padded_vocab_size: rows of the output layer.
    """
    hidden, heads = shape.hidden_size, shape.num_attention_heads
    extra_layers = shape.mtp_num_layers
    pattern = shape.moe_layer_pattern or (False,) * shape.num_layers
    moe_layers = sum(pattern) + (extra_layers if pattern[-1] else 0)
    dense_layers = len(pattern) + extra_layers - moe_layers
    matrices = 3 if shape.gated_linear_unit else 2
    projection, head_pair = _attention_parameters(shape)
    per_token = (dense_layers + moe_layers) * projection
    per_token += dense_layers * matrices * hidden * shape.ffn_hidden_size
    per_token += moe_layers * _expert_parameters(shape, matrices)
    per_token += extra_layers * (3 * hidden + 2 * hidden * hidden)
    per_token += (extra_layers + 1) * hidden * padded_vocab_size
    tokens = samples * shape.seq_length
    core = samples * shape.seq_length**2 * heads * head_pair / 2 * (dense_layers + moe_layers)
    return 6.0 * (tokens * per_token + core)


def _attention_parameters(shape: ModelShape) -> tuple[float, float]:
    """Return the projection parameters of one attention layer, and the sizes of one key head plus one value head."""
    hidden, heads = shape.hidden_size, shape.num_attention_heads
    if not shape.multi_latent_attention:
        query, key_value = heads * shape.kv_channels, shape.num_query_groups * shape.kv_channels
        gate = query if shape.attention_output_gate else 0
        return hidden * (2 * query + 2 * key_value + gate), 2 * shape.kv_channels
    nope, rope, value = shape.qk_head_dim or 0, shape.qk_pos_emb_head_dim or 0, shape.v_head_dim or 0
    kv_rank = shape.kv_lora_rank or 0
    if shape.q_lora_rank is None:
        query = hidden * heads * (nope + rope)
    else:
        query = shape.q_lora_rank * (hidden + heads * (nope + rope) + 1)
    rest = kv_rank * (hidden + heads * (nope + value) + 1) + hidden * rope + heads * value * hidden
    return query + rest, nope + rope + value


def _expert_parameters(shape: ModelShape, matrices: int) -> float:
    """Return the expert parameters that one token meets in one layer, shared experts included."""
    hidden = shape.hidden_size
    routed = matrices * (shape.moe_ffn_hidden_size or 0) * (shape.moe_router_topk or 0)
    latent = shape.moe_latent_size
    through_experts = routed * hidden if not latent else routed * latent + 2 * latent * hidden
    return through_experts + matrices * hidden * (shape.moe_shared_expert_intermediate_size or 0)
