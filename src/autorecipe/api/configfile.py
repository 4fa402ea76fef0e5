"""Read a configuration from a file: YAML or JSON, flat or nested, with Bridge paths or Megatron-LM option names.

A file may name a recipe (`recipe: NAME`) and add to it; otherwise what it does not say is not known. Unknown keys fail, all
at once, with near misses. What `config show --format json` writes is read back as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from autorecipe.api.options import derive_virtual_stages, find_option, read_option
from autorecipe.config.documents import parse_document
from autorecipe.config.grammar import render_value
from autorecipe.config.keys import SHORT_NAMES, KeyKind, locate_key
from autorecipe.config.overrides import parse_overrides, unknown_key
from autorecipe.errors import EnvironmentProblem, Problem, UsageError
from autorecipe.record import dataclass, field
from autorecipe.schema import ConfigSchema, Origin, OriginKind, RunConfig

if TYPE_CHECKING:
    from autorecipe.catalog.store import Catalog

META = ("recipe", "overrides", "mode", "kind")
LAUNCH = ("gpus", "gpu", "gpus_per_node", "core", "environment", "packages", "given", "saved")
"""Keys of a file that say where it would run; the command line wins over them."""

AXES = {
    name: SHORT_NAMES[name] for name in ("tp", "pp", "vp", "vpp", "cp", "ep", "etp", "sp", "gbs", "mbs") if name in SHORT_NAMES
}
"""Short names that a file may use."""
SECTION_ORDER = (
    "model",
    "train",
    "dataset",
    "ddp",
    "optimizer",
    "scheduler",
    "checkpoint",
    "dist",
    "rng",
    "tokenizer",
    "validation",
)


@dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """What a file says.

    Attributes:
        values: path -> value.
        recipe: recipe that it starts from, or the empty text.
        overrides: the file's values as override texts, where it starts from a recipe.
        mode: `pretrain`, `sft`, `peft`, or empty.
        release: Bridge release.
        source: file name.
        origins: path -> origin, where the file has them.
        launch: where it would run, as far as the file says.
    """

    values: Mapping[str, Any]
    recipe: str
    overrides: tuple[str, ...]
    mode: str
    release: str
    source: str
    origins: Mapping[str, Origin] = field(default_factory=dict)
    launch: Mapping[str, Any] = field(default_factory=dict)

    def with_overrides(self, texts: Sequence[str], schema: ConfigSchema) -> RunConfig:
        """Return the configuration with overrides written over it."""
        values, origins = dict(self.values), dict(self.origins)
        for override in parse_overrides(texts, schema, base=self.values):
            values[override.path] = override.value
            origins[override.path] = Origin(kind=OriginKind.OVERRIDE, detail=f"{override.path}={render_value(override.value)}")
        return RunConfig(values=values, origins=origins, release=self.release, mode=self.mode)


def read_config_file(path: Path, catalog: Catalog, *, framework: str = "bridge") -> ConfigFile:
    """Read a file.

    Args:
        path: YAML or JSON.
        catalog: release whose schema and options name the keys.
        framework: with `megatron-lm`, option names such as `num_layers` or `--num-layers` are keys too.

    Raises:
        EnvironmentProblem: no such file, or it cannot be parsed.
        UsageError: unknown keys, all at once.
    """
    content = _load(path)
    schema = catalog.schema()
    if isinstance(content.get("values"), dict) and "origins" in content:
        run = parse_document(path.read_text(encoding="utf-8"), name=path.name, schema=schema)
        return ConfigFile(
            values=run.values,
            recipe="",
            overrides=(),
            mode=run.mode,
            release=run.release,
            source=path.name,
            origins=run.origins,
        )
    meta = {key: content.pop(key) for key in META if key in content and not isinstance(content[key], dict)}
    launch = {key: content.pop(key) for key in LAUNCH if key in content}
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in flatten(content).items():
        option = find_option(key, catalog.mlm_options()) if framework == "megatron-lm" and "." not in key else None
        if option is not None and key not in AXES:
            values |= read_option(key, value, option)
            continue
        located = _locate(key, schema)
        if located is None:
            problems.append(unknown_key(key, schema))
        else:
            values[located] = value
    derive_virtual_stages(values)
    if problems:
        raise UsageError(problems)
    texts = [f"{key}={render_value(value)}" for key, value in values.items()]
    return ConfigFile(
        values=values,
        recipe=str(meta.get("recipe") or ""),
        overrides=(*texts, *(meta.get("overrides") or ())),
        mode=str(meta.get("mode") or ""),
        release=catalog.release,
        source=path.name,
        launch=launch,
    )


def flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested dictionaries as one, with dotted keys; `_target_` becomes `_class`."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        name = f"{prefix}{key}"
        if key == "_target_":
            flat[f"{prefix}_class"] = str(value).rsplit(".", 1)[-1]
        elif isinstance(value, Mapping) and value and "_args_" not in value:
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def _load(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(Problem(path=str(path), message=f"cannot be read: {error.strerror}")) from None
    except UnicodeDecodeError as error:
        raise EnvironmentProblem(Problem(code="unreadable", path=str(path), message=f"is no text: {error}")) from None
    try:
        content = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise UsageError(Problem(path=str(path), message=f"cannot be parsed: {error}")) from None
    if not isinstance(content, dict):
        raise UsageError(Problem(path=str(path), message="must hold a dictionary of configuration paths"))
    return {str(key): value for key, value in content.items()}


def _locate(key: str, schema: ConfigSchema) -> str | None:
    if key.endswith("._class") or key.startswith(("mlm.", "env_vars.")):
        return key
    if "." in key or locate_key(key, schema).kind is not KeyKind.UNKNOWN:
        return key if locate_key(key, schema).kind is not KeyKind.UNKNOWN else None
    if key in AXES:
        return AXES[key]
    return next((f"{section}.{key}" for section in SECTION_ORDER if f"{section}.{key}" in schema), None)
