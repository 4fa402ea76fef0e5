"""Translations as text: overrides, a recipe function, options, YAML."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from autorecipe.config.grammar import render_value
from autorecipe.config.overrides import render_override
from autorecipe.schema.translation import Direction, Outcome, Reason, Setting, Translation
from autorecipe.schema.value import FieldValue
from autorecipe.translate.mapping import MappingTable
from autorecipe.translate.to_mlm import mlm_words

_TITLES = {
    Reason.GIVEN: "given",
    Reason.IMPLICIT_DEFAULT: "Megatron-LM's default, which the recipe does not have",
    Reason.DERIVED: "derived by Megatron-LM from what was given",
}


def override_texts(translation: Translation) -> list[str]:
    """Return the overrides of a translation to Bridge, in order, unquoted."""
    return [render_override(setting.name, setting.value) for setting in translation.settings]


def render_overrides_text(translation: Translation) -> str:
    """Render overrides one a line, quoted for a shell, under comments that account for every option."""
    lines = [f"# Overrides for {translation.recipe} (Bridge {translation.release})"]
    lines += account_lines(translation)
    for reason, title in _TITLES.items():
        rows = [setting for setting in translation.settings if setting.reason is reason]
        if not rows:
            continue
        lines.append(f"# {title}")
        for setting in rows:
            text = shlex.quote(render_override(setting.name, setting.value))
            note = _setting_note(setting) if reason is not Reason.GIVEN else ""
            lines.append(f"{text}{f'  # {note}' if note else ''}")
    return "\n".join(lines) + "\n"


def _setting_note(setting: Setting) -> str:
    before = f"was {render_value(setting.replaces)}" if _renders(setting.replaces) else ""
    parts = [setting.layer.value if setting.layer is not None else "", before, setting.why]
    return "; ".join(part for part in parts if part)


def _renders(value: FieldValue) -> bool:
    return value is None or isinstance(value, str | int | float | list | dict)


def account_lines(translation: Translation) -> list[str]:
    """Return one comment line for each thing given, problems and notes."""
    lines = [f"# {account_text(outcome)}" for outcome in translation.outcomes]
    lines += [
        f"# refused: {problem.code} {problem.path} {problem.message}".replace("  ", " ") for problem in translation.problems
    ]
    lines += [f"# note: {note}" for note in translation.notes]
    return lines


def account_text(outcome: Outcome) -> str:
    """Return the account of one option in one line."""
    value = f" {outcome.value}" if outcome.value else ""
    target = f" -> {', '.join(outcome.targets)}" if outcome.targets else ""
    lost = "LOST: " if outcome.blocks else ""
    note = f": {outcome.note}" if outcome.note else ""
    return f"{lost}{outcome.name}{value}{target} ({outcome.status.value}){note}"


def render_args_text(translation: Translation, mapping: MappingTable) -> str:
    """Render Megatron-LM options, one a line with continuation marks."""
    words = mlm_words(translation, mapping)
    rows: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not rows:
            rows.append([word])
        else:
            rows[-1].append(word)
    return " \\\n".join(" ".join(shlex.quote(word) for word in row) for row in rows) + "\n"


def render_yaml_text(translation: Translation, mapping: MappingTable) -> str:
    """Render as YAML: nested configuration for Bridge, `MODEL_ARGS` for Megatron-LM."""
    import yaml

    if translation.direction is Direction.TO_BRIDGE:
        tree: dict[str, Any] = {}
        for setting in translation.settings:
            *parents, name = setting.name.split(".")
            node = tree
            for parent in parents:
                node = node.setdefault(parent, {})
            node[name] = setting.value
        return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    rows = {
        setting.name: setting.value if not isinstance(setting.value, tuple) else list(setting.value)
        for setting in translation.settings
    }
    return yaml.safe_dump({"MODEL_ARGS": rows}, sort_keys=False, allow_unicode=True)


_IMPORTS = {
    "torch.": "import torch",
    "AttnBackend.": "from megatron.core.transformer.enums import AttnBackend",
    "CudaGraphModule.": "from megatron.core.transformer.enums import CudaGraphModule",
    "MixedPrecisionConfig(": "from megatron.bridge.training.mixed_precision import MixedPrecisionConfig",
}


def render_recipe_text(translation: Translation, *, name: str, base_module: str) -> str:
    """Render a Python recipe function that starts from the target recipe.

    Args:
        translation: a translation to Bridge.
        name: function name.
        base_module: module that exports the target recipe.
    """
    body = [f"    cfg.{setting.name} = {_python(setting.value)}{_comment(setting)}" for setting in translation.settings]
    text = "\n".join(body)
    imports = sorted({line for key, line in _IMPORTS.items() if key in text} | _callable_imports(translation.settings))
    base = translation.recipe
    lines = [
        f'"""{name}: translated from Megatron-LM options by autorecipe."""',
        "",
        *imports,
        "from megatron.bridge.training.config import ConfigContainer",
        f"from {base_module} import {base}",
        "",
        "",
        f"def {name}() -> ConfigContainer:",
        f'    """Return {base} with the translated options."""',
        f"    cfg = {base}()",
        *body,
        "    return cfg",
    ]
    return "\n".join(lines) + "\n"


def render_own_recipe_text(translation: Translation, *, name: str) -> str:
    """Render a Python function for `--recipe FILE.py:FUNCTION` of this project: it needs no Megatron Bridge.

    Args:
        translation: a translation to Bridge.
        name: function name.
    """
    rows = [f"            {setting.name!r}: {setting.value!r},{_comment(setting)}" for setting in translation.settings]
    lines = [
        f'"""{name}: translated from Megatron-LM options by autorecipe."""',
        "",
        "from autorecipe.api.recipes import DerivedRecipe, derive",
        "",
        "",
        f"def {name}() -> DerivedRecipe:",
        f'    """Return {translation.recipe} with the translated options."""',
        "    return derive(",
        f"        {translation.recipe!r},",
        "        {",
        *rows,
        "        },",
        "    )",
    ]
    return "\n".join(lines) + "\n"


def _comment(setting: Setting) -> str:
    return f"  # {setting.why or _TITLES[setting.reason]}" if setting.reason is not Reason.GIVEN else ""


def _callable_imports(settings: Sequence[Setting]) -> set[str]:
    found = set()
    for setting in settings:
        if isinstance(setting.value, str) and setting.name == "model.activation_func" and ":" in setting.value:
            module, _, name = setting.value.partition(":")
            found.add("import torch.nn.functional as F" if module.startswith("torch") else f"from {module} import {name}")
    return found


def _python(value: FieldValue) -> str:
    if isinstance(value, dict) and "_target_" in value:
        fields = ", ".join(f"{key}={_python(item)}" for key, item in value.items() if key != "_target_")
        return f"{value['_target_'].rsplit('.', 1)[-1]}({fields})"
    if isinstance(value, str):
        if value.startswith("torch.") and ":" not in value:
            return value
        if value.split(".")[0] in ("AttnBackend", "CudaGraphModule"):
            return value
        if value.startswith(("torch.nn.functional:", "torch._C._nn:")):
            return "F." + value.partition(":")[2]
        if value.startswith("megatron.") and ":" in value:
            return value.partition(":")[2]
    return repr(value)
