"""What two logs' own headers say against each other: settings that differ, and reasons not to rank losses at all."""

from __future__ import annotations

from autorecipe.schema.parity import FactDifference, Framework, TrainingLog

_TOKENIZER = (
    "tokenizer_type",
    "tokenizer_model",
    "vocab_size",
    "padded_vocab_size",
    "tokenizer.tokenizer_type",
    "tokenizer.tokenizer_model",
)
_ARCHITECTURE = (
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "group_query_attention",
    "swiglu",
    "normalization",
    "position_embedding_type",
    "num_experts",
    "moe_router_topk",
    "moe_ffn_hidden_size",
    "multi_latent_attention",
)
_OTHER_NAMES = {"num_experts": ("num_moe_experts", "model.num_moe_experts"), "vocab_size": ("tokenizer.vocab_size",)}
"""Name in the lists here -> Bridge's for the same setting, where it is another."""

_OF_EXPERTS = ("moe_router_topk", "moe_ffn_hidden_size")
"""Settings that mean nothing in a model without experts, whatever an argument table prints."""

_UNSET = ("None", "null")
_IGNORED = (
    "rank",
    "local_rank",
    "save",
    "load",
    "tensorboard_dir",
    "wandb_save_dir",
    "data_cache_path",
    "master_port",
    "log_interval",
    "world_size",
)


def compare_facts(one: TrainingLog, other: TrainingLog) -> tuple[FactDifference, ...]:
    """List settings that the headers state with other values.

    Where both headers hold whole Megatron-LM command lines, an option that only one of them gives counts too.
    """
    both_complete = _lists_all_arguments(one) and _lists_all_arguments(other)
    names = set(one.facts) | set(other.facts) if both_complete else set(one.facts) & set(other.facts)
    found = []
    for name in sorted(names):
        left, right = one.facts.get(name, "not given"), other.facts.get(name, "not given")
        if name.rsplit(".", 1)[-1] in _IGNORED or _same(left, right):
            continue
        found.append(FactDifference(name=name, reference=left, candidate=right))
    return tuple(found)


def find_incomparable(one: TrainingLog, other: TrainingLog) -> list[str]:
    """Return why absolute losses may not be ranked: other tokenizers, other architectures; empty where nothing shows that."""
    found = []
    if _differs(one, other, _TOKENIZER):
        found.append("different tokenizers or vocabularies")
    architecture = _differs(one, other, _ARCHITECTURE)
    if architecture:
        found.append(f"different architectures ({', '.join(architecture)})")
    return found


def read_hidden_size(log: TrainingLog) -> int | None:
    """Return the hidden size that a header states, or None."""
    value = _value(log, "hidden_size")
    return int(value) if value is not None and value.isdigit() and int(value) else None


def _differs(one: TrainingLog, other: TrainingLog, names: tuple[str, ...]) -> list[str]:
    both_complete = _lists_all_arguments(one) and _lists_all_arguments(other)
    found = []
    for name in names:
        left, right = _value(one, name), _value(other, name)
        if both_complete and (left is None) != (right is None):
            left, right = left or "not given", right or "not given"
        if left is not None and right is not None and not _same(left, right):
            found.append(f"{name} {left} / {right}")
    return found


def _lists_all_arguments(log: TrainingLog) -> bool:
    """Return whether a header holds a whole Megatron-LM command line, so that what is absent was not given."""
    return log.framework is Framework.MEGATRON_LM and {"num_layers", "hidden_size", "num_attention_heads"} <= set(log.facts)


def _value(log: TrainingLog, name: str) -> str | None:
    """Return the value that acts, under the setting's Megatron-LM name or its Bridge path; None where nothing is stated.

    Megatron-LM's argument table prints defaults that do not act: one query group where attention is not grouped, a top-k
    without experts.
    """
    if name in _OF_EXPERTS and _stated(log, "num_experts") in (None, *_UNSET):
        return None
    if name == "num_query_groups" and log.facts.get("group_query_attention", "").lower() == "false":
        return _stated(log, "num_attention_heads")
    value = _stated(log, name)
    return None if value in _UNSET else value


def _stated(log: TrainingLog, name: str) -> str | None:
    keys = (name, f"model.{name}", *_OTHER_NAMES.get(name, ()))
    return next((log.facts[key] for key in keys if key in log.facts), None)


def _same(one: str, other: str) -> bool:
    if one == other or one.lower() == other.lower():
        return True
    try:
        return float(one) == float(other)
    except ValueError:
        return False
