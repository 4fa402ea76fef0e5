"""`autorecipe models`: architecture facts and parameter counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autorecipe.cli.output import emit, format_option
from autorecipe.cli.recipes import release_option
from autorecipe.cli.table import print_table

if TYPE_CHECKING:
    from rich.console import Console

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
    emit(rows, output_format=output_format, render=lambda _: _print_rows(rows))
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
    emit(page, output_format=output_format, render=lambda console: _print_page(console, page))


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


def _print_page(console: Console, page: ModelPage) -> None:
    from autorecipe.units import render_count

    console.print(f"[bold]{page.card.hf_model_id}[/bold]")
    if page.count is None:
        console.print(f"  parameters: unknown ({page.why_no_count})", markup=False)
    else:
        console.print(
            f"  parameters (derived): {page.count.total:,} = {render_count(page.count.total)}, {page.scope}", markup=False
        )
        console.print(f"  active per token (derived): {page.count.active:,} = {render_count(page.count.active)}", markup=False)
        for name, count in page.count.parts.items():
            console.print(f"    {name}: {count:,}", markup=False)
    if page.card.num_parameters is not None:
        console.print(f"  parameters (measured, {page.measured_scope}): {page.card.num_parameters:,}", markup=False)
    console.print("[bold]facts[/bold]")
    for name, value in page.card.facts.items():
        if value not in (None, [], {}):
            console.print(f"  {name}: {value}", markup=False)
    console.print(f"confidence: {page.card.confidence}", markup=False)
    for source in page.card.sources:
        console.print(f"source: {source}", markup=False)
    for missing in page.card.missing:
        console.print(f"missing: {missing}", markup=False)
    if page.card.recipes:
        console.print(f"recipes: {', '.join(page.card.recipes)}", markup=False)
