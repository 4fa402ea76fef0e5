"""What kind of thing one side of an experiment is: Megatron-LM options, a script, a recipe with overrides, or the log of a
run.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from autorecipe.errors import Problem, UsageError
from autorecipe.parity.source import load_log
from autorecipe.record import dataclass, replace
from autorecipe.schema.parity import Framework, SideKind, TrainingLog
from autorecipe.schema.value import FieldValue


@dataclass(frozen=True, kw_only=True)
class SideSpec:
    """One side before it is resolved.

    Attributes:
        kind: which program runs it.
        text: as given, for messages.
        words: Megatron-LM words, or Bridge overrides.
        recipe: Bridge recipe; empty for Megatron-LM.
        script: launch script or YAML file that holds the Megatron-LM options; words are empty then.
        processes: processes that the launcher words name, or None.
        saved: values of an argument table, by destination; words are empty then.
        engine_options: `engine.KEY=VALUE` texts, which only this project's engine understands.
    """

    kind: SideKind
    text: str
    words: tuple[str, ...] = ()
    recipe: str = ""
    script: Path | None = None
    processes: int | None = None
    saved: Mapping[str, FieldValue] | None = None
    engine_options: tuple[str, ...] = ()


def parse_side(text: str, *, default_recipe: str) -> SideSpec:
    """Recognise one side.

    Args:
        text: options (`--num-layers 2 ...`, a whole launch command too), a launch script (`*.sh`), a YAML file with options,
        the log of a run
            whose header states its settings, or a recipe with overrides (`RECIPE KEY=VALUE ...`, `--recipe RECIPE KEY=VALUE
            ...`).
        default_recipe: recipe of a text that only holds overrides.

    Raises:
        UsageError: none of these.
    """
    path = Path(text) if len(text) < 4096 and "\n" not in text and " " not in text.strip() else None
    if path is not None and path.is_file():
        if path.suffix in (".sh", ".bash", ".slurm", ".sbatch", ".yaml", ".yml"):
            return SideSpec(kind=SideKind.MEGATRON_LM, text=text, script=path)
        return _side_of_log(path, default_recipe)
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=False)
    except ValueError as error:
        raise UsageError(Problem(code="bad-side", path=text[:60], message=f"cannot be split into words: {error}")) from error
    return side_of_words(words, text=text, default_recipe=default_recipe)


def side_of_words(words: list[str], *, text: str, default_recipe: str) -> SideSpec:
    """Recognise one side that is already split into words."""
    own = tuple(word for word in words if is_engine_option(word))
    if own:
        rest = [word for word in words if not is_engine_option(word)]
        return replace(side_of_words(rest, text=text, default_recipe=default_recipe), engine_options=own)
    is_command = any(word.endswith(("run_recipe.py", "pretrain_gpt.py")) for word in words)
    if "--recipe" in words or any(word.startswith("--recipe=") for word in words) or _is_bridge_command(words):
        return _bridge_side(words, text, default_recipe)
    first = next((word for word in words if word != "--"), "")
    if is_command or first.startswith("--"):
        return SideSpec(kind=SideKind.MEGATRON_LM, text=text, words=tuple(word for word in words if word != "--"))
    if first and ("=" in first or re.fullmatch(r"[A-Za-z_]\w*(@library)?", first)):
        return _bridge_side(words, text, default_recipe)
    raise UsageError(
        Problem(
            code="bad-side",
            path=text[:60],
            message="is neither Megatron-LM options, nor RECIPE KEY=VALUE ..., nor a script, nor a log",
            hint='autorecipe parity design "--num-layers 2 ..." "vanilla_gpt_pretrain_config model.num_layers=2 ..."',
        )
    )


def is_engine_option(word: str) -> bool:
    """Return whether a word sets an option of this project's engine, which is no field of a configuration."""
    return word.startswith("engine.") and "=" in word


def _is_bridge_command(words: list[str]) -> bool:
    return any(word.endswith("run_recipe.py") for word in words)


def _bridge_side(words: list[str], text: str, default_recipe: str) -> SideSpec:
    recipe, overrides, processes = "", [], None
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word.startswith("--nproc"):
            value = word.partition("=")[2] or words[position]
            processes = int(value) if value.isdigit() else None
        elif word == "--recipe":
            recipe = words[position] if position < len(words) else ""
            position += 1
        elif word.startswith("--recipe="):
            recipe = word.partition("=")[2]
        elif word in ("--dataset", "--step_func", "--step-func", "--engine"):
            position += 1
        elif (
            re.fullmatch(r"(\+\+?|~)?[A-Za-z_][\w.]*=.*", word, re.DOTALL) and "." in word.partition("=")[0]
        ) or word.startswith("mixed_precision="):
            overrides.append(word)
        elif not recipe and re.fullmatch(r"[A-Za-z_]\w*(@library)?", word) and position == 1:
            recipe = word
    return SideSpec(kind=SideKind.BRIDGE, text=text, words=tuple(overrides), recipe=recipe or default_recipe, processes=processes)


def _side_of_log(path: Path, default_recipe: str) -> SideSpec:
    log = load_log(path)
    head = path.read_text(encoding="utf-8", errors="replace").split(" iteration ", 1)[0] if path.is_file() else ""
    if log is None or (not log.facts and "args:" not in head):
        raise UsageError(
            Problem(
                code="no-settings",
                path=str(path),
                message="its header states no settings",
                hint="give the options or overrides themselves",
            )
        )
    if log.framework is Framework.MEGATRON_LM:
        line = re.search(r"args: (--.*)", head)
        if line is not None:
            return SideSpec(kind=SideKind.MEGATRON_LM, text=str(path), words=tuple(shlex.split(line[1])))
        return SideSpec(kind=SideKind.MEGATRON_LM, text=str(path), saved=_saved_values(log))
    overrides = re.search(r"overrides: (.*)", head)
    recipe = re.search(r"(?:(?<![a-z])recipe |--recipe[ =])([A-Za-z_]\w*)", head)
    if overrides is None:
        raise UsageError(Problem(code="no-settings", path=str(path), message="its header lists no overrides"))
    return SideSpec(
        kind=SideKind.BRIDGE,
        text=str(path),
        words=_join_precision([_plain_override(word) for word in shlex.split(overrides[1]) if not is_engine_option(word)]),
        recipe=recipe[1] if recipe else default_recipe,
    )


_PRECISION_OBJECT = "megatron.bridge.training.mixed_precision.MixedPrecisionConfig"


def _join_precision(words: list[str]) -> tuple[str, ...]:
    """Join the fields of a precision object, which a header lists one by one, into the one override that sets them."""
    plain = [word for word in words if not word.startswith("mixed_precision.") and "._class=" not in word]
    fields = [
        word.removeprefix("mixed_precision.") for word in words if word.startswith("mixed_precision.") and "._class=" not in word
    ]
    if not fields:
        return tuple(plain)
    inside = ",".join(f"{name}:{value}" for name, _, value in (field.partition("=") for field in fields))
    return (*plain, f"mixed_precision={{_target_:{_PRECISION_OBJECT},{inside}}}")


_PYTHON_WORDS = {"None": "null", "True": "true", "False": "false"}


def _plain_override(word: str) -> str:
    """Undo Python's spelling of None, True and False in a header."""
    path, _, value = word.partition("=")
    return f"{path}={_PYTHON_WORDS.get(value, value)}"


def _saved_values(log: TrainingLog) -> dict[str, FieldValue]:
    """Return the values of an argument table that Megatron-LM printed."""
    values: dict[str, FieldValue] = {}
    for name, text in log.facts.items():
        try:
            values[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            values[name] = text
    return values
