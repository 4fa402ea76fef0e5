"""`autorecipe explain`: the page of a rule, of an upstream constraint, of an error's code, or of a configuration field."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from autorecipe.cli.output import emit, format_option

if TYPE_CHECKING:
    from rich.console import Console

    from autorecipe.api.explain import Explanation
    from autorecipe.rules.pages import RulePage


@click.command()
@click.argument("name", required=False)
@click.option("--list", "listing", is_flag=True, help="List every rule.")
@click.option("--release", help="Megatron Bridge release whose schema names the fields.  [default: newest shipped]")
@format_option
def explain(name: str | None, listing: bool, release: str | None, output_format: str) -> None:
    """Show what a rule, a code in an error or a note, or a field means.

    NAME is a rule's id or another name of it, a trap, the code of an error, or a configuration path.

    \b
    autorecipe explain PAR002
    autorecipe explain MC-WORLD-02
    autorecipe explain TRAP-SEQ
    autorecipe explain unset-section
    autorecipe explain model.expert_model_parallel_size
    """
    from autorecipe.api.explain import explain_name, list_rules

    if listing:
        pages = list_rules()
        emit(pages, output_format=output_format, render=lambda console: _render_list(console, pages))
        return
    if not name:
        raise click.UsageError("give a rule, a code or a configuration path, or --list")
    found = explain_name(name, release=release)
    emit(found, output_format=output_format, render=lambda console: _render(console, found))


def _render_list(console: Console, pages: tuple[RulePage, ...]) -> None:
    for page in pages:
        console.print(f"{page.id}  {page.severity:11} {page.stage:9} {page.title}", markup=False)


def _render(console: Console, found: Explanation) -> None:
    if found.meaning:
        console.print(f"{found.name}: {found.meaning}", markup=False)
    for trap in found.traps:
        for line in (f"{trap.id}: when {trap.when}, {trap.effect}", f"  instead: {trap.remedy}", f"  source:  {trap.source}"):
            console.print(line, markup=False)
    for index, page in enumerate(found.rules):
        if index or found.traps:
            console.print()
        console.print(page.text, markup=False)
    if found.field is not None:
        from autorecipe.cli.config import render_field

        render_field(console, found.field)
    if found.related:
        console.print("rules that read it:", markup=False)
        for page in found.related:
            console.print(f"  {page.id}  {page.title}", markup=False)
