"""A rule: how some Megatron-LM destinations and some Bridge paths say the same thing, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autorecipe.record import dataclass
from autorecipe.schema.translation import Status
from autorecipe.schema.value import UNKNOWN, FieldValue
from autorecipe.translate.effective import MlmConfig


class BridgeView:
    """Reads a resolved Bridge configuration."""

    def __init__(self, values: Mapping[str, FieldValue]) -> None:
        self.values = values

    def get(self, path: str, default: FieldValue = None) -> FieldValue:
        """Return the value at a path, or the default where it is not known."""
        value = self.values.get(path, UNKNOWN)
        return default if value is UNKNOWN else value

    def knows(self, path: str) -> bool:
        """Return whether the path has a value, None included."""
        return path in self.values and self.values[path] is not UNKNOWN

    def on(self, path: str) -> bool:
        """Return whether a path is known and true."""
        return bool(self.get(path))


@dataclass(frozen=True)
class Cell:
    """One Bridge value that a Megatron-LM configuration determines.

    Attributes:
        path: Bridge path.
        value: value in the catalog's spelling.
        dests: destinations that decide it.
        why: one sentence where the names do not say all.
        inert: whether Bridge never acts on it, so that it is written only beside what was given.
        quiet: whether it is written only where the target would differ, even when it is given.
        matches: how a target is compared, where equality of the one value does not say it.
    """

    path: str
    value: FieldValue
    dests: tuple[str, ...]
    why: str = ""
    inert: bool = False
    quiet: bool = False
    matches: Callable[[BridgeView], bool] | None = None


Forward = Callable[[MlmConfig], list[Cell]]
Backward = Callable[[BridgeView], dict[str, FieldValue]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One correspondence.

    Attributes:
        name: for messages and the reference.
        dests: Megatron-LM destinations that it reads and writes.
        paths: Bridge paths that it reads and writes.
        status: what becomes of an option that it handles.
        forward: Megatron-LM to Bridge.
        backward: Bridge to Megatron-LM; destinations it leaves out are not determined.
    """

    name: str
    dests: tuple[str, ...]
    paths: tuple[str, ...]
    status: Status
    forward: Forward
    backward: Backward
