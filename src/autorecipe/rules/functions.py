"""Functions over values that predicates may call; an unknown argument makes the result unknown."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from autorecipe.rules.spelling import dtype_name, plain_name


def _items(value: Any) -> tuple[str, ...]:
    if value in (None, "", (), []):
        return ()
    return tuple(plain_name(item) for item in (value if isinstance(value, list | tuple | set) else [value]))


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "isset": lambda value: value is not None,
    "unset": lambda value: value is None,
    "empty": lambda value: value in (None, "", (), [], {}),
    "has": lambda value, *names: any(name in _items(value) for name in names),
    "within": lambda value, allowed: set(_items(value)) <= set(allowed),
    "count": lambda value: len(value) if isinstance(value, list | tuple | set | dict | str) else 0,
    "islist": lambda value: isinstance(value, list | tuple),
    "istext": lambda value: isinstance(value, str),
    "isnumber": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "name": lambda value: None if value is None else plain_name(value),
    "dtype": lambda value: None if value is None else dtype_name(value),
    "lower": lambda value: "" if value is None else str(value).lower(),
    "product": lambda value: math.prod(value) if isinstance(value, list | tuple) else value,
    "version": lambda text: _release(text),
    "contains": lambda value, text: text in str(value) if value is not None else False,
    "lcm": lambda *values: math.lcm(*(value for value in values if isinstance(value, int))),
}
"""By name."""
