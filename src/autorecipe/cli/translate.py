"""`autorecipe translate`: Megatron-LM options and Bridge overrides, in both directions, nothing lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autorecipe.cli.output import GPU_COUNT, emit, format_option

if TYPE_CHECKING:
    from rich.console import Console

    from autorecipe.schema.translation import Outcome, Setting, Translation

_FILE = click.Path(path_type=Path)


@click.group()
def translate() -> None:
    """Translate between Megatron-LM options and Bridge overrides, accounting for every option."""


@translate.command("to-bridge")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--script", type=_FILE, help="Launch script to read; it is never run.")
@click.option(
    "--var", "variables", multiple=True, metavar="NAME=VALUE", help="Value for what the script or YAML file takes from outside."
)
@click.option("--yaml", "yaml_file", type=_FILE, help="YAML file with options.")
@click.option("--checkpoint", type=_FILE, help="Checkpoint whose saved arguments are translated (common.pt or a folder).")
@click.option("--recipe", default="vanilla_gpt_pretrain_config", show_default=True, help="Recipe that the overrides apply to.")
@click.option("--release", help="Bridge release; the newest shipped one by default.")
@click.option("--gpus", type=GPU_COUNT, help="Number of GPUs; read from the launcher words by default.")
@click.option(
    "--emit",
    "form",
    type=click.Choice(["overrides", "recipe", "own-recipe", "args", "yaml", "table"]),
    default="overrides",
    show_default=True,
    help="What to print; own-recipe is a function for `run_recipe.py --recipe FILE.py:FUNCTION`, recipe one for Bridge itself.",
)
@click.option("--name", default="translated_pretrain_config", show_default=True, help="Function name for --emit [own-]recipe.")
@click.option("--allow-unmapped", is_flag=True, help="Exit 0 even if a convergence option has no counterpart.")
@format_option
def to_bridge_command(
    arguments: tuple[str, ...],
    script: Path | None,
    variables: tuple[str, ...],
    yaml_file: Path | None,
    checkpoint: Path | None,
    recipe: str,
    release: str | None,
    gpus: int | None,
    form: str,
    name: str,
    allow_unmapped: bool,
    output_format: str,
) -> int:
    """Translate Megatron-LM options into overrides of a Bridge recipe.

    \b
    autorecipe translate to-bridge -- --num-layers 32 --hidden-size 4096 --bf16 --swiglu
    autorecipe translate to-bridge pretrain.sh
    autorecipe translate to-bridge --script pretrain.sh --var CHECKPOINT_PATH=/ckpt
    autorecipe translate to-bridge --script pretrain.sh -- FIRST_ARGUMENT SECOND_ARGUMENT

    Exit status 1 when an option that changes the training has no counterpart, or Megatron-LM itself would refuse the options.
    """
    from autorecipe.api.translate import MlmSource, load_mlm_mapping, recipe_module, source_of_words, to_bridge
    from autorecipe.translate.render import render_own_recipe_text, render_recipe_text

    if arguments and (yaml_file or checkpoint):
        raise click.UsageError("give options after -- or a file, not both")
    pairs = [text.partition("=") for text in variables]
    wrong = [text for text, (key, separator, _) in zip(variables, pairs, strict=True) if not key or not separator]
    if wrong:
        raise click.UsageError(f"--var takes NAME=VALUE, not {', '.join(map(repr, wrong))}")
    values = {key: value for key, _, value in pairs}
    if script or yaml_file or checkpoint:
        source = MlmSource(
            script=script,
            yaml=yaml_file,
            checkpoint=checkpoint,
            variables=values,
            script_arguments=arguments if script and arguments else None,
        )
    else:
        source = source_of_words(arguments, variables=values)
    if variables and source.script is None and source.yaml is None:
        raise click.UsageError("--var gives values to a script or YAML file; there is none (--script FILE, --yaml FILE)")
    translation = to_bridge(source, recipe=recipe, release=release, gpus=gpus)
    if output_format == "text" and form == "recipe":
        click.echo(render_recipe_text(translation, name=name, base_module=recipe_module(recipe, release=release)), nl=False)
        _account_on_stderr(translation)
    elif output_format == "text" and form == "own-recipe":
        click.echo(render_own_recipe_text(translation, name=name), nl=False)
        _account_on_stderr(translation)
    else:
        _print(translation, form, output_format, load_mlm_mapping(release), given=tuple(source.words or ()))
    return _finish(translation, allow_unmapped=allow_unmapped)


@translate.command("to-mlm")
@click.argument("recipe")
@click.argument("overrides", nargs=-1)
@click.option("--release", help="Bridge release; the newest shipped one by default.")
@click.option("--gpus", type=GPU_COUNT, help="Number of GPUs.")
@click.option(
    "--emit", "form", type=click.Choice(["args", "yaml", "table"]), default="args", show_default=True, help="What to print."
)
@click.option("--allow-unmapped", is_flag=True, help="Exit 0 even if a convergence field has no counterpart.")
@format_option
def to_mlm_command(
    recipe: str,
    overrides: tuple[str, ...],
    release: str | None,
    gpus: int | None,
    form: str,
    allow_unmapped: bool,
    output_format: str,
) -> int:
    """Translate RECIPE with KEY=VALUE overrides into Megatron-LM options."""
    from autorecipe.api.translate import load_mlm_mapping, to_mlm

    translation = to_mlm(recipe, overrides, release=release, gpus=gpus)
    _print(translation, form, output_format, load_mlm_mapping(release))
    return _finish(translation, allow_unmapped=allow_unmapped)


def _print(translation: Translation, form: str, output_format: str, mapping: object, given: tuple[str, ...] = ()) -> None:
    from autorecipe.translate.mapping import MappingTable
    from autorecipe.translate.render import render_overrides_text, render_yaml_text

    assert isinstance(mapping, MappingTable)
    if output_format == "json":
        payload = {"translation": translation, "lost": translation.lost}
        emit(payload, output_format="json", render=lambda console: None)
        return
    if form == "table":
        emit(translation, output_format="text", render=lambda console: render_table(translation, console))
        return
    if form == "overrides":
        click.echo(render_overrides_text(translation), nl=False)
        return
    if form == "args":
        click.echo(_args_text(translation, mapping, given), nl=False)
    else:
        click.echo(render_yaml_text(translation, mapping), nl=False)
    _account_on_stderr(translation)


def _args_text(translation: Translation, mapping: object, given: tuple[str, ...]) -> str:
    from autorecipe.schema.translation import Direction
    from autorecipe.translate.mapping import MappingTable
    from autorecipe.translate.render import render_args_text

    assert isinstance(mapping, MappingTable)
    if translation.direction is Direction.TO_MLM:
        return render_args_text(translation, mapping)
    import shlex

    rows = [f"{outcome.name} {outcome.value}".strip() for outcome in translation.outcomes if outcome.acts or outcome.status.maps]
    return " \\\n".join(" ".join(shlex.quote(word) for word in row.split(" ")) for row in rows) + "\n"


def _account_on_stderr(translation: Translation) -> None:
    from autorecipe.translate.render import account_lines

    for line in account_lines(translation):
        click.echo(line, err=True)


def _finish(translation: Translation, *, allow_unmapped: bool) -> int:
    refused = translation.problems
    for outcome in translation.lost:
        click.echo(f"error[unmapped]: {outcome.name}: {outcome.note or 'no counterpart'} ({outcome.origin or 'given'})", err=True)
    for problem in refused:
        click.echo(problem.render(), err=True)
    if translation.lost and not allow_unmapped:
        hint = "--allow-unmapped accepts the loss" if not refused else ""
        if hint:
            click.echo(f"hint: {hint}", err=True)
    return 1 if refused or (translation.lost and not allow_unmapped) else 0


def render_table(translation: Translation, console: Console) -> None:
    """Write a translation as two tables: what was given, and what is written."""
    from rich.text import Text

    from autorecipe.cli.columns import print_columns
    from autorecipe.config.grammar import render_value

    def layer_of(item: Outcome | Setting) -> str:
        return item.layer.value if item.layer is not None else ""

    print_columns(
        console,
        ("given", "value", "status", "becomes", "layer", "note"),
        [
            (item.name, item.value, item.status.value, ", ".join(item.targets), layer_of(item), item.note)
            for item in translation.outcomes
        ],
        bold_rows=[item.blocks for item in translation.outcomes],
    )
    print_columns(
        console,
        ("written", "value", "reason", "layer", "why"),
        [
            (
                item.name,
                "" if item.value is True and item.name.startswith("--") else render_value(item.value),
                item.reason.value,
                layer_of(item),
                item.why,
            )
            for item in translation.settings
        ],
    )
    for problem in translation.problems:
        console.print(Text(f"refused: {problem.code} {problem.path} {problem.message}"))
    for note in translation.notes:
        console.print(Text(f"note: {note}"))
