"""A resolved run configuration: what will be run, and where each value came from."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from autorecipe.record import dataclass, field
from autorecipe.schema.value import UNKNOWN, FieldValue, Unknown


class OriginKind(enum.StrEnum):
    """Who decided a value, weakest first."""

    DEFAULT = "default"
    MODEL_CARD = "model-card"
    RECIPE = "recipe"
    PRESET = "preset"
    OVERRIDE = "override"
    DERIVED = "derived"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where one value came from.

    Attributes:
        kind: who decided.
        detail: such as the override as typed, the preset's name, or the formula.
        replaced: value that was given but does not act, when this origin took precedence over it; None otherwise.
        given: the override, as typed, that lost by it; empty where none did.
    """

    kind: OriginKind
    detail: str = ""
    replaced: FieldValue = None
    given: str = ""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Flat resolved configuration.

    Attributes:
        values: path -> value. A path that is absent is unknown, a value of None is unset.
        origins: path -> origin, for every path in `values`.
        release: Bridge release whose schema applies, such as `0.6.2`.
        recipe: name of the recipe it started from; empty for a configuration made from elsewhere.
        kind: `library`, `benchmark`, or empty.
        mode: `pretrain`, `sft`, `peft`, or empty.
        notes: messages of resolution that the user must see (values that do not act, resets, presets that overwrite).
    """

    values: Mapping[str, FieldValue]
    origins: Mapping[str, Origin] = field(default_factory=dict)
    release: str = ""
    recipe: str = ""
    kind: str = ""
    mode: str = ""
    notes: tuple[str, ...] = ()

    def get(self, path: str, default: FieldValue | Unknown = UNKNOWN) -> Any:
        """Return the value at a path, or `UNKNOWN` (or the given default) where it is not known."""
        return self.values.get(path, default)

    @property
    def overruled(self) -> Mapping[str, Origin]:
        """Origins of the values that took precedence over an override, by path."""
        written = getattr(self.origins, "written", self.origins)  # a recipe's own fields overrule nothing
        return {path: origin for path, origin in written.items() if origin.given}

    def known(self, path: str) -> bool:
        """Return whether the path has a value, None included."""
        return path in self.values
