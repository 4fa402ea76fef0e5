"""The page of one configuration field: type, default, layer, traps, related rules, and what to type.

Data only; commands render it. Start reading at `explain_field`.
"""

from __future__ import annotations

from autorecipe.config.annotations import describe_type
from autorecipe.config.keys import KeyKind, Located, locate_key, spec_of
from autorecipe.config.layers import UNCLASSIFIED, classify_path
from autorecipe.config.meanings import meaning_of
from autorecipe.config.overrides import unknown_key
from autorecipe.config.traps import Trap, traps_of
from autorecipe.errors import UsageError
from autorecipe.record import dataclass
from autorecipe.schema.field import ConfigField, ConfigSchema
from autorecipe.schema.layer import Layer
from autorecipe.schema.value import FieldValue

MEANINGS = {
    Layer.CONVERGENCE: "moving it is a new convergence experiment",
    Layer.EXECUTION: "moving it keeps the effective updates; rounding may drift, verify the loss",
    Layer.FINGERPRINT: "may move only with global batch, members, order, normalisation and token budget fixed",
    Layer.BENCHMARK_ONLY: "its losses and checkpoints prove nothing about convergence",
    Layer.IO: "changes what is written or reported, not the training",
}
"""What a layer means for whoever moves a field of it."""


@dataclass(frozen=True, kw_only=True)
class FieldPage:
    """What is known about one field.

    Attributes:
        path: dotted path.
        doc: what it is for; empty where nothing is recorded.
        kind: `field`, `free` (key of a dictionary field) or `item` (of a list field).
        type: annotation as the release has it.
        legal: what is legal, in words.
        default: class default; `<required>` where there is none.
        settable: `user`, `derived` (resolution computes it) or `internal`.
        layer: layer of change; None where it has not been classified (treated like convergence).
        reason: why it is in that layer.
        meaning: what the layer means.
        classes: configuration classes that have it.
        traps: where a value that is given does not act.
        rules: ids of upstream constraints behind the traps.
        release: release that the page is about.
    """

    path: str
    doc: str
    kind: str
    type: str
    legal: str
    default: FieldValue
    settable: str
    layer: Layer | None
    reason: str
    meaning: str
    classes: tuple[str, ...]
    traps: tuple[Trap, ...]
    rules: tuple[str, ...]
    release: str


def explain_field(path: str, schema: ConfigSchema) -> FieldPage:
    """Return the page of a field, or of a key inside a dictionary field.

    Raises:
        UsageError: an unknown path, with near misses.
    """
    located = locate_key(path, schema)
    if located.kind is KeyKind.UNKNOWN or located.field is None:
        raise UsageError(unknown_key(path, schema))
    return _page(located, located.field, schema)


def list_fields(prefix: str, schema: ConfigSchema, *, layer: Layer | None = None) -> tuple[FieldPage, ...]:
    """Return the pages of every declared field below a prefix (all for an empty one), filtered by layer.

    Raises:
        UsageError: a prefix that nothing is below of, with near misses.
    """
    sections = {path.split(".", 1)[0] for path in schema if "." in path}
    found = [path for path in schema if (not prefix or path == prefix or path.startswith(prefix + ".")) and path not in sections]
    if not found:
        return (explain_field(prefix, schema),)
    pages = [explain_field(path, schema) for path in sorted(found)]
    return tuple(page for page in pages if layer is None or _effective(page.layer) is layer)


def _page(located: Located, declared: ConfigField, schema: ConfigSchema) -> FieldPage:
    layer, reason = classify_path(located.path, schema)
    traps = traps_of(located.path)
    return FieldPage(
        path=located.path,
        doc=meaning_of(located.path),
        kind=located.kind.value,
        type=declared.type,
        legal=describe_type(spec_of(declared) if located.path == declared.path else located.spec),
        default=declared.default if located.path == declared.path else None,
        settable=declared.settable,
        layer=layer,
        reason=reason if layer is not None else UNCLASSIFIED,
        meaning=MEANINGS[_effective(layer)],
        classes=declared.config_classes,
        traps=tuple(traps),
        rules=tuple(dict.fromkeys(rule for trap in traps for rule in trap.rules)),
        release=schema.release,
    )


def _effective(layer: Layer | None) -> Layer:
    return layer if layer is not None else Layer.CONVERGENCE
