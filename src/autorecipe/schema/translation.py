"""What a translation between Megatron-LM options and Bridge overrides speaks in. Start reading at `Translation`."""

from __future__ import annotations

import enum

from autorecipe.errors import Problem
from autorecipe.record import dataclass
from autorecipe.schema.layer import Layer
from autorecipe.schema.value import FieldValue, Unknown


class Status(enum.StrEnum):
    """What becomes of an option on the other side."""

    SAME = "same"
    RENAMED = "renamed"
    INVERTED = "inverted"
    EXPANDS = "expands"
    DERIVED = "derived"
    DEFAULT_DIFFERS = "default-differs"
    NOT_APPLICABLE = "not-applicable"
    UNMAPPED = "unmapped"
    UNKNOWN = "unknown-option"
    UNRESOLVED = "unresolved-value"

    @property
    def maps(self) -> bool:
        """Whether the option's meaning arrives on the other side."""
        return self not in (Status.NOT_APPLICABLE, Status.UNMAPPED, Status.UNKNOWN, Status.UNRESOLVED)


class Direction(enum.StrEnum):
    """Which way a translation goes."""

    TO_BRIDGE = "to-bridge"
    TO_MLM = "to-mlm"


class Reason(enum.StrEnum):
    """Why a setting is written."""

    GIVEN = "given"
    IMPLICIT_DEFAULT = "implicit-default"
    DERIVED = "derived"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One value to write on the other side.

    Attributes:
        name: Bridge path, or Megatron-LM flag.
        value: value to write; for a Megatron-LM flag without a value, True.
        reason: why it is written.
        sources: names on the source side that decide it.
        layer: layer of change, or None where not classified.
        replaces: value that the target would otherwise have, when it is known.
        why: one sentence for the reader; empty where the name says all.
    """

    name: str
    value: FieldValue
    reason: Reason
    sources: tuple[str, ...]
    layer: Layer | None
    replaces: FieldValue | Unknown = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one thing that was given.

    Attributes:
        name: option or path as given.
        value: its value as text; empty for a flag.
        status: what became of it.
        targets: names written for it on the other side.
        layer: layer of change, or None where not classified (treated like convergence).
        note: why, or what to know.
        acts: whether the value differs from the default, so that losing it would lose something.
        origin: where it was given (`arguments`, `run.sh:12` ...).
    """

    name: str
    value: str
    status: Status
    targets: tuple[str, ...] = ()
    layer: Layer | None = None
    note: str = ""
    acts: bool = True
    origin: str = ""

    @property
    def blocks(self) -> bool:
        """Whether the translation would train something else without it."""
        lost = self.status in (Status.UNMAPPED, Status.UNKNOWN, Status.UNRESOLVED)
        return lost and self.acts and self.layer in (Layer.CONVERGENCE, Layer.FINGERPRINT, None)


@dataclass(frozen=True, kw_only=True)
class Translation:
    """A translated configuration, with an account of everything that was given.

    Attributes:
        direction: which way.
        recipe: Bridge recipe that the overrides apply to, or start from.
        release: Bridge release.
        outcomes: one for each thing given, in order.
        settings: what to write on the other side, in a stable order.
        problems: what Megatron-LM or Bridge would refuse.
        notes: what else to know, such as values that neither side states.
        world_size: GPUs, where the source says how many.
    """

    direction: Direction
    recipe: str
    release: str
    outcomes: tuple[Outcome, ...]
    settings: tuple[Setting, ...]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    world_size: int | None = None

    @property
    def lost(self) -> tuple[Outcome, ...]:
        """Outcomes that block: convergence options that did not arrive."""
        return tuple(outcome for outcome in self.outcomes if outcome.blocks)
