"""Recipes of one's own: a Python function, in a file, that returns a configuration built from a catalog recipe.

    from autorecipe.api.recipes import derive

    def my_llama_config():
        return derive("llama3_8b_pretrain_config", {"train.global_batch_size": 64})

`PATH.py:FUNCTION` then stands wherever a recipe name does. The file runs in a subprocess of its own, with a time limit.
Start reading at `load_own_recipe`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorecipe.errors import EnvironmentProblem, Problem, UsageError
from autorecipe.record import dataclass, field, replace
from autorecipe.schema.field import ConfigSchema
from autorecipe.schema.recipe import Mode, Recipe
from autorecipe.schema.value import FieldValue, to_jsonable

if TYPE_CHECKING:
    from autorecipe.catalog.store import Catalog

SECONDS = 30.0
"""Time limit for one function."""

HINT = "write PATH.py:FUNCTION, with a function that returns derive(RECIPE, {PATH: VALUE})"


@dataclass(frozen=True, kw_only=True)
class DerivedRecipe:
    """A catalog recipe with values of one's own.

    Attributes:
        base: name of the catalog recipe.
        values: configuration path -> value, on top of the recipe's.
        release: Bridge release of the catalog; empty for the one in use.
    """

    base: str
    values: Mapping[str, FieldValue] = field(default_factory=dict)
    release: str = ""


def derive(base: str | DerivedRecipe, values: Mapping[str, FieldValue] | None = None, *, release: str = "") -> DerivedRecipe:
    """Build a configuration from a catalog recipe, or from another derived one.

    Args:
        base: recipe name, alias or canonical, or what `derive` returned before.
        values: configuration path -> value, such as `{"model.tensor_model_parallel_size": 2}`. Values follow the catalog's
            conventions: dtype `"torch.bfloat16"`, enum `"Class.NAME"`, None for unset.
        release: Bridge release that the recipe belongs to; the one in use by default.

    Raises:
        UsageError: a value that is no JSON value, or a path that is no text.
    """
    values = dict(values or {})
    problems = [
        Problem(code="bad-value", path=str(path), message=f"{value!r} is not a configuration value", hint=_VALUE_HINT)
        for path, value in values.items()
        if not isinstance(path, str) or not _is_value(value)
    ]
    if problems:
        raise UsageError(problems)
    if isinstance(base, DerivedRecipe):
        return DerivedRecipe(base=base.base, values={**base.values, **values}, release=release or base.release)
    return DerivedRecipe(base=base, values=values, release=release)


_VALUE_HINT = 'use None, bool, int, float, str, or a list or dict of these; a dtype is "torch.bfloat16"'


def _is_value(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_value(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_value(item) for key, item in value.items())
    return value is None or isinstance(value, bool | int | float | str)


def load_own_recipe(target: str, catalog: Catalog) -> Recipe:
    """Run a function and return its recipe.

    Args:
        target: `PATH.py:FUNCTION`.
        catalog: catalog that the function's base is looked up in, unless it names another release.

    Raises:
        UsageError: no such file or function, a name that the catalog has, a return value of another kind, unknown paths.
        EnvironmentProblem: the file fails, or does not return in time.
    """
    path_text, _, function = target.rpartition(":")
    path = Path(path_text)
    if not path_text or not function.isidentifier():
        raise UsageError(Problem(code="own-recipe", path=target, message="names no function", hint=HINT))
    if not path.is_file():
        raise UsageError(Problem(code="no-such-file", path=path_text, message="no such file", hint=HINT))
    if function in catalog.names():
        raise UsageError(
            Problem(
                code="name-taken",
                path=target,
                message=f"{function!r} is a recipe of release {catalog.release}",
                hint="give the function a name of its own",
            )
        )
    answer = _run(path, function)
    if answer["release"] and answer["release"] != catalog.release:
        from autorecipe.catalog.store import open_catalog

        catalog = open_catalog(answer["release"])
    base = catalog.load(answer["base"])
    fields = _with_values(base, answer["values"], catalog, target)
    return replace(
        base,
        name=function,
        alias_of=None,
        mode=evaluated_mode(fields) or base.mode,
        source=f"{path}:{answer['line']}",
        gpus=None,
        variant=None,
        fields=fields,
        dora_fields={path: value for path, value in base.dora_fields.items() if path not in answer["values"]},
        model_set=tuple(sorted({*base.model_set, *(key.split(".")[1] for key in answer["values"] if key.startswith("model."))})),
        notes={**base.notes, "derived_from": base.name, "values": answer["values"], "aliases": []},
    )


def evaluated_mode(fields: Mapping[str, FieldValue]) -> Mode | None:
    """Return what a configuration trains: an adapter, on fine-tuning data, or from text; None where its data does not say.

    An adapter decides, then the class of the data. Some classes (Energon, Wan, Flux, video providers) serve either goal.
    Evidence: measured: no recipe of the shipped releases says otherwise by its name.
    """
    if fields.get("peft._class"):
        return Mode.PEFT
    data = str(fields.get("dataset._class") or "")
    if data.startswith("Mock") or data == "GPTDatasetConfig":
        return Mode.PRETRAIN
    return Mode.SFT if "SFT" in data or data.startswith("HFDataset") else None


def _with_values(base: Recipe, values: Mapping[str, Any], catalog: Catalog, target: str) -> dict[str, FieldValue]:
    if base.status != "ok" and not base.fields:
        raise UsageError(Problem(code="recipe-fails", path=target, message=f"{base.name} cannot be built: {base.error}"))
    import difflib

    schema = catalog.schema()
    fields = dict(base.fields)
    problems = []
    for path, value in values.items():
        is_section = isinstance(value, dict) and any(known.startswith(f"{path}.") for known in schema)
        if is_section and "_target_" not in value:
            problems.append(
                Problem(
                    code="bad-value",
                    path=path,
                    message=f"{target} sets a whole section to a dictionary that names no class",
                    hint=f'add "_target_": "MODULE.CLASS", or set its fields one by one: "{path}.NAME"',
                )
            )
        inner = [f"{path}.{key}" for key in value if key != "_target_"] if is_section else []
        for written in (path, *inner):
            if written in fields or written in schema or path.partition(".")[0] == "env_vars":
                continue
            close = difflib.get_close_matches(written, [*fields, *schema], n=3, cutoff=0.7)
            meant = f"; did you mean {', '.join(map(repr, close))}?" if close else ""
            problems.append(
                Problem(
                    code="unknown-key",
                    path=written,
                    message=f"{target} sets it, and it is no path of release {catalog.release}{meant}",
                    hint=f"`autorecipe recipes show {base.name} --full` lists the paths",
                )
            )
        for inside in [known for known in fields if known.startswith(f"{path}.")]:
            del fields[inside]
        fields.pop(path, None)
        fields |= _expand(path, value, schema)
    if problems:
        raise UsageError(problems)
    return dict(sorted(fields.items()))


def _expand(path: str, value: FieldValue, schema: ConfigSchema) -> dict[str, FieldValue]:
    """Return the fields of a section written as `{"_target_": CLASS, ...}`, which starts from the class's defaults."""
    if not isinstance(value, dict) or not isinstance(value.get("_target_"), str):
        return {path: value}
    name = value["_target_"].rsplit(".", 1)[-1]
    fields: dict[str, FieldValue] = {f"{path}._class": name}
    for known, declared in schema.items():
        if known.startswith(f"{path}.") and (not declared.config_classes or name in declared.config_classes):
            fields[known] = None if declared.default == "<required>" else declared.default
    return fields | {f"{path}.{key}": item for key, item in value.items() if key != "_target_"}


def _run(path: Path, function: str) -> dict[str, Any]:
    import json
    import subprocess

    package_root = str(Path(__file__).resolve().parents[2])
    paths = [package_root, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(item for item in paths if item)}
    command = [sys.executable, "-m", "autorecipe.catalog.own_runner", str(path.resolve()), function]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment, check=False)
    except subprocess.TimeoutExpired:
        raise EnvironmentProblem(
            Problem(
                code="own-recipe-hangs",
                path=f"{path}:{function}",
                message=f"did not return within {SECONDS:g} seconds",
                hint="a recipe function only builds a configuration; move everything else out of it",
            )
        ) from None
    line = done.stdout.rstrip().rpartition("\n")[2]
    try:
        answer = json.loads(line)
    except json.JSONDecodeError:
        answer = {"error": done.stderr.strip()[-800:] or f"ended with status {done.returncode}", "kind": "crash"}
    if "error" in answer:
        problem = Problem(code="own-recipe", path=f"{path}:{function}", message=answer["error"], hint=answer.get("hint", HINT))
        raise (UsageError if answer["kind"] == "usage" else EnvironmentProblem)(problem)
    assert isinstance(answer, dict)
    return answer


def describe_derived(derived: DerivedRecipe, *, line: int) -> dict[str, Any]:
    """Return what the subprocess answers."""
    return {**to_jsonable(derived), "line": line}
