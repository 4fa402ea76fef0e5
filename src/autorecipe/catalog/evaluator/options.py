"""The command-line options of Megatron-LM, from the argument parser of the Megatron-Core tree itself."""

from __future__ import annotations

import argparse
import enum
import importlib
from typing import Any


def describe_options() -> tuple[list[dict[str, Any]], str]:
    """Return one row per option, and why there is none where the tree has no parser.

    An option with several spellings is one row; its flag is all of them, joined with spaces.
    """
    try:
        arguments = importlib.import_module("megatron.training.arguments")
    except ImportError as error:
        return [], f"{type(error).__name__}: {error}"
    if not hasattr(arguments, "add_megatron_arguments"):
        return [], "megatron.training.arguments has no add_megatron_arguments"
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    arguments.add_megatron_arguments(parser)
    rows = []
    for group in parser._action_groups:
        for action in group._group_actions:
            if action.option_strings:
                rows.append(_row(action, group.title or ""))
    return rows, ""


def _row(action: argparse.Action, group: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "flag": " ".join(action.option_strings),
        "dest": action.dest,
        "type": _type(action),
        "nargs": "" if action.nargs in (None, 0) else str(action.nargs),
        "choices": [str(_plain(choice)) for choice in action.choices or ()],
        "default": _plain(action.default),
        "group": group,
    }
    return {name: value for name, value in row.items() if name in ("flag", "dest", "type", "default") or value}


def _type(action: argparse.Action) -> str:
    kind = type(action).__name__
    if kind == "_StoreTrueAction":
        return "flag(store_true)"
    if kind == "_StoreFalseAction":
        return "flag(store_false)"
    if kind == "_StoreAction":
        return str(getattr(action.type, "__name__", "str")) if action.type is not None else "str"
    return kind.removeprefix("_")


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, set | frozenset | tuple | list):
        items = [_plain(item) for item in value]
        return sorted(items, key=str) if isinstance(value, set | frozenset) else items
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
