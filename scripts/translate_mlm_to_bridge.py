#!/usr/bin/env python3
"""Translate Megatron-LM options to Bridge overrides, or back, with the command line of upstream's script of this name.

    python scripts/translate_mlm_to_bridge.py --args "--num-layers 32 --hidden-size 4096 --bf16 --swiglu"
    python scripts/translate_mlm_to_bridge.py --yaml DeepSeek-V3.yaml --emit recipe --recipe-name deepseek_v3
    python scripts/translate_mlm_to_bridge.py --reverse --recipe llama32_1b_pretrain_config --args "train.train_iters=1000"

Unlike upstream's, every option is accounted for and an option that changes the training without a counterpart makes the exit
status 1 (`--allow-unmapped` accepts that). `autorecipe translate` has further input forms.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # this checkout, not one that is installed

from autorecipe.api.translate import MlmSource, load_mlm_mapping, recipe_module, to_bridge, to_mlm
from autorecipe.config.grammar import render_value
from autorecipe.errors import AutorecipeError, UsageError
from autorecipe.parity.design import render_command
from autorecipe.schema.parity import SideKind
from autorecipe.schema.translation import Direction, Translation
from autorecipe.translate.render import (
    account_lines,
    override_texts,
    render_args_text,
    render_overrides_text,
    render_recipe_text,
)
from autorecipe.translate.to_mlm import mlm_words

BASE_RECIPE = "vanilla_gpt_pretrain_config"


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse upstream's options."""
    parser = argparse.ArgumentParser(description="Translate between Megatron-LM options and Megatron Bridge overrides")
    parser.add_argument("--yaml", help="YAML file: Megatron-LM options, or with --reverse Bridge fields")
    parser.add_argument("--args", help="options as one text, or with --reverse KEY=VALUE overrides")
    parser.add_argument("--recipe", help="Bridge recipe for --reverse")
    parser.add_argument("--reverse", action="store_true", help="Bridge to Megatron-LM")
    parser.add_argument("--emit", choices=["overrides", "recipe", "command"], default="overrides")
    parser.add_argument("--recipe-name", default="custom_model", help="function name for --emit recipe")
    parser.add_argument("--base-recipe", default=BASE_RECIPE, help="recipe that the overrides apply to")
    parser.add_argument("--script-path", default="pretrain_gpt.py", help="script for --reverse --emit command")
    parser.add_argument("--nproc", type=int, default=8, help="processes for --emit command")
    parser.add_argument("--output", "-o", help="write to a file instead of stdout")
    parser.add_argument("--allow-unmapped", action="store_true", help="exit 0 even if something has no counterpart")
    given = parser.parse_args(_attach_args(list(sys.argv[1:] if arguments is None else arguments)))
    if given.reverse and not (given.recipe or given.args or given.yaml):
        parser.error("--reverse requires at least one of: --recipe, --args, --yaml")
    if not given.reverse and not (given.yaml or given.args):
        parser.error("--yaml or --args is required")
    if not given.reverse and given.recipe:
        parser.error("--recipe is only used with --reverse")
    return given


def _attach_args(words: list[str]) -> list[str]:
    """Join `--args TEXT` into one word: argparse takes a text that is itself an option for an option of its own."""
    for at in range(len(words) - 1):
        if words[at] == "--args":
            return [*words[:at], f"--args={words[at + 1]}", *words[at + 2 :]]
    return words


def translate(given: argparse.Namespace) -> Translation:
    """Translate what was given, in the direction that was asked for."""
    if given.reverse:
        texts = shlex.split(given.args or "")
        if given.yaml:
            import yaml

            texts += _flatten(yaml.safe_load(Path(given.yaml).read_text(encoding="utf-8")) or {})
        return to_mlm(given.recipe or BASE_RECIPE, texts, gpus=given.nproc if given.emit == "command" else None)
    words = None if given.yaml else shlex.split(given.args)
    source = MlmSource(words=words, yaml=Path(given.yaml) if given.yaml else None)
    return to_bridge(source, recipe=given.base_recipe)


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> list[str]:
    texts: list[str] = []
    for key, value in tree.items():
        path = f"{prefix}{key}"
        texts += _flatten(value, f"{path}.") if isinstance(value, Mapping) else [f"{path}={render_value(value)}"]
    return texts


def render(translation: Translation, given: argparse.Namespace) -> str:
    """Render a translation in the form that was asked for."""
    mapping = load_mlm_mapping()
    if translation.direction is Direction.TO_MLM:
        if given.emit != "command":
            return render_args_text(translation, mapping)
        words = " \\\n  ".join(shlex.quote(word) for word in mlm_words(translation, mapping))
        return f"torchrun --nproc_per_node={given.nproc} {given.script_path} \\\n  {words}\n"
    if given.emit == "recipe":
        name = f"{given.recipe_name}_pretrain_config"
        return render_recipe_text(translation, name=name, base_module=recipe_module(given.base_recipe))
    if given.emit == "command":
        command = render_command(
            SideKind.BRIDGE,
            override_texts(translation),
            recipe=given.base_recipe,
            processes=given.nproc,
            mock=any(outcome.name == "--mock-data" for outcome in translation.outcomes),
        )
        return f"{command}\n"
    return render_overrides_text(translation)


def main(arguments: Sequence[str] | None = None) -> int:
    """Translate and print; the account goes to stderr."""
    given = parse_arguments(arguments)
    try:
        translation = translate(given)
        text = render(translation, given)
        if given.output:
            Path(given.output).write_text(text, encoding="utf-8")
    except AutorecipeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(UsageError(f"{error.filename}: {error.strerror}"), file=sys.stderr)
        return UsageError.exit_code
    if not given.output:
        sys.stdout.write(text)
    for line in account_lines(translation):
        print(line, file=sys.stderr)
    blocked = bool(translation.lost) and not given.allow_unmapped
    return 1 if blocked or translation.problems else 0


if __name__ == "__main__":
    sys.exit(main())
