"""What differs between two resolved configurations, by layer of change, and whether that is a new experiment.

Effective values are compared: a value that was moved but does not act is reported as inert. Start reading at
`diff_configs`; `judge_changes` gives the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autorecipe.config.keys import has_children
from autorecipe.config.layers import classify_path, starts_new_experiment
from autorecipe.record import dataclass
from autorecipe.schema.change import Change
from autorecipe.schema.field import ConfigSchema
from autorecipe.schema.layer import Layer
from autorecipe.schema.run import OriginKind, RunConfig
from autorecipe.schema.value import UNKNOWN, FieldValue, Unknown

BATCH_MEMBERSHIP = (
    "train.global_batch_size",
    "train.rampup_batch_size",
    "train.step_batch_size_schedule",
    "train.train_iters",
    "train.train_samples",
    "train.num_epochs",
    "model.calculate_per_token_loss",
    "dataset.seq_length",
    "dataset.random_seed",
    "dataset.dataloader_type",
    "dataset.data_sharding",
    "dataset.drop_last",
    "dataset.enable_offline_packing",
    "dataset.enable_in_batch_packing",
    "dataset.packing_buffer_size",
)
"""What must be the same for a micro batch change to be harmless: global batch, members, order, normalisation, token budget."""


@dataclass(frozen=True, kw_only=True)
class DiffVerdict:
    """What a set of changes means.

    Attributes:
        label: `identical`, `execution only`, `new convergence experiment` and so on, as `config diff` prints it.
        convergence: changes that make a new experiment.
        fingerprint_allowed: whether micro batch and accumulation may move: None where they do not.
        reasons: why, one sentence each.
        inert: changes of values that do not act.
        layers: number of acting changes by layer.
    """

    label: str
    convergence: tuple[Change, ...]
    fingerprint_allowed: bool | None
    reasons: tuple[str, ...]
    inert: tuple[Change, ...]
    layers: Mapping[str, int]


def diff_configs(a: RunConfig, b: RunConfig, schema: ConfigSchema) -> tuple[Change, ...]:
    """Return every path whose effective or given value differs.

    Args:
        a: first configuration, resolved where it comes from a recipe.
        b: second configuration.
        schema: schema of the release (of the second where they differ).

    Returns:
        changes sorted by layer, then path; `inert` ones are values that were given differently and do not act.
    """
    changes: list[Change] = []
    for path in sorted({*a.values, *b.values}):
        before, after = a.get(path), b.get(path)
        if _same(before, after):
            changes += _inert_change(path, a, b, schema)
            continue
        if _is_name_of_equal_section(path, a, b) or is_empty_holder(path, a, b):
            continue
        layer, reason = _layer_in_context(path, a, b, schema)
        changes.append(Change(path=path, before=before, after=after, layer=layer, reason=reason))
    return tuple(sorted(changes, key=lambda change: (change.inert, _rank(change.layer), change.path)))


def _inert_change(path: str, a: RunConfig, b: RunConfig, schema: ConfigSchema) -> list[Change]:
    """The effective values agree: report where an override that lost makes the given ones differ."""
    before, after = _given(path, a), _given(path, b)
    lost_a, lost_b = _lost_override(path, a), _lost_override(path, b)
    if _same(before, after) or not (lost_a or lost_b):
        return []
    layer, _ = classify_path(path, schema)
    side, lost = (b, lost_b) if lost_b else (a, lost_a)
    reason = f"inert: {lost} does not act; {side.origins[path].detail}"
    return [Change(path=path, before=before, after=after, layer=layer, reason=reason, inert=True)]


def _given(path: str, config: RunConfig) -> FieldValue | Unknown:
    origin = config.origins.get(path)
    if origin is not None and origin.given and origin.kind is not OriginKind.OVERRIDE:
        return origin.replaced
    return config.get(path)


def _lost_override(path: str, config: RunConfig) -> str:
    origin = config.origins.get(path)
    return origin.given if origin is not None and origin.kind is not OriginKind.OVERRIDE else ""


def _same(before: FieldValue | Unknown, after: FieldValue | Unknown) -> bool:
    if before is UNKNOWN or after is UNKNOWN:
        return before is after
    if isinstance(before, bool) != isinstance(after, bool):
        return False
    if isinstance(before, list | tuple) and isinstance(after, list | tuple):
        return len(before) == len(after) and all(_same(x, y) for x, y in zip(before, after, strict=True))
    if isinstance(before, float) and isinstance(after, float) and before != before and after != after:
        return True  # NaN is the same setting as NaN
    return bool(before == after)


def _is_name_of_equal_section(path: str, a: RunConfig, b: RunConfig) -> bool:
    """A preset's name against an object with the same fields is no difference."""
    if path not in ("mixed_precision", "mixed_precision._class"):
        return False
    fields = {name for config in (a, b) for name in config.values if name.startswith("mixed_precision.") and "._" not in name}
    return bool(fields) and all(_same(a.get(name), b.get(name)) for name in fields)


def is_empty_holder(path: str, a: RunConfig, b: RunConfig) -> bool:
    """An empty dictionary against one with keys: the keys are compared themselves."""
    sides = (a.get(path), b.get(path))
    return {} in sides and UNKNOWN in sides and has_children(path, {**a.values, **b.values})


def _layer_in_context(path: str, a: RunConfig, b: RunConfig, schema: ConfigSchema) -> tuple[Layer | None, str]:
    """Refine a layer by what else the two configurations say."""
    layer, reason = classify_path(path, schema)
    classes = {config.get("dataset._class", None) for config in (a, b)}
    if path == "dataset.num_workers" and "EnergonDatasetConfig" in classes:
        return Layer.CONVERGENCE, "with Energon the worker count fixes shard assignment and sample order"
    dense = all(not config.get("model.num_moe_experts", None) for config in (a, b))
    if reason.startswith("padding passes through MoE routers") and dense:
        return Layer.EXECUTION, "padding is masked from the loss of a dense model"
    if path == "dataset._class" and any(isinstance(name, str) and name.startswith("Mock") for name in classes):
        return layer, "one side trains on mock data: another experiment, and its losses prove nothing about convergence"
    return layer, reason


_ORDER = (Layer.CONVERGENCE, Layer.BENCHMARK_ONLY, Layer.FINGERPRINT, Layer.EXECUTION, Layer.IO)


def _rank(layer: Layer | None) -> int:
    return 0 if layer is None else _ORDER.index(layer)


def judge_changes(changes: Sequence[Change]) -> DiffVerdict:
    """Say what a set of changes means.

    A micro batch or accumulation change is allowed only where global batch, its members and order, normalisation and token
    budget are the same.
    """
    acting = [change for change in changes if not change.inert]
    convergence = tuple(change for change in acting if starts_new_experiment(change.path, change.layer))
    fingerprint = [change for change in acting if change.layer is Layer.FINGERPRINT]
    moved_batch = [change.path for change in acting if change.path in BATCH_MEMBERSHIP]
    reasons: list[str] = []
    allowed: bool | None = None
    if fingerprint:
        allowed = not moved_batch
        names = ", ".join(change.path for change in fingerprint)
        if allowed:
            reasons.append(
                f"{names} moved with global batch, members, order, normalisation and token budget fixed: allowed, with a fresh "
                "loss check for this layout"
            )
        else:
            reasons.append(f"{names} moved together with {', '.join(moved_batch)}: not a fingerprint change any more")
    if convergence:
        label = "new convergence experiment"
        reasons.insert(0, f"{len(convergence)} {_plural('change', len(convergence))} of the convergence layer")
        unclassified = [change.path for change in convergence if change.layer is None]
        if unclassified:
            reasons.append(f"not classified, treated like convergence: {', '.join(unclassified)}")
    elif any(change.layer is Layer.BENCHMARK_ONLY for change in acting):
        label = "benchmark only: losses and checkpoints prove nothing about convergence"
    elif fingerprint:
        label = "execution fingerprint: same experiment, verify the loss of this layout"
    elif any(change.layer is Layer.EXECUTION for change in acting):
        label = "execution only: same effective updates, rounding may drift, verify"
    elif acting:
        label = "input and output only"
    else:
        label = "identical"
    layers: dict[str, int] = {}
    for change in acting:
        name = change.layer.value if change.layer is not None else "unclassified"
        layers[name] = layers.get(name, 0) + 1
    return DiffVerdict(
        label=label,
        convergence=convergence,
        fingerprint_allowed=allowed,
        reasons=tuple(reasons),
        inert=tuple(change for change in changes if change.inert),
        layers=layers,
    )


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
