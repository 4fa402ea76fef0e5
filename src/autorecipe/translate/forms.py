"""Other forms of a Megatron-LM configuration than a command line: YAML files and the arguments saved in a checkpoint.

Both become words, so that there is one way through the translation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from autorecipe.errors import Problem, UsageError
from autorecipe.record import dataclass
from autorecipe.schema.value import FieldValue
from autorecipe.translate.arguments import OptionTable
from autorecipe.translate.to_mlm import render_option
from autorecipe.translate.values import enum_member, is_flag, same_value, takes_many

_SECTIONS = ("model_args", "args")
_ENVIRONMENT = ("env_vars", "environment")
_CONFIG_NAMES = {
    "layernorm_epsilon": "norm_epsilon",
    "layernorm_zero_centered_gamma": "apply_layernorm_1p",
    "num_moe_experts": "num_experts",
}
"""Names of `--yaml-cfg` files that are core's fields and not the options' (megatron/training/yaml_arguments.py @ core 0.19.2)."""
_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")


@dataclass(frozen=True, kw_only=True)
class Words:
    """Words of a command line with where they come from.

    Attributes:
        words: options and values.
        origins: one for each word.
        notes: what was left out, and why.
        world_size: GPUs, where the source says.
        abbreviated: whether a name may be the beginning of an option's, as on a command line.
    """

    words: tuple[str, ...]
    origins: tuple[str, ...]
    notes: tuple[str, ...] = ()
    world_size: int | None = None
    abbreviated: bool = True


def read_yaml(text: str, table: OptionTable, *, name: str, variables: Mapping[str, str] | None = None) -> Words:
    """Turn a YAML file into words.

    Understood are a section of options (`MODEL_ARGS`, `ARGS`), options at the top, and the nested form of `--yaml-cfg`; keys may
    be flags (`--num-layers`), names (`num-layers`) or destinations (`num_layers`), never abbreviated.

    Args:
        text: content of the file.
        table: options of the release.
        name: of the file, for messages.
        variables: values for `${NAME}` in it.

    Raises:
        UsageError: not YAML, or not a mapping.
    """
    import yaml

    known = variables or {}
    try:
        data = yaml.safe_load(_VARIABLE.sub(lambda found: known.get(found[1] or found[2], found[0]), text))
    except yaml.YAMLError as error:
        raise UsageError(Problem(code="bad-yaml", path=name, message=str(error).replace("\n", " "))) from error
    if not isinstance(data, dict):
        raise UsageError(Problem(code="bad-yaml", path=name, message="holds no mapping of options"))
    environment = [key for key in data if str(key).lower() in _ENVIRONMENT]
    notes = [f"{name}: {key} is environment, not an option: {', '.join(map(str, data[key] or ()))}" for key in environment]
    section = next((key for key in data if str(key).lower() in _SECTIONS and isinstance(data[key], dict)), None)
    if section is None:
        rows = {key: value for key, value in data.items() if key not in environment}
    else:
        rows = data[section]
        others = [str(key) for key in data if key != section and key not in environment]
        if others:
            notes.append(f"{name}: only {section} holds options; left out: {', '.join(others)}")
    words: list[str] = []
    off: list[str] = []
    for key, value in _leaves(rows):
        words += _words_of(str(key), value, table, off)
    if off:
        notes.append(f"{name}: false, so not given: {', '.join(off)}")
    return Words(words=tuple(words), origins=tuple([name] * len(words)), notes=tuple(notes), abbreviated=False)


def _leaves(rows: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    for key, value in rows.items():
        if isinstance(value, dict):
            yield from _leaves(value)
        else:
            yield key, value


def _words_of(key: str, value: FieldValue, table: OptionTable, off: list[str]) -> list[str]:
    key = _CONFIG_NAMES.get(key, key)
    flag = key if key.startswith("--") else "--" + key.replace("_", "-")
    option = table.names.get(flag)
    if option is None and not key.startswith("--"):
        option = table.by_dest.get(key.replace("-", "_"))
        if option is not None:
            return render_option(option, value) if value is not None else []
    if value is None:
        return []
    if value is False and (option is None or is_flag(option)):
        off.append(key)
        return []
    if value is True:
        return [flag]
    if isinstance(value, list):
        return [flag, *map(str, value)]
    if option is not None and takes_many(option) and isinstance(value, str):
        return [flag, *value.strip("[]()").replace(",", " ").split()] if value[:1] in "[(" else [flag, *value.split()]
    return [flag, str(value)]


def words_of_namespace(values: Mapping[str, FieldValue], table: OptionTable, *, name: str) -> Words:
    """Turn saved arguments (destination -> value, after validation) into words for all that is not at its default."""
    words: list[str] = []
    unknown: list[str] = []
    for dest, value in sorted(values.items()):
        option = table.by_dest.get(dest)
        if option is None:
            unknown.append(dest)
            continue
        default = enum_member(option.default) if option.type == "enum_type_handler" else option.default
        if value is None or same_value(value, default) or _is_consequence(dest, value, values):
            continue
        words += render_option(option, value)
    notes = (
        [f"{name}: {len(unknown)} saved values are no options (run-time state): {', '.join(unknown[:12])} ..."] if unknown else []
    )
    world = values.get("world_size")
    return Words(
        words=tuple(words),
        origins=tuple([name] * len(words)),
        notes=tuple(notes),
        world_size=world if isinstance(world, int) else None,
    )


_FOLLOWS = {"encoder_seq_length": "seq_length", "encoder_num_layers": "num_layers", "moe_ffn_hidden_size": "ffn_hidden_size"}


def _is_consequence(dest: str, value: FieldValue, values: Mapping[str, FieldValue]) -> bool:
    """Return whether validation itself wrote a value that the command line must not repeat."""
    if dest in ("start_weight_decay", "end_weight_decay"):
        return values.get("weight_decay_incr_style") == "constant"
    if dest == "global_batch_size":
        return values.get("step_batch_size_schedule") is not None
    return dest in _FOLLOWS and same_value(value, values.get(_FOLLOWS[dest]))
