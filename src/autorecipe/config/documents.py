"""Configurations from files: what `config show --format json` writes, Megatron Bridge's own YAML, or plain nested or flat keys.

Values are brought to the catalog's spelling and resolved like a recipe, so that a file compares with a recipe. Start reading
at `parse_document`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autorecipe.config.annotations import ENUMS
from autorecipe.config.keys import CLASS_MARK, KeyKind, locate_key
from autorecipe.config.resolve import resolve_fields
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.field import ConfigSchema
from autorecipe.schema.run import Origin, OriginKind, RunConfig
from autorecipe.schema.value import FieldValue

CALLABLE_MODULES = {"torch.nn.functional.gelu": "torch._C._nn:gelu", "torch.tanh": "torch:_VariableFunctionsClass.tanh"}
"""Callables whose module differs from the name they are written with."""


def parse_document(text: str, *, name: str, schema: ConfigSchema, world_size: int | None = None) -> RunConfig:
    """Parse a configuration file and resolve it.

    Args:
        text: JSON or YAML.
        name: file name, for messages.
        schema: schema of the release it belongs to.
        world_size: number of GPUs, or None.

    Raises:
        UsageError: not JSON or YAML, or not a mapping of keys.
    """
    content = _load(text, name)
    if not isinstance(content, dict) or not content:
        raise UsageError(
            Problem(
                code="not-a-configuration",
                path=name,
                message="is not a mapping of configuration keys",
                hint="write one with `autorecipe config show RECIPE --format json`",
            )
        )
    values_of_run = content.get("values")
    if isinstance(values_of_run, dict) and "origins" in content:
        return _read_run(content, name)
    flat: dict[str, FieldValue] = {}
    for key, value in content.items():
        if key != "_target_":
            flatten_value(str(key), value, flat)
    return resolve_fields(flat, schema, name=name, world_size=world_size)


def _load(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        pass
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(Problem(code="not-a-configuration", path=name, message=f"is neither JSON nor YAML: {first}")) from None


def _read_run(content: Mapping[str, Any], name: str) -> RunConfig:
    origins: dict[str, Origin] = {}
    try:
        for path, row in content["origins"].items():
            origins[path] = Origin(
                kind=OriginKind(row["kind"]),
                detail=str(row.get("detail", "")),
                replaced=row.get("replaced"),
                given=str(row.get("given", "")),
            )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(Problem(code="not-a-configuration", path=name, message=f"has damaged origins: {error}")) from None
    return RunConfig(
        values=dict(content["values"]),
        origins=origins,
        release=str(content.get("release", "")),
        recipe=str(content.get("recipe", "")) or name,
        kind=str(content.get("kind", "")),
        mode=str(content.get("mode", "")),
        notes=tuple(str(note) for note in content.get("notes", ())),
    )


def flatten_value(path: str, value: Any, out: dict[str, FieldValue]) -> None:
    """Write a nested value under dotted keys, in the catalog's spelling.

    A mapping with `_target_` is an object: a class mark and its fields, a callable, a dtype or an enum member.
    """
    if isinstance(value, Mapping):
        target = value.get("_target_")
        if isinstance(target, str) and (value.get("_call_") is False or "_args_" in value or "_name_" in value):
            out[path] = _named_object(target, value)
            return
        if isinstance(target, str):
            out[path + CLASS_MARK] = target.rsplit(".", 1)[-1]
        items = {key: item for key, item in value.items() if key not in ("_target_", "_call_")}
        if not items and target is None:
            out[path] = {}
        for key, item in items.items():
            flatten_value(f"{path}.{key}", item, out)
        return
    if isinstance(value, list | tuple):
        out[path] = [_plain_item(item) for item in value]
        return
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        out[path] = str(value)
        return
    out[path] = value


def _named_object(target: str, value: Mapping[str, Any]) -> FieldValue:
    module, _, leaf = target.rpartition(".")
    if module == "torch" and value.get("_call_") is False and leaf != "tanh":
        return target
    if value.get("_call_") is False:
        return CALLABLE_MODULES.get(target, f"{module}:{leaf}")
    if isinstance(value.get("_name_"), str):
        return f"{leaf}.{value['_name_']}"
    members, arguments = ENUMS.get(leaf, ()), value.get("_args_")
    if isinstance(arguments, list) and len(arguments) == 1 and isinstance(arguments[0], int) and leaf != "Signals":
        index = arguments[0] - 1
        if 0 <= index < len(members):
            return f"{leaf}.{members[index]}"
    return dict(value)


def _plain_item(value: Any) -> FieldValue:
    if isinstance(value, Mapping) and isinstance(value.get("_target_"), str):
        return _named_object(value["_target_"], value)
    if isinstance(value, list | tuple):
        return [_plain_item(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def undeclared_keys(config: RunConfig, schema: ConfigSchema) -> tuple[str, ...]:
    """Return the paths of a configuration that the release does not declare."""
    known = (KeyKind.FIELD, KeyKind.FREE, KeyKind.ITEM, KeyKind.SECTION)
    return tuple(
        path
        for path in config.values
        if not path.endswith(CLASS_MARK)
        and not path.startswith("derived.")
        and path != "data_parallel_size"
        and locate_key(path, schema).kind not in known
    )
