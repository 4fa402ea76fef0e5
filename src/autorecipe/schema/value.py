"""The value of a configuration field, and how any schema type becomes JSON.

Values follow the catalog's conventions: dtypes are `torch.bfloat16`, callables `module:qualname`, enums `Class.NAME`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, TypeAlias

from autorecipe.record import field_names

FieldValue: TypeAlias = Any
"""None, bool, int, float, str, or a list or dict of these."""


class Unknown(enum.Enum):
    """The sentinel for a value that is not known. Unknown is legal; a guess is not."""

    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        return False


UNKNOWN = Unknown.UNKNOWN


def to_jsonable(value: Any) -> Any:
    """Turn schema types into plain JSON values.

    Args:
        value: dataclasses, enums, mappings, sequences, sets and scalars, nested at will.

    Returns:
        dicts, lists and scalars; dataclass fields keep their names, `UNKNOWN` becomes `"unknown"`.
    """
    names = field_names(value)
    if names is not None:
        return {name: to_jsonable(getattr(value, name)) for name in names}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_jsonable(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((to_jsonable(item) for item in value), key=str)
    return value
