"""`autorecipe models`: architecture facts and parameter counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autorecipe.cli.output import emit_plain, format_option
from autorecipe.cli.recipes import release_option
from autorecipe.cli.table import print_table

if TYPE_CHECKING:
    from autorecipe.api.models import ModelPage, ModelRow


@click.group()
def models() -> None:
    """Architecture and parameter count of models."""


@models.command(name="list")
@click.option("--search", help="Part of the Hugging Face id.")
@release_option
@format_option
def list_command(search: str | None, release: str | None, output_format: str) -> int:
    """List the models that recipes use."""
    from autorecipe.api.models import list_models

    rows = list_models(search or "", release=release)
    emit_plain(rows, output_format=output_format, render=lambda: _print_rows(rows))
    if not rows:
        click.echo(f"no model has {search!r} in its id", err=True)
        return 1
    return 0


@models.command()
@click.argument("hf_id", required=False)
@click.option("--hf-config", type=click.Path(path_type=Path), help="A config.json, or the directory that holds one.")
@release_option
@format_option
def show(hf_id: str | None, hf_config: Path | None, release: str | None, output_format: str) -> None:
    """Show one model, by Hugging Face id or from a local config.json."""
    from autorecipe.api.models import show_config, show_model

    if (hf_id is None) == (hf_config is None):
        raise click.UsageError("give a Hugging Face id, or --hf-config PATH")
    page = show_config(hf_config) if hf_config is not None else show_model(hf_id or "", release=release)
    emit_plain(page, output_format=output_format, render=lambda: _print_page(page))


def _print_rows(rows: tuple[ModelRow, ...]) -> None:
    from autorecipe.units import render_count

    def count(value: int | None) -> str:
        return render_count(value) if value else "unknown"

    titles = ("model", "parameters", "active", "measured", "layers", "hidden", "recipes", "facts")
    cells = [
        (
            row.hf_model_id,
            count(row.parameters),
            count(row.active),
            count(row.measured),
            str(row.num_layers or "-"),
            str(row.hidden_size or "-"),
            str(row.num_recipes),
            row.confidence,
        )
        for row in rows
    ]
    print_table(titles, cells, right=titles[1:7])


def _print_page(page: ModelPage) -> None:
    from autorecipe.units import render_count

    click.echo(f"{page.card.hf_model_id}")
    if page.count is None:
        click.echo(f"  parameters: unknown ({page.why_no_count})")
    else:
        click.echo(f"  parameters (derived): {page.count.total:,} = {render_count(page.count.total)}, {page.scope}")
        click.echo(f"  active per token (derived): {page.count.active:,} = {render_count(page.count.active)}")
        for name, count in page.count.parts.items():
            click.echo(f"    {name}: {count:,}")
    if page.card.num_parameters is not None:
        click.echo(f"  parameters (measured, {page.measured_scope}): {page.card.num_parameters:,}")
    click.echo("facts")
    for name, value in page.card.facts.items():
        if value not in (None, [], {}):
            click.echo(f"  {name}: {value}")
    click.echo(f"confidence: {page.card.confidence}")
    for source in page.card.sources:
        click.echo(f"source: {source}")
    for missing in page.card.missing:
        click.echo(f"missing: {missing}")
    if page.card.recipes:
        click.echo(f"recipes: {', '.join(page.card.recipes)}")
