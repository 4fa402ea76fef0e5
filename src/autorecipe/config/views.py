"""Views of a flat configuration as schema types.

Each view reads `model.*`, `train.*` and `dataset.*` paths with upstream's own fallbacks. Missing facts raise `UsageError`
naming every missing path at once. Leaves out: legality (see the rules).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autorecipe.config.variants import read_variant
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.batch import Batch
from autorecipe.schema.layout import Layout
from autorecipe.schema.model import ModelShape
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import UNKNOWN

SEQUENCE_PATHS = ("dataset.seq_length", "dataset.sequence_length", "model.seq_length")
"""Where a sequence length may stand, strongest first: the dataset owns it."""


def view_layout(config: RunConfig) -> Layout:
    """Return the parallel layout of a configuration.

    Unset axes are 1. An unset expert tensor size is 1 when EP > 1 and TP otherwise (Megatron Bridge's rule; Megatron-LM
    takes TP in both cases). Sequence parallelism counts only where TP > 1, as upstream clears it elsewhere.
    """
    tp = _size(config, "model.tensor_model_parallel_size")
    ep = _size(config, "model.expert_model_parallel_size")
    etp = config.get("model.expert_tensor_parallel_size", None)
    is_moe = bool(config.get("model.num_moe_experts", None))
    if not isinstance(etp, int):
        etp = 1 if ep > 1 or not is_moe else tp
    return Layout(
        tp=tp,
        pp=_size(config, "model.pipeline_model_parallel_size"),
        vp=_size(config, "model.virtual_pipeline_model_parallel_size"),
        cp=_size(config, "model.context_parallel_size"),
        ep=ep,
        etp=etp if is_moe else 1,
        sequence_parallel=tp > 1 and config.get("model.sequence_parallel", False) is True,
    )


def view_batch(config: RunConfig) -> Batch:
    """Return batch sizes and the sequence length that takes effect.

    Raises:
        UsageError: naming every missing path.
    """
    sequence = view_seq_length(config)
    gbs = config.get("train.global_batch_size", None)
    mbs = config.get("train.micro_batch_size", None)
    missing = [
        path
        for path, value in (
            ("train.global_batch_size", gbs),
            ("train.micro_batch_size", mbs),
            (SEQUENCE_PATHS[0], sequence),
        )
        if not isinstance(value, int)
    ]
    if missing:
        raise UsageError([_missing(path) for path in missing])
    assert isinstance(sequence, int)
    return Batch(global_batch_size=gbs, micro_batch_size=mbs, seq_length=sequence)


def view_seq_length(config: RunConfig) -> int | None:
    """Return the sequence length that takes effect (the dataset's before the model's), or None where unknown."""
    for path in SEQUENCE_PATHS:
        value = config.get(path, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def view_model(config: RunConfig) -> ModelShape:
    """Return the model's shape, with upstream's fallbacks for unset fields.

    Fallbacks (Megatron-Core TransformerConfig.__post_init__): KV heads default to the attention heads, head size to
    hidden / heads, FFN size to 4 x hidden, expert FFN size to the dense FFN size.

    Raises:
        UsageError: naming every path that is missing, or below 1 where a size is needed.
    """
    pattern = _get(config, "hybrid_layer_pattern") or _get(config, "hybrid_override_pattern") or ""
    # A hybrid model may leave its depth to its pattern: one letter a layer, `|` between stages, `/` before MTP.
    layers = _get(config, "num_layers") or len(pattern.partition("/")[0].replace("|", ""))
    required = ("hidden_size", "num_attention_heads")
    problems = []
    if not isinstance(layers, int) or not layers:
        problems.append(_missing("model.num_layers"))
    for name in required:
        value = _get(config, name)
        if not isinstance(value, int):
            problems.append(_missing(f"model.{name}"))
        elif value < 1:
            problems.append(_too_small(f"model.{name}", value))
    if problems:
        raise UsageError(problems)
    hidden = _get(config, "hidden_size")
    heads = _get(config, "num_attention_heads")
    ffn = _get(config, "ffn_hidden_size") or 4 * hidden
    experts = _get(config, "num_moe_experts")
    variant = read_variant(config)
    own = {} if variant is None else variant.arguments
    window = own.get("window_size", _get(config, "window_size"))
    plain: dict[str, Any] = {
        name: _get(config, name)
        for name in (
            "max_position_embeddings",
            "q_lora_rank",
            "kv_lora_rank",
            "qk_head_dim",
            "qk_pos_emb_head_dim",
            "v_head_dim",
            "moe_router_topk",
            "moe_shared_expert_intermediate_size",
            "moe_latent_size",
            "mamba_num_heads",
            "mamba_head_dim",
            "mamba_state_dim",
            "mamba_num_groups",
            "experimental_attention_variant",
            "linear_attention_freq",
            "linear_num_key_heads",
            "linear_num_value_heads",
            "linear_key_head_dim",
            "linear_value_head_dim",
            "linear_conv_kernel_dim",
            "window_attn_skip_freq",
        )
    }
    if "window_attn_skip_freq" in own:
        plain["window_attn_skip_freq"] = own["window_attn_skip_freq"]
    flags: dict[str, Any] = {
        name: bool(_get(config, name))
        for name in (
            "gated_linear_unit",
            "add_bias_linear",
            "add_qkv_bias",
            "qk_layernorm",
            "share_embeddings_and_output_weights",
            "attention_output_gate",
            "multi_latent_attention",
            "moe_shared_expert_gate",
            "moe_router_enable_expert_bias",
        )
    }
    return ModelShape(
        num_layers=layers,
        hidden_size=hidden,
        ffn_hidden_size=ffn,
        num_attention_heads=heads,
        num_query_groups=_get(config, "num_query_groups") or heads,
        kv_channels=_get(config, "kv_channels") or hidden // heads,
        vocab_size=_vocab_size(config),
        seq_length=view_seq_length(config) or 0,
        normalization=_get(config, "normalization") or "LayerNorm",
        activation_func=str(_get(config, "activation_func") or "gelu").rsplit(":", 1)[-1].rsplit(".", 1)[-1],
        position_embedding_type=_get(config, "position_embedding_type") or "learned_absolute",
        make_vocab_size_divisible_by=_get(config, "make_vocab_size_divisible_by") or 128,
        softmax_type=_get(config, "softmax_type") or "vanilla",
        window_size=tuple(window) if isinstance(window, list | tuple) else None,
        has_post_norms=variant is not None and variant.has_post_norms,
        norms_all_heads=variant is not None and variant.norms_all_heads,
        num_moe_experts=experts,
        moe_ffn_hidden_size=(_get(config, "moe_ffn_hidden_size") or ffn) if experts else None,
        moe_layer_pattern=moe_layer_pattern(_get(config, "moe_layer_freq"), layers) if experts else (),
        mtp_num_layers=_get(config, "mtp_num_layers") or 0,
        hybrid_layer_pattern=pattern,
        **plain,
        **flags,
    )


def moe_layer_pattern(frequency: int | str | Sequence[int] | None, num_layers: int) -> tuple[bool, ...]:
    """Expand `moe_layer_freq` to one flag per decoder layer.

    Args:
        frequency: N (every Nth layer, starting at the first), a list of 0 and 1, a list expression such as
            `([0]*3+[1]*58)`, or None (every layer).
        num_layers: decoder layers.

    Returns:
        flags, [num_layers].

    Raises:
        UsageError: a list of another length, or text that is not a list expression.
    """
    if frequency is None:
        return (True,) * num_layers
    if isinstance(frequency, str):
        frequency = evaluate_list_expression(frequency)
    if isinstance(frequency, int):
        return tuple(index % frequency == 0 for index in range(num_layers))
    flags = tuple(bool(flag) for flag in frequency)
    if len(flags) != num_layers:
        raise UsageError(
            Problem(
                path="model.moe_layer_freq",
                message=f"gives {len(flags)} layers, but model.num_layers={num_layers}",
                hint="give one 0 or 1 per layer, or a single number N for every Nth layer",
            )
        )
    return flags


def evaluate_list_expression(text: str) -> Any:
    """Evaluate an arithmetic list expression such as `([0]*3+[1]*58)` without executing code.

    Args:
        text: lists, integers, `+` and `*` only.

    Raises:
        UsageError: anything else, or a result of more than 100,000 elements.
    """
    try:
        from autorecipe.config.list_expression import evaluate  # Python's parser, which few configurations need

        return evaluate(text.strip())
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise UsageError(
            Problem(
                message=f"{text!r} is not a list expression: {error}",
                hint="use lists, integers, + and *, such as ([0]*3+[1]*58)",
            )
        ) from None


def _get(config: RunConfig, name: str) -> Any:
    value = config.get(f"model.{name}", None)
    return None if value is UNKNOWN else value


def _size(config: RunConfig, path: str) -> int:
    value = config.get(path, None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1


def _vocab_size(config: RunConfig) -> int:
    for path in ("model.vocab_size", "tokenizer.vocab_size"):
        value = config.get(path, None)
        if isinstance(value, int):
            return value
    return 0


def _missing(path: str) -> Problem:
    return Problem(
        code="missing-value",
        path=path,
        message="is not set, and is needed here",
        hint=f"add {path}=VALUE to the overrides",
    )


def _too_small(path: str, value: int) -> Problem:
    return Problem(
        code="bad-value",
        path=path,
        message=f"is {value}, and a model needs at least 1",
        hint=f"add {path}=VALUE to the overrides, with a number from 1",
    )
