"""Bytes that one block keeps for its backward pass, and the working set while it runs.

Shape legend: T = micro batch x sequence / CP tokens of a rank inside tensor-parallel regions, N = T / TP outside them under
sequence parallelism (else T), h hidden, R = tokens that reach the rank's experts. Two bytes an element unless said otherwise;
what a quantized product saves of its input takes one.

Formula: the sum of what each operator saves, in the order of the forward pass, less what recomputation drops.
Source: save_for_backward calls of Megatron-Core 0.16.1 and Transformer Engine 2.x; Korthikanti et al. 2022 (arXiv 2205.05198)
for the method.
Evidence: derived; the LOCAL form is checked against the traced model, the TE form against published peaks.
Error: printed by bench/estimators.py.
"""

from __future__ import annotations

from autorecipe.estimate.adapters import dora_bytes
from autorecipe.estimate.tokens import Tokens, routed_tokens
from autorecipe.record import dataclass
from autorecipe.schema.blocks import Block, expert_width, linear_attention_sizes, mamba_sizes
from autorecipe.schema.estimate import ExecutionPolicy, LayerImplementation, Precision
from autorecipe.schema.model import ModelShape


@dataclass(frozen=True)
class Saved:
    """Bytes of one block for one micro batch.

    Attributes:
        kept: saved for backward under the policy's recomputation (full recomputation excluded).
        full: saved without any recomputation.
        entry: the block's input alone.
        working: largest working set of its forward or backward pass beyond what is saved.
    """

    kept: float
    full: float
    entry: float
    working: float


def block_activations(shape: ModelShape, block: Block, tokens: Tokens, policy: ExecutionPolicy) -> Saved:
    """Return what one block saves and needs."""
    saved = _plain_activations(shape, block, tokens, policy)
    if policy.adapters is None or not policy.adapters.dora:
        return saved
    routed = routed_tokens(shape, tokens, policy) if block is Block.MOE else 0.0
    outputs, norms = dora_bytes(shape, block, tokens, policy.adapters, routed=routed)
    again = ("moe" if block is Block.MOE else "mlp") in policy.recompute.modules and block in (Block.MOE, Block.MLP)
    return Saved(saved.kept + (0.0 if again else outputs), saved.full + outputs, saved.entry, max(saved.working, norms))


def _plain_activations(shape: ModelShape, block: Block, tokens: Tokens, policy: ExecutionPolicy) -> Saved:
    if block in (Block.ATTENTION, Block.WINDOW_ATTENTION):
        return _attention(shape, tokens, policy)
    if block is Block.MLA:
        return _mla(shape, tokens, policy)
    if block is Block.MAMBA:
        return _mamba(shape, tokens, policy)
    if block is Block.LINEAR_ATTENTION:
        return _linear_attention(shape, tokens, policy)
    if block is Block.MOE:
        return _moe(shape, tokens, policy)
    return _mlp(shape, tokens, policy)


def operand_bytes(policy: ExecutionPolicy) -> float:
    """Bytes of one saved element of a linear layer's input.

    Block-scaled formats keep one scale per 32 (MXFP8) or 128 (FP8_BLOCK) elements beside the values.
    """
    if policy.precision is Precision.FP32:
        return 4.0
    if policy.layers is LayerImplementation.LOCAL or not policy.precision.is_quantized:
        return 2.0
    return {Precision.MXFP8: 1 + 1 / 32, Precision.FP8_BLOCK: 1 + 4 / 128, Precision.NVFP4: 0.5 + 1 / 16}.get(
        policy.precision, 1.0
    )


def element_bytes(policy: ExecutionPolicy) -> float:
    """Bytes of one element of an ordinary activation."""
    return 4.0 if policy.precision is Precision.FP32 else 2.0


def _is_saved(policy: ExecutionPolicy, *names: str) -> bool:
    """Whether the input of linear layers is kept: a frozen weight needs it for no gradient, an adapter on it does."""
    return policy.adapters is None or any(name in policy.adapters.targets for name in names)


def _norm_statistics(shape: ModelShape, tokens: Tokens) -> float:
    return (8 if shape.normalization == "LayerNorm" else 4) * tokens.outside


def _norm_output(shape: ModelShape, tokens: Tokens, policy: ExecutionPolicy, *, recomputed: bool) -> tuple[float, float]:
    """Return (kept, full) bytes of a norm's output as the next product saves it."""
    size = operand_bytes(policy) * tokens.outside * shape.hidden_size
    return (0.0 if recomputed else size), size


ROTARY = ("rope", "yarn", "mrope")
"""Position embeddings that rotate queries and keys."""


def _rotary(shape: ModelShape, tokens: Tokens, width: int) -> float:
    """Bytes of cosines and sines that unfused rotary embeddings of queries and keys save, in 16 bits."""
    return 8.0 * tokens.inside / tokens.samples * width if shape.position_embedding_type in ROTARY else 0.0


def _dropout_mask(shape: ModelShape, tokens: Tokens, policy: ExecutionPolicy) -> float:
    return tokens.outside * shape.hidden_size if policy.dropout else 0.0


def is_unfused(policy: ExecutionPolicy) -> bool:
    """Whether attention stores its score matrix."""
    return policy.attention_backend in ("unfused", "local")


def _core_attention(
    shape: ModelShape, tokens: Tokens, policy: ExecutionPolicy, *, heads: float, out: float
) -> tuple[float, float]:
    """Return (kept, full) bytes of core attention beyond q, k and v: its output, and the softmax or its statistics.

    Unfused: probabilities, and with dropout its mask and its output (2 + 1 + 2 bytes a score), as the masked softmax kernel
    saves them.
    """
    e = element_bytes(policy)
    output = e * tokens.inside * out / tokens.tp
    recomputed = "core_attn" in policy.recompute.modules
    if is_unfused(policy):
        scores = tokens.inside * tokens.sequence * heads / tokens.tp
        inner = scores * (2 * e + 1 if policy.dropout else e)
    else:
        inner = 4 * tokens.inside * heads / tokens.tp
    full = output + inner
    return (output if recomputed else full), full


def _attention(shape: ModelShape, tokens: Tokens, policy: ExecutionPolicy) -> Saved:
    h, e, x = shape.hidden_size, element_bytes(policy), operand_bytes(policy)
    q = shape.num_attention_heads * shape.kv_channels
    kv = shape.num_query_groups * shape.kv_channels
    local = policy.layers is LayerImplementation.LOCAL
    n, t, tp = tokens.outside, tokens.inside, tokens.tp
    entry = e * n * h
    norm_kept, norm_full = _norm_output(shape, tokens, policy, recomputed=not _is_saved(policy, "linear_qkv"))
    gathered_kv = kv if shape.num_query_groups >= tp else kv * tp / shape.num_query_groups
    qkv = e * t * (q + 2 * gathered_kv) / tp
    mixed = 0.0
    if local:
        # Values stay a view of the whole projection; queries and keys are new after the rotary embedding.
        mixed += e * t * (q + gathered_kv) / tp if shape.position_embedding_type in ROTARY else 0.0
        mixed += 0.0 if policy.fused_layers else _rotary(shape, tokens, shape.kv_channels)
    if shape.qk_layernorm:
        mixed += e * t * (q + gathered_kv) / tp + 4 * t * (shape.num_attention_heads + shape.num_query_groups) / tp
    if shape.attention_output_gate:
        mixed += 2 * e * t * q / tp
    if tokens.cp > 1 and (policy.cp_comm_type == "all_gather" or (local and policy.cp_comm_type != "a2a")):
        qkv += e * t * tokens.cp * 2 * gathered_kv / tp
    core_kept, core_full = _core_attention(shape, tokens, policy, heads=shape.num_attention_heads, out=q)
    saves_out = policy.precision.is_quantized and not local and _is_saved(policy, "linear_proj")
    quantized_out = x * t * q / tp if saves_out else 0.0
    rest = entry + _norm_statistics(shape, tokens) + qkv + mixed + quantized_out + _dropout_mask(shape, tokens, policy)
    working = e * t * (2 * q + 2 * gathered_kv) / tp + 2 * e * n * h + (e * t * h if n < t else 0.0)
    if is_unfused(policy):
        working += 2 * e * tokens.inside * tokens.sequence * shape.num_attention_heads / tp
    return Saved(rest + norm_kept + core_kept, rest + norm_full + core_full, entry, working)


def _mla(shape: ModelShape, tokens: Tokens, policy: ExecutionPolicy) -> Saved:
    h, e, x = shape.hidden_size, element_bytes(policy), operand_bytes(policy)
    n, t, tp, heads = tokens.outside, tokens.inside, tokens.tp, shape.num_attention_heads
    nope, rope, value = shape.qk_head_dim or 128, shape.qk_pos_emb_head_dim or 64, shape.v_head_dim or 128
    latent = shape.kv_lora_rank or 512
    entry = e * n * h
    norm_kept, norm_full = _norm_output(shape, tokens, policy, recomputed="layernorm" in policy.recompute.modules)
    local = policy.layers is LayerImplementation.LOCAL
    # A norm between the two projections makes the second one save another tensor.
    down = (e + x if shape.qk_layernorm else e) * n * ((shape.q_lora_rank or 0) + latent) + e * n * rope
    up = e * t * heads * (2 * (nope + rope) + value) / tp
    up_kept = 0.0 if "mla_up_proj" in policy.recompute.modules else up
    core_kept, core_full = _core_attention(shape, tokens, policy, heads=heads, out=heads * value)
    quantized_out = x * t * heads * value / tp if policy.precision.is_quantized else 0.0
    rest = entry + _norm_statistics(shape, tokens) + down + quantized_out + _dropout_mask(shape, tokens, policy)
    rest += _rotary(shape, tokens, rope) if local else 0.0
    working = e * t * heads * (3 * (nope + rope) + 2 * value) / tp + 2 * e * n * h
    return Saved(rest + norm_kept + up_kept + core_kept, rest + norm_full + up + core_full, entry, working)


def _feed_forward(shape: ModelShape, policy: ExecutionPolicy, *, tokens: float, width: float) -> tuple[float, float, float]:
    """Return bytes of (first product's output, activation's output as saved, extra of an unfused activation)."""
    e, x = element_bytes(policy), operand_bytes(policy)
    gates = 2 if shape.gated_linear_unit else 1
    first = e * tokens * gates * width
    extra = 0.0
    if not policy.activation_fusion:
        extra = e * tokens * width if shape.gated_linear_unit else 0.0
    return first, x * tokens * width, extra


def _mlp(shape: ModelShape, tokens: Tokens, policy: ExecutionPolicy) -> Saved:
    h, e = shape.hidden_size, element_bytes(policy)
    n, t, tp, f = tokens.outside, tokens.inside, tokens.tp, shape.ffn_hidden_size
    entry = e * n * h
    fused_norm = policy.layers is LayerImplementation.TE
    mlp_recomputed = "mlp" in policy.recompute.modules
    drops_norm = (
        not _is_saved(policy, "linear_fc1")
        or (mlp_recomputed and fused_norm)
        or ("layernorm" in policy.recompute.modules and not fused_norm)
    )
    norm_kept, norm_full = _norm_output(shape, tokens, policy, recomputed=drops_norm)
    first, second, extra = _feed_forward(shape, policy, tokens=t, width=f / tp)
    second = second if _is_saved(policy, "linear_fc2") else 0.0
    rest = entry + _norm_statistics(shape, tokens) + _dropout_mask(shape, tokens, policy)
    inner = first + second + extra
    gates = 2 if shape.gated_linear_unit else 1
    into = e * t * f / tp
    gather = e * t * h if n < t else 0.0
    local = policy.layers is LayerImplementation.LOCAL
    weight = e * h * f / tp if local and not policy.fused_grads else 0.0
    fuses = policy.fused_layers and shape.gated_linear_unit and not shape.add_bias_linear
    if fuses:
        # The activation is computed again beside its gradient, while both gradients of the first product's output are written.
        inner = first
        working = e * n * h + max(into + gates * into + into, gates * into + gather + e * t * h + gates * weight - inner)
        return Saved(rest + norm_kept + (0.0 if mlp_recomputed else inner), rest + norm_full + inner, entry, working)
    # Without a fused kernel the activation's backward pass keeps its factors beside its result.
    factors = (gates if gates > 1 else 4) * into if local else 0.0
    # Backward of the second product, of the activation, of the first product; each after the tensors behind it are gone.
    working = e * n * h + max(
        into + gather + weight,
        into + gates * into + factors - second,
        gates * into + gather + e * t * h + gates * weight - inner,
    )
    return Saved(rest + norm_kept + (0.0 if mlp_recomputed else inner), rest + norm_full + inner, entry, working)


def _moe(shape: ModelShape, tokens: Tokens, policy: ExecutionPolicy) -> Saved:
    h, e, x = shape.hidden_size, element_bytes(policy), operand_bytes(policy)
    n, t, tp = tokens.outside, tokens.inside, tokens.tp
    experts, width = shape.num_moe_experts or 1, expert_width(shape)
    f = (shape.moe_ffn_hidden_size or shape.ffn_hidden_size) / tokens.etp
    modules = policy.recompute.modules
    moe_recomputed = "moe" in modules
    entry = e * n * h
    norm_kept, norm_full = _norm_output(shape, tokens, policy, recomputed="layernorm" in modules and not moe_recomputed)
    router = n * experts * 8.0 + n * (shape.moe_router_topk or 1) * 28.0
    routed = routed_tokens(shape, tokens, policy)
    first, second, extra = _feed_forward(shape, policy, tokens=routed, width=f)
    second = second if _is_saved(policy, "linear_fc2") else 0.0
    dispatched = (x * routed * width if _is_saved(policy, "linear_fc1") else 0.0) + 12 * routed
    latent = e * n * width * 2 if shape.moe_latent_size else 0.0
    shared_width = shape.moe_shared_expert_intermediate_size or 0
    shared_first, shared_second, shared_extra = _feed_forward(shape, policy, tokens=t, width=shared_width / tp)
    gate = e * n * h if shape.moe_shared_expert_gate else 0.0
    shared = shared_first + shared_second + shared_extra + gate
    shared_kept = 0.0 if "shared_experts" in modules else shared
    act_kept = 0.0 if "moe_act" in modules else second + extra
    inner = router + dispatched + first + second + extra + latent + shared
    away = policy.offloaded_modules
    if "fused_group_mlp" in away:
        dispatched_kept = first_kept = act_kept = 0.0
    else:
        dispatched_kept = 0.0 if "expert_fc1" in away else dispatched
        first_kept = 0.0 if "moe_act" in away else first
    kept = 0.0 if moe_recomputed else router + dispatched_kept + first_kept + act_kept + latent + shared_kept
    rest = entry + _norm_statistics(shape, tokens) + _dropout_mask(shape, tokens, policy)
    exchange = e * routed * width
    gates = 2 if shape.gated_linear_unit else 1
    into = e * routed * f
    local = policy.layers is LayerImplementation.LOCAL
    factors = (gates if gates > 1 else 4) * into if local else 0.0
    # As in a dense block; the routed tokens stand in two orders while they are exchanged.
    working = e * n * h + max(
        2 * exchange + into,
        into + gates * into + factors - second,
        gates * into + 2 * exchange - first - second,
    )
    return Saved(rest + norm_kept + kept, rest + norm_full + inner, entry, working)


def _mamba(shape: ModelShape, tokens: Tokens, policy: ExecutionPolicy) -> Saved:
    h, e, x = shape.hidden_size, element_bytes(policy), operand_bytes(policy)
    inner, groups = mamba_sizes(shape)
    heads = inner // (shape.mamba_head_dim or 64)
    n, t, tp = tokens.outside, tokens.inside, tokens.tp
    entry = e * n * h
    projected = e * t * (2 * inner + groups + heads) / tp
    saved = projected + e * t * inner / tp + x * t * inner / tp
    norm = x * n * h
    total = entry + _norm_statistics(shape, tokens) + norm + saved
    return Saved(total, total, entry, 2 * projected + 2 * e * n * h)


def _linear_attention(shape: ModelShape, tokens: Tokens, policy: ExecutionPolicy) -> Saved:
    h, e, x = shape.hidden_size, element_bytes(policy), operand_bytes(policy)
    keys, values = linear_attention_sizes(shape)
    heads = shape.linear_num_value_heads or 1
    n, t, tp = tokens.outside, tokens.inside, tokens.tp
    entry = e * n * h
    projected = e * t * (2 * keys + 2 * values + 2 * heads) / tp
    mixed = e * t * (2 * keys + values) / tp
    expanded = e * t * (2 * heads * (shape.linear_key_head_dim or 128) + values + 64 * heads) / tp
    saved = projected + mixed + expanded + (2 * e + x) * t * values / tp
    total = entry + _norm_statistics(shape, tokens) + x * n * h + saved
    return Saved(total, total, entry, projected + expanded + 2 * e * n * h)
