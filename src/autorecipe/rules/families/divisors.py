"""PAR: what each axis must divide: key-value groups, heads, experts, the sequence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autorecipe.rules.context import Context
from autorecipe.rules.declare import computes
from autorecipe.rules.derived import AXIS_PATHS
from autorecipe.rules.layout import divisors, experts_fit, heads_fit, linear_heads_fit, sequence_fits, tensor_parallel_fits
from autorecipe.rules.rule import Breach, Missing, Verdict
from autorecipe.schema import Fix, Stage


@computes(
    "PAR003",
    "MC-GQA-01 BR-MODEL-03",
    "TP must fit the key-value groups",
    formula="groups % TP == 0, or (from core 0.16) TP % groups == 0",
    paths="tensor_model_parallel_size num_query_groups num_attention_heads",
    source="lm:megatron/core/transformer/transformer_config.py:1466",
    why="Each rank needs whole key-value heads. Before core 0.16 TP could not exceed the groups; since then groups are "
    "replicated when TP is a multiple of them.",
    bad="TP=6 num_attention_heads=48 num_query_groups=8",
    good="TP=4",
)
def tensor_groups(context: Context) -> Iterator[Verdict]:
    """Check TP against the key-value groups, by core release."""
    tp = context.layout.tp
    groups = context.integer("model.num_query_groups") or context.integer("model.num_attention_heads")
    if tp == 1:
        return
    if not groups:
        yield Missing(paths=("model.num_query_groups",))
        return
    if tensor_parallel_fits(tp, groups, context.core):
        return
    heads = context.integer("model.num_attention_heads")
    legal = _legal_tp(groups, heads, context.core)
    newer = tensor_parallel_fits(tp, groups)
    way = f"; TP={tp} is legal from core 0.16" if newer else ""
    yield Breach(
        message=f"tp={tp} does not fit num_query_groups={groups} in core {context.core}: "
        f"{'TP must divide the groups' if not _replicates(context.core) else 'neither divides the other'}{way}",
        legal={AXIS_PATHS["TP"]: legal},
        fixes=tuple(Fix(overrides=_with_tp(context, value)) for value in sorted(legal, key=lambda value: abs(value - tp))[:3]),
        facts={"num_query_groups": groups, "legal_from_core": "0.16" if newer else None},
        hint=f"use tp in {legal}" + (", or Megatron-Core 0.16 and newer" if newer else ""),
    )


def _replicates(core: str) -> bool:
    return tensor_parallel_fits(2, 1, core)


def _legal_tp(groups: int, heads: int | None, core: str, limit: int = 64) -> list[int]:
    return [
        tp for tp in range(1, limit + 1) if tensor_parallel_fits(tp, groups, core) and (heads is None or heads_fit(tp, heads))
    ]


def _with_tp(context: Context, tp: int) -> dict[str, Any]:
    change: dict[str, Any] = {AXIS_PATHS["TP"]: tp}
    if tp == 1 and context.model("sequence_parallel"):
        change["model.sequence_parallel"] = False
    return change


@computes(
    "PAR004",
    "MC-HEADS-01",
    "TP must divide the attention heads",
    formula="heads % TP == 0",
    paths="tensor_model_parallel_size num_attention_heads",
    source="lm:megatron/core/transformer/transformer_config.py:1448",
    why="Each rank computes whole heads.",
    bad="TP=3 num_attention_heads=32",
    good="TP=4",
)
def tensor_heads(context: Context) -> Iterator[Verdict]:
    """Check TP against the attention heads."""
    tp, heads = context.layout.tp, context.integer("model.num_attention_heads")
    if tp == 1 or (context.derived("HYBRID") is True and not heads):
        return
    if not heads:
        yield Missing(paths=("model.num_attention_heads",))
        return
    if heads_fit(tp, heads):
        return
    groups = context.integer("model.num_query_groups") or heads
    legal = _legal_tp(groups, heads, context.core)
    yield Breach(
        message=f"num_attention_heads={heads} is not a multiple of TP={tp}",
        legal={AXIS_PATHS["TP"]: legal},
        fixes=tuple(Fix(overrides=_with_tp(context, value)) for value in sorted(legal, key=lambda value: abs(value - tp))[:3]),
        hint=f"use tp in {legal}",
    )


@computes(
    "PAR005",
    "MC-MOEBUILD-01 MLM-MOE-02",
    "EP must divide the experts",
    formula="experts % EP == 0",
    paths="num_moe_experts expert_model_parallel_size",
    stage=Stage.BUILD,
    source="lm:megatron/core/transformer/moe/moe_layer.py:186 + lm:megatron/training/arguments.py:1658",
    why="Bridge never compares the two before the model is built; then a bare assertion fails on every rank.",
    bad="gpus=3 num_moe_experts=8 EP=3 ETP=1",
    good="EP=1",
)
def experts(context: Context) -> Iterator[Verdict]:
    """Check EP against the number of experts."""
    ep = context.layout.ep
    if ep == 1:
        return
    number = context.read("model.num_moe_experts")
    if not isinstance(number, int) or isinstance(number, bool):
        if number is not None:
            yield Missing(paths=("model.num_moe_experts",))
        return
    if experts_fit(number, ep):
        return
    legal = divisors(number)
    yield Breach(
        message=f"num_moe_experts={number} is not a multiple of EP={ep}",
        legal={AXIS_PATHS["EP"]: legal},
        fixes=tuple(
            Fix(overrides={AXIS_PATHS["EP"]: value}) for value in sorted(legal, key=lambda value: (abs(value - ep), -value))[:3]
        ),
        hint=f"use ep in {legal}",
    )


@computes(
    "PAR006",
    "MLM-CP-01 BR-CP-01",
    "With context parallelism the sequence must be a multiple of 2 x CP",
    formula="CP == 1 or S % (2 * CP) == 0",
    paths="context_parallel_size dataset.seq_length",
    stage=Stage.VALIDATE,
    source="lm:megatron/training/arguments.py:1337 + br:src/megatron/bridge/training/config.py:1576",
    why="Causal attention is balanced by giving each rank one early and one late chunk, so that 2 x CP equal chunks are needed.",
    bad="CP=3 dataset.seq_length=8192",
    good="CP=4",
)
def context_sequence(context: Context) -> Iterator[Verdict]:
    """Check the sequence length against CP."""
    cp, length = context.layout.cp, context.seq_length
    if cp == 1:
        return
    if length is None:
        yield Missing(paths=("dataset.seq_length",))
        return
    if sequence_fits(length, cp):
        return
    legal = [value for value in range(1, min(1024, max(64, 2 * cp)) + 1) if sequence_fits(length, value)]
    lower = length // (2 * cp) * 2 * cp
    near = sorted(legal, key=lambda value: (abs(value - cp), -value))[:2]
    fixes = [Fix(overrides={AXIS_PATHS["CP"]: value}) for value in near]
    if lower:
        paths = [path for path in ("dataset.seq_length", "dataset.sequence_length", "model.seq_length") if path in context.values]
        fixes.append(Fix(overrides=dict.fromkeys(paths, lower), note="changes the sequence length: a new convergence experiment"))
    yield Breach(
        message=f"seq_length={length} is not a multiple of 2 x CP = {2 * cp}",
        legal={AXIS_PATHS["CP"]: legal},
        fixes=tuple(fixes),
        hint=f"use cp in {legal[:8]}",
    )


@computes(
    "PAR007",
    "MC-GDN-03",
    "Linear-attention heads must be a multiple of TP x CP",
    formula="key_heads % (TP * CP) == 0 and value_heads % (TP * CP) == 0",
    paths="linear_num_key_heads linear_num_value_heads experimental_attention_variant tensor_model_parallel_size "
    "context_parallel_size",
    source="lm:megatron/core/transformer/transformer_config.py:1503",
    why="Gated delta net shards its heads over both axes, unlike attention, which shards them over TP alone.",
    bad="experimental_attention_variant=gated_delta_net linear_num_key_heads=16 linear_num_value_heads=32 TP=8 CP=4 "
    "linear_attention_freq=4 num_attention_heads=64 add_bias_linear=false",
    good="CP=2",
)
def linear_heads(context: Context) -> Iterator[Verdict]:
    """Check linear-attention heads against TP x CP."""
    variant = str(context.model("experimental_attention_variant", "") or "").lower()
    if not ("gdn" in variant or "gated" in variant):
        return
    tp, cp = context.layout.tp, context.layout.cp
    key, value = context.integer("model.linear_num_key_heads"), context.integer("model.linear_num_value_heads")
    if tp * cp == 1:
        return
    if not key or not value:
        yield Missing(paths=("model.linear_num_key_heads", "model.linear_num_value_heads"))
        return
    if linear_heads_fit(key, value, tp, cp):
        return
    legal = [size for size in divisors(key) if value % size == 0]
    cps = [size for size in divisors(cp) if linear_heads_fit(key, value, tp, size)]
    tps = [size for size in divisors(tp) if linear_heads_fit(key, value, size, cp)]
    fixes = [Fix(overrides={AXIS_PATHS["CP"]: cps[-1]})] if cps else []
    fixes += [Fix(overrides=_with_tp(context, tps[-1]))] if tps else []
    yield Breach(
        message=f"linear heads {key} and {value} are not multiples of TP x CP = {tp * cp}",
        legal={"tp*cp": legal},
        fixes=tuple(fixes),
        facts={"valid_tp_times_cp": legal},
        hint=f"use tp x cp in {legal}",
    )


RULES = (
    tensor_groups,
    tensor_heads,
    experts,
    context_sequence,
    linear_heads,
)
