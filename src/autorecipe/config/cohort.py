"""Whether model-verification runs share one convergence contract, and what their result may be called.

Each deviation is listed with whether the architecture forces it and the override that removes it. Absolute losses of
different architectures or tokenizers are never ranked. Start reading at `check_cohort`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autorecipe.config.contract import DIMENSIONS, SAME, Contract, dimension_of
from autorecipe.config.diff import is_empty_holder
from autorecipe.config.grammar import GrammarError
from autorecipe.config.overrides import render_override, render_section
from autorecipe.config.sections import NULLABLE_SECTIONS
from autorecipe.config.views import view_seq_length
from autorecipe.record import dataclass
from autorecipe.schema.run import OriginKind, RunConfig
from autorecipe.schema.value import UNKNOWN, FieldValue, Unknown

ARCHITECTURE = (
    "model.num_layers",
    "model.hidden_size",
    "model.ffn_hidden_size",
    "model.num_attention_heads",
    "model.num_query_groups",
    "model.num_moe_experts",
    "model.normalization",
    "model.hybrid_layer_pattern",
    "model._class",
)


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """One value of one member that is not the contract's.

    Attributes:
        member: name of the member.
        dimension: dimension of the contract.
        path: configuration path.
        value: what the member has (`UNKNOWN` where its classes have no such field).
        expected: what the contract says.
        forced: whether the architecture forces it.
        why: why it is forced, or why no override removes it; empty otherwise.
        override: text that removes it; empty where there is none.
    """

    member: str
    dimension: str
    path: str
    value: FieldValue | Unknown
    expected: FieldValue | Unknown
    forced: bool
    why: str = ""
    override: str = ""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One run of a cohort.

    Attributes:
        name: recipe as typed.
        tokens_per_step: global batch x sequence (an upper bound where sequences are padded); None where unknown.
        horizon_tokens: tokens over the whole run; None where unknown.
        checkpoint_steps: steps at which the contract's token checkpoints fall; empty where it has none.
        overrides: overrides that align the member with the contract.
        doubts: why its losses would prove nothing, such as mock data.
    """

    name: str
    tokens_per_step: int | None
    horizon_tokens: int | None
    checkpoint_steps: tuple[int, ...]
    overrides: tuple[str, ...]
    doubts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CohortReport:
    """Result of a cohort check.

    Attributes:
        contract: name of the contract.
        members: members in order; the first is the reference.
        deviations: every deviation.
        aligned: no deviation is left that an override could remove.
        label: what the result may be called.
        reasons: why.
    """

    contract: str
    members: tuple[Member, ...]
    deviations: tuple[Deviation, ...]
    aligned: bool
    label: str
    reasons: tuple[str, ...]


def check_cohort(members: Mapping[str, RunConfig], contract: Contract) -> CohortReport:
    """Check that runs share one convergence contract.

    Args:
        members: name -> resolved configuration; the first is the reference.
        contract: what they share; what it leaves out is taken from the reference.
    """
    reference = next(iter(members.values()))
    expected = _expected_values(members, reference, contract)
    deviations: list[Deviation] = []
    rows: list[Member] = []
    for name, config in members.items():
        found = [
            item
            for path, value in expected.items()
            if path in contract.values or not _follows(path, config, reference)
            for item in _compare(name, config, reference, path, value)
        ]
        found += _checkpoint_deviations(name, config, contract)
        deviations += found
        rows.append(_describe_member(name, config, contract, found))
    same_model = all(_same_architecture(config, reference) for config in members.values())
    open_ones = [item for item in deviations if not item.forced]
    forced = [item for item in deviations if item.forced]
    label, reasons = _label(rows, open_ones, forced, same_model)
    return CohortReport(
        contract=contract.name,
        members=tuple(rows),
        deviations=tuple(deviations),
        aligned=not open_ones,
        label=label,
        reasons=reasons,
    )


def _expected_values(
    members: Mapping[str, RunConfig], reference: RunConfig, contract: Contract
) -> dict[str, FieldValue | Unknown]:
    paths = {path for config in members.values() for path in config.values if dimension_of(path)}
    order = [*DIMENSIONS, "environment"]
    ranked = sorted(paths | set(contract.values), key=lambda path: (_rank(order, path), path))
    expected: dict[str, FieldValue | Unknown] = {}
    for path in ranked:
        if path in contract.ignore:
            continue
        given = contract.values.get(path, SAME)
        expected[path] = reference.get(path) if given == SAME else given
    return expected


def _rank(order: Sequence[str], path: str) -> int:
    name = dimension_of(path)
    return order.index(name) if name else len(order)


def _compare(name: str, config: RunConfig, reference: RunConfig, path: str, expected: FieldValue | Unknown) -> list[Deviation]:
    value = config.get(path)
    if _equal(value, expected) or (value is UNKNOWN and expected is None) or (value is None and expected is UNKNOWN):
        return []
    if is_empty_holder(path, config, reference):
        return []
    dimension = dimension_of(path) or "contract"
    if dimension == "routing" and not config.get("model.num_moe_experts", None):
        return []  # a dense model has no routing to deviate with
    why = _forced_by_architecture(path, dimension, value, expected, config, reference)
    override, obstacle = ("", "") if why else _aligning_override(path, expected, config, reference)
    return [
        Deviation(
            member=name,
            dimension=dimension,
            path=path,
            value=value,
            expected=expected,
            forced=bool(why),
            why=why or obstacle,
            override=override,
        )
    ]


def _equal(value: FieldValue | Unknown, expected: FieldValue | Unknown) -> bool:
    if value is UNKNOWN or expected is UNKNOWN:
        return value is expected
    return value == expected and isinstance(value, bool) == isinstance(expected, bool)


def _follows(path: str, config: RunConfig, reference: RunConfig) -> bool:
    """A value that both sides derive follows other paths, which are compared themselves."""
    origins = [side.origins.get(path) for side in (config, reference)]
    return path != "derived.padded_vocab_size" and all(
        origin is not None and origin.kind is OriginKind.DERIVED for origin in origins
    )


def _forced_by_architecture(
    path: str,
    dimension: str,
    value: FieldValue | Unknown,
    expected: FieldValue | Unknown,
    config: RunConfig,
    reference: RunConfig,
) -> str:
    if dimension == "tokenizer" and not _same_architecture(config, reference):
        return "the tokenizer belongs to the model"
    if value is UNKNOWN and path.startswith("model."):
        return "its model class has no such field"
    if expected is UNKNOWN and path.startswith("model."):
        return "the reference's model class has no such field"
    if dimension == "routing" and not reference.get("model.num_moe_experts", None):
        return "the reference is a dense model"
    origin = config.origins.get(path)
    if origin is not None and origin.kind is OriginKind.MODEL_CARD:
        return "the model's own configuration says so"
    return ""


def _aligning_override(path: str, expected: FieldValue | Unknown, config: RunConfig, reference: RunConfig) -> tuple[str, str]:
    """Return the override that removes a deviation, or why there is none."""
    if path.startswith("mixed_precision."):
        name = reference.get("mixed_precision", None)
        if isinstance(name, str):
            return f"mixed_precision={name}", ""
        return _precision_object(reference), ""
    if path.endswith("._class"):
        return "", f"another kind of dataset: choose the same --dataset for every member (here {config.get(path, None)})"
    if path == "dataset.mock":
        return "", "mock data: give every member the same data"
    if path.startswith("derived."):
        return "", "follows from the vocabulary and the tensor parallel size: pin model.vocab_size"
    if expected is UNKNOWN:
        return "", "the reference has no such field"
    if config.get(path) is UNKNOWN and path.split(".", 1)[0] != "env_vars":
        return "", "its configuration class has no such field"
    try:
        return render_override(path, expected), ""
    except GrammarError as error:
        return "", str(error)


def _precision_object(reference: RunConfig) -> str:
    fields = {
        path.split(".", 1)[1]: value
        for path, value in reference.values.items()
        if path.startswith("mixed_precision.") and not path.endswith("._class")
    }
    if not fields:
        return "mixed_precision=null"
    return render_section("mixed_precision", NULLABLE_SECTIONS["mixed_precision"].target, fields)


def _tokens_per_step(config: RunConfig) -> int | None:
    batch, sequence = config.get("train.global_batch_size", None), view_seq_length(config)
    return batch * sequence if isinstance(batch, int) and isinstance(sequence, int) else None


def _checkpoint_deviations(name: str, config: RunConfig, contract: Contract) -> list[Deviation]:
    """Each token checkpoint must be a whole number of steps, on a saved step, within the run."""
    per_step = _tokens_per_step(config)
    iters, interval = config.get("train.train_iters", None), config.get("checkpoint.save_interval", None)
    if not contract.token_checkpoints or not per_step:
        return []
    found: list[Deviation] = []
    steps = [tokens / per_step for tokens in contract.token_checkpoints]
    uneven = [tokens for tokens, step in zip(contract.token_checkpoints, steps, strict=True) if step != int(step)]
    if uneven:
        found.append(
            Deviation(
                member=name,
                dimension="token checkpoints",
                forced=False,
                path="train.global_batch_size",
                value=per_step,
                expected=contract.token_checkpoints,
                why=f"{uneven[0]} tokens are {uneven[0] / per_step:.3f} steps of {per_step} tokens: choose a multiple",
            )
        )
        return found
    whole = [int(step) for step in steps]
    if isinstance(iters, int) and whole[-1] > iters:
        found.append(
            Deviation(
                member=name,
                dimension="token checkpoints",
                forced=False,
                path="train.train_iters",
                value=iters,
                expected=whole[-1],
                override=render_override("train.train_iters", whole[-1]),
            )
        )
    if isinstance(interval, int) and interval > 0 and any(step % interval for step in whole):
        divisor = math.gcd(*whole)
        found.append(
            Deviation(
                member=name,
                dimension="token checkpoints",
                forced=False,
                path="checkpoint.save_interval",
                value=interval,
                expected=divisor,
                override=render_override("checkpoint.save_interval", divisor),
            )
        )
    return found


def _describe_member(name: str, config: RunConfig, contract: Contract, found: Sequence[Deviation]) -> Member:
    per_step, iters = _tokens_per_step(config), config.get("train.train_iters", None)
    overrides = tuple(dict.fromkeys(item.override for item in found if item.override))
    doubts: list[str] = []
    if config.kind == "benchmark":
        doubts.append("a benchmark recipe")
    dataset = config.get("dataset._class", None)
    if config.get("dataset.mock", None) is True or (isinstance(dataset, str) and dataset.startswith("Mock")):
        doubts.append("mock data")
    if config.get("model.moe_router_force_load_balancing", None) is True:
        doubts.append("forced expert balancing")
    return Member(
        name=name,
        tokens_per_step=per_step,
        horizon_tokens=per_step * iters if per_step and isinstance(iters, int) else None,
        checkpoint_steps=tuple(tokens // per_step for tokens in contract.token_checkpoints) if per_step else (),
        overrides=overrides,
        doubts=tuple(doubts),
    )


def _same_architecture(config: RunConfig, reference: RunConfig) -> bool:
    return all(_equal(config.get(path), reference.get(path)) for path in ARCHITECTURE)


def _label(
    members: Sequence[Member], open_ones: Sequence[Deviation], forced: Sequence[Deviation], same_model: bool
) -> tuple[str, tuple[str, ...]]:
    reasons: list[str] = []
    doubtful = [f"{member.name}: {', '.join(member.doubts)}" for member in members if member.doubts]
    if open_ones:
        count = len(open_ones)
        dimensions = ", ".join(dict.fromkeys(item.dimension for item in open_ones))
        reasons.append(f"{count} deviation{'s' if count != 1 else ''} that nothing forces ({dimensions})")
    if forced:
        dimensions = ", ".join(dict.fromkeys(item.dimension for item in forced))
        reasons.append(f"{len(forced)} forced by the architecture ({dimensions}): record them with the result")
    if not same_model:
        reasons.append("architectures or tokenizers differ: compare stability and trends at equal tokens, never absolute losses")
    if doubtful:
        reasons.append(f"proves nothing about convergence: {'; '.join(doubtful)}")
        return "not convergence evidence: benchmark or mock members", tuple(reasons)
    if open_ones:
        return "not a cohort: align it first", tuple(reasons)
    if forced or not same_model:
        return "aligned cohort: trends at equal tokens only, not like-for-like evidence", tuple(reasons)
    return "like-for-like evidence", tuple(reasons) or ("every dimension of the contract is the same",)
