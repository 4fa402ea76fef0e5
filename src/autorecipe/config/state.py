"""The mutable state of one resolution: values, where each came from, and what the user must be told.

Only `resolve` and its steps use it. Values that lose keep their trace: an origin names the value it replaced and, where
that value was typed, the override.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any

from autorecipe.config.traps import get_trap
from autorecipe.record import dataclass, field, replace
from autorecipe.schema.field import ConfigSchema
from autorecipe.schema.recipe import Recipe
from autorecipe.schema.run import Origin, OriginKind
from autorecipe.schema.value import UNKNOWN, FieldValue, Unknown


@dataclass(kw_only=True)
class Resolution:
    """State of one resolution.

    Attributes:
        recipe: what it starts from.
        schema: schema of the release.
        world_size: number of GPUs, or None where unknown.
        values: path -> value, changed in place.
        origins: path -> origin, changed in place.
        typed: path -> override text, for every path that an override wrote.
        notes: messages for the user.
    """

    recipe: Recipe
    schema: ConfigSchema
    world_size: int | None
    values: dict[str, FieldValue]
    origins: MutableMapping[str, Origin]
    typed: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def get(self, path: str, default: FieldValue = None) -> Any:
        """Return a value, or the default where it is unknown."""
        return self.values.get(path, default)

    def size(self, path: str) -> int:
        """Return a parallel size; unset and unknown count as 1."""
        value = self.values.get(path)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1

    def has(self, path: str) -> bool:
        """Return whether upstream's object has this field: known in the recipe, or declared in a section it lists partly."""
        return path in self.values

    def has_section(self, section: str) -> bool:
        """Return whether an optional section is an object here."""
        prefix = section + "."
        return any(path.startswith(prefix) for path in self.values)

    def replace(self, path: str, value: FieldValue, *, kind: OriginKind, detail: str) -> FieldValue | Unknown:
        """Let a later step decide a value.

        Returns:
            the value that lost, or UNKNOWN where nothing changed.
        """
        before = self.values.get(path, UNKNOWN)
        if before is not UNKNOWN and before == value and type(before) is type(value):
            return UNKNOWN
        self.values[path] = value
        self.origins[path] = Origin(
            kind=kind,
            detail=detail,
            replaced=None if before is UNKNOWN else before,
            given=self.typed.get(path, ""),
        )
        return before

    def respell(self, path: str, value: FieldValue, *, detail: str) -> None:
        """Write a value as upstream spells it later on: what was typed goes on acting, so it is no override that lost."""
        if self.replace(path, value, kind=OriginKind.DERIVED, detail=detail) is not UNKNOWN:
            self.origins[path] = replace(self.origins[path], given="")

    def overrule(self, path: str, value: FieldValue, *, trap: str, kind: OriginKind, detail: str, remedy: str = "") -> None:
        """Let a later step decide a value, and say so where an override loses by it."""
        before = self.replace(path, value, kind=kind, detail=detail)
        if before is UNKNOWN or path not in self.typed:
            return
        self.note(trap, f"{self.typed[path]} does not act: {detail}, so {path} is {show(value)}", remedy=remedy)

    def note(self, trap: str, message: str, *, remedy: str = "") -> None:
        """Add a message; the remedy defaults to the trap's."""
        text = f"{trap}: {message}; {remedy or get_trap(trap).remedy}"
        if text not in self.notes:
            self.notes.append(text)

    def children(self, section: str) -> Iterable[str]:
        """Return the paths below a section."""
        prefix = section + "."
        return [path for path in self.values if path.startswith(prefix)]


def show(value: FieldValue) -> str:
    """Render a value for a message."""
    from autorecipe.config.grammar import GrammarError, render_value

    try:
        text = render_value(value)
    except GrammarError:
        text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."
