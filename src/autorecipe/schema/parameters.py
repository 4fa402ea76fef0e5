"""How many parameters a model has, in all and active per token, part by part.

Legend: h hidden, a attention heads x channels, g groups x channels, f feed-forward, E experts, k experts per token, V vocabulary.
Leaves out: vision and audio towers, adapters, and the padding of the vocabulary (a matter of the layout).
Start reading at `count_parameters`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autorecipe.record import dataclass
from autorecipe.schema.model import ModelShape

MAMBA_CONVOLUTION = 4
"""Width of a Mamba block's convolution (Megatron-Core ssm/mamba_mixer.py, d_conv)."""


@dataclass(frozen=True, kw_only=True)
class ParameterCount:
    """Parameters of one model.

    Attributes:
        total: all of them, multi-token prediction included.
        active: those that one token passes through; the embedding table counts, as in published figures.
        embedding: embedding table, and the output layer where it is not shared.
        experts: routed experts alone.
        multi_token_prediction: extra layers that predict further tokens.
        parts: by part, adding up to `total`.
    """

    total: int
    active: int
    embedding: int
    experts: int
    multi_token_prediction: int
    parts: Mapping[str, int]


@dataclass(frozen=True)
class _Layer:
    mixer: int
    feed_forward: int
    experts: int = 0
    active_experts: int = 0


def count_parameters(shape: ModelShape) -> ParameterCount:
    """Count the parameters of a decoder model.

    Formula: V h (twice where the output layer is its own) + per layer the mixer (attention h (a + 2 g) + a h; MLA, Mamba and
    gated delta rule as coded), the feed-forward part (3 h f with a gate, 2 h f without; experts E times that, plus router and
    shared expert), the norms, + a final norm + multi-token-prediction layers.
    Source: module constructors of Megatron-Core @ 0.19.2 (attention.py, multi_latent_attention.py, mlp.py, moe/, ssm/).
    Evidence: derived.
    Error: none against 43 of 51 instantiated text models; Gemma 2 and 3 lack their extra norms (0.005 %), GLM 5 its sparse
    indexer (0.1 %), DeepSeek-V4 differs by 0.9 % (tests/unit/schema/test_parameters.py).
    """
    layers = _layers(shape)
    mixers = sum(layer.mixer for layer in layers)
    feed_forward = sum(layer.feed_forward for layer in layers)
    experts = sum(layer.experts for layer in layers)
    active_experts = sum(layer.active_experts for layer in layers)
    embedding = shape.vocab_size * shape.hidden_size
    position = 0
    if shape.position_embedding_type == "learned_absolute":
        position = (shape.max_position_embeddings or shape.seq_length) * shape.hidden_size
    output = 0 if shape.share_embeddings_and_output_weights else shape.vocab_size * shape.hidden_size
    final_norm = _norm(shape)
    mtp_layer = _mtp_layer(shape)
    depth = shape.mtp_num_layers
    parts = {
        "embedding": embedding,
        "position_embedding": position,
        "mixers": mixers,
        "feed_forward": feed_forward,
        "experts": experts,
        "final_norm": final_norm,
        "output": output,
        "multi_token_prediction": depth * (mtp_layer.mixer + mtp_layer.feed_forward + mtp_layer.experts),
    }
    active = embedding + position + mixers + feed_forward + active_experts + final_norm + output
    return ParameterCount(
        total=sum(parts.values()),
        active=active,
        embedding=embedding + output,
        experts=experts + depth * mtp_layer.experts,
        multi_token_prediction=parts["multi_token_prediction"],
        parts={name: count for name, count in parts.items() if count},
    )


def _layers(shape: ModelShape) -> list[_Layer]:
    letters = shape.hybrid_layer_pattern.partition("/")[0].replace("|", "")
    if letters:
        return [_hybrid_layer(shape, letter) for letter in letters]
    pattern = shape.moe_layer_pattern or (False,) * shape.num_layers
    return [_layer(shape, index, is_moe=pattern[index]) for index in range(shape.num_layers)]


def _layer(shape: ModelShape, index: int, *, is_moe: bool) -> _Layer:
    mixer = _norm(shape) + (_linear_attention(shape) if _is_linear(shape, index) else _attention(shape))
    if not is_moe:
        return _Layer(mixer, _norm(shape) + _mlp(shape, shape.ffn_hidden_size))
    return _moe_layer(shape, mixer)


def _moe_layer(shape: ModelShape, mixer: int) -> _Layer:
    count, width = shape.num_moe_experts or 0, shape.moe_latent_size or shape.hidden_size
    size = shape.moe_ffn_hidden_size or shape.ffn_hidden_size
    expert = _matrices(shape) * width * size
    if shape.add_bias_linear:
        expert += _gates(shape) * size + width
    always = _norm(shape) + shape.hidden_size * count
    if shape.add_bias_linear:
        always += count
    if shape.moe_latent_size:
        always += 2 * shape.hidden_size * shape.moe_latent_size
    shared = shape.moe_shared_expert_intermediate_size or 0
    always += _matrices(shape) * shape.hidden_size * shared
    if shared and shape.moe_shared_expert_gate:
        always += shape.hidden_size
    return _Layer(mixer, always, count * expert, min(count, shape.moe_router_topk or 0) * expert)


def _hybrid_layer(shape: ModelShape, letter: str) -> _Layer:
    """One letter is one block with its norm: M Mamba, * attention, - MLP, E experts, G gated delta rule."""
    if letter == "M":
        return _Layer(_norm(shape) + _mamba(shape), 0)
    if letter == "-":
        return _Layer(0, _norm(shape) + _mlp(shape, shape.ffn_hidden_size))
    if letter == "E":
        return _moe_layer(shape, 0)
    if letter == "G":
        return _Layer(_norm(shape) + _linear_attention(shape), 0)
    return _Layer(_norm(shape) + _attention(shape), 0)


def _mtp_layer(shape: ModelShape) -> _Layer:
    """A prediction depth: two norms, a projection of 2 h to h, one layer like the model's last, and a norm."""
    if not shape.mtp_num_layers:
        return _Layer(0, 0)
    tail = shape.hybrid_layer_pattern.partition("/")[2].partition("/")[0]
    extra = 3 * _norm(shape) + 2 * shape.hidden_size * shape.hidden_size
    if tail:
        blocks = [_hybrid_layer(shape, letter) for letter in tail]
    else:
        blocks = [_full_attention_layer(shape)]
    return _Layer(
        extra + sum(block.mixer for block in blocks),
        sum(block.feed_forward for block in blocks),
        sum(block.experts for block in blocks),
        sum(block.active_experts for block in blocks),
    )


def _full_attention_layer(shape: ModelShape) -> _Layer:
    mixer = _norm(shape) + _attention(shape)
    if shape.is_moe:
        return _moe_layer(shape, mixer)
    return _Layer(mixer, _norm(shape) + _mlp(shape, shape.ffn_hidden_size))


def _norm(shape: ModelShape) -> int:
    return shape.hidden_size * (2 if shape.normalization == "LayerNorm" else 1)


def _gates(shape: ModelShape) -> int:
    return 2 if shape.gated_linear_unit else 1


def _matrices(shape: ModelShape) -> int:
    return _gates(shape) + 1


def _mlp(shape: ModelShape, size: int) -> int:
    bias = _gates(shape) * size + shape.hidden_size if shape.add_bias_linear else 0
    return _matrices(shape) * shape.hidden_size * size + bias


def _attention(shape: ModelShape) -> int:
    if shape.multi_latent_attention:
        return _latent_attention(shape)
    h = shape.hidden_size
    queries, keys = shape.num_attention_heads * shape.kv_channels, shape.num_query_groups * shape.kv_channels
    wide = queries * (2 if shape.attention_output_gate else 1) + 2 * keys
    count = h * wide + queries * h
    if shape.add_bias_linear or shape.add_qkv_bias:
        count += wide
    if shape.add_bias_linear:
        count += h
    if shape.softmax_type == "learnable":
        count += shape.num_attention_heads
    return count + (2 * shape.kv_channels if shape.qk_layernorm else 0)


def _latent_attention(shape: ModelShape) -> int:
    """Multi-latent attention: queries and keys through low-rank projections, each with its norm."""
    h, heads = shape.hidden_size, shape.num_attention_heads
    nope, rope, value = shape.qk_head_dim or 128, shape.qk_pos_emb_head_dim or 64, shape.v_head_dim or 128
    latent, query_latent = shape.kv_lora_rank or 512, shape.q_lora_rank
    queries = heads * (nope + rope)
    count = h * (latent + rope) + latent + latent * heads * (nope + value) + heads * value * h
    if query_latent:
        return count + h * query_latent + query_latent + query_latent * queries
    return count + h * queries


def _mamba(shape: ModelShape) -> int:
    """Mamba 2: input projection (gate, x, B, C, dt), convolution with bias, A, D, dt bias, gated norm, output projection."""
    h, head_dim = shape.hidden_size, shape.mamba_head_dim or 64
    heads = shape.mamba_num_heads or 2 * h // head_dim
    inner = heads * head_dim
    groups = 2 * (shape.mamba_num_groups or 8) * (shape.mamba_state_dim or 128)
    convolution = (inner + groups) * (MAMBA_CONVOLUTION + 1)
    return h * (2 * inner + groups + heads) + convolution + 3 * heads + inner + inner * h


def _linear_attention(shape: ModelShape) -> int:
    """Gated delta rule: query, key, value and gate projections, beta and alpha, convolution, norm per head, output."""
    h = shape.hidden_size
    key_heads, value_heads = shape.linear_num_key_heads or 0, shape.linear_num_value_heads or 0
    keys, values = key_heads * (shape.linear_key_head_dim or 0), value_heads * (shape.linear_value_head_dim or 0)
    projections = h * (2 * keys + 2 * values + 2 * value_heads)
    convolution = (2 * keys + values) * (shape.linear_conv_kernel_dim or 4)
    return projections + convolution + 2 * value_heads + (shape.linear_value_head_dim or 0) + values * h


def _is_linear(shape: ModelShape, index: int) -> bool:
    frequency: int | Sequence[int] | None = shape.linear_attention_freq
    if frequency is None or not shape.linear_num_value_heads or shape.experimental_attention_variant != "gated_delta_net":
        return False
    if isinstance(frequency, int):
        return (index + 1) % frequency != 0
    return bool(frequency[index])
