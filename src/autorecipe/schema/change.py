"""One field that differs between two configurations."""

from __future__ import annotations

from autorecipe.record import dataclass
from autorecipe.schema.layer import Layer
from autorecipe.schema.value import FieldValue, Unknown


@dataclass(frozen=True, kw_only=True)
class Change:
    """A difference at one path.

    Attributes:
        path: configuration path.
        before: value on the first side (`UNKNOWN` where the path is absent).
        after: value on the second side (`UNKNOWN` where the path is absent).
        layer: layer of change, or None where the path has not been classified (treated like convergence).
        reason: why it is in that layer, in this context.
        inert: the values were given differently, but neither acts: what upstream uses is the same.
    """

    path: str
    before: FieldValue | Unknown
    after: FieldValue | Unknown
    layer: Layer | None
    reason: str = ""
    inert: bool = False
