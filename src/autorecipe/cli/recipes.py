"""`autorecipe recipes`: what upstream ships, exact, with provenance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from autorecipe.cli.output import GPU_COUNT, emit_plain, format_option
from autorecipe.cli.table import print_table

if TYPE_CHECKING:
    from autorecipe.api.lint import LintReport, LintRow
    from autorecipe.api.recipes import RecipePage
    from autorecipe.schema.change import Change
    from autorecipe.schema.recipe import RecipeSummary

release_option = click.option("--release", help="Megatron Bridge release of the catalog; the newest by default.")


@click.group()
def recipes() -> None:
    """List, show, search, compare and lint recipes."""


@recipes.command(name="list")
@click.option("--family", help="Upstream's folder, such as qwen or llama.")
@click.option("--mode", type=click.Choice(["pretrain", "sft", "peft"]), help="Training goal.")
@click.option("--kind", type=click.Choice(["library", "benchmark"]), help="Library recipes train, benchmark recipes measure.")
@click.option("--gpu", help="GPU in the recipe's name, such as h100 or gb200.")
@click.option("--gpus", type=GPU_COUNT, help="GPUs at hand: recipes whose layout fits on that many.")
@click.option("--precision", help="Precision in the name: bf16, fp8 (any), fp8mx, nvfp4 ...")
@click.option("--modality", type=click.Choice(["text", "vlm", "audio", "omni", "diffusion"]), help="Kind of data.")
@click.option("--long-context", is_flag=True, help="Sequences over 8,192 tokens.")
@click.option("--model", help="Part of a Hugging Face id.")
@click.option("--failed", is_flag=True, help="Only recipes that fail as shipped.")
@click.option("--no-aliases", is_flag=True, help="Leave out names that stand for another one.")
@release_option
@format_option
def list_command(
    family: str | None,
    mode: str | None,
    kind: str | None,
    gpu: str | None,
    gpus: int | None,
    precision: str | None,
    modality: str | None,
    long_context: bool,
    model: str | None,
    failed: bool,
    no_aliases: bool,
    release: str | None,
    output_format: str,
) -> int:
    """List recipes; every option narrows the list."""
    from autorecipe.api.recipes import RecipeFilter, list_recipes
    from autorecipe.schema.recipe import Mode, RecipeKind

    wanted = RecipeFilter(
        family=family,
        mode=Mode(mode) if mode else None,
        kind=RecipeKind(kind) if kind else None,
        gpu=gpu,
        gpus=gpus,
        precision=precision,
        modality=modality,
        long_context=long_context,
        model=model,
        failed=failed,
        aliases=not no_aliases,
    )
    rows = list_recipes(wanted, release=release)
    emit_plain(rows, output_format=output_format, render=lambda: _print_summaries(rows))
    if not rows:
        click.echo("no recipe fits; leave out an option, or try `autorecipe recipes search TEXT`", err=True)
        return 1
    return 0


@recipes.command()
@click.argument("name")
@click.option("--full", is_flag=True, help="Every resolved field.")
@click.option("--workload", is_flag=True, help="The compact view that upstream's performance scripts take of a benchmark recipe.")
@release_option
@format_option
def show(name: str, full: bool, workload: bool, release: str | None, output_format: str) -> None:
    """Show one recipe by NAME, alias, NAME@library, or PATH.py:FUNCTION."""
    from autorecipe.api.recipes import show_recipe, show_workload

    if workload:
        view = show_workload(name, release=release)
        emit_plain(view, output_format=output_format, render=lambda: _print_section(view))
        return
    page = show_recipe(name, release=release, full=full)
    emit_plain(page, output_format=output_format, render=lambda: _print_page(page))


@recipes.command()
@click.argument("text", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(min=1), default=15, show_default=True, help="Most rows to print.")
@release_option
@format_option
def search(text: tuple[str, ...], limit: int, release: str | None, output_format: str) -> int:
    """Find recipes by words: "llama 3.1 70b lora", 30b-a3b, a Hugging Face id."""
    from autorecipe.api.recipes import search_recipes

    matches = search_recipes(" ".join(text), release=release, limit=limit)
    emit_plain(matches, output_format=output_format, render=lambda: _print_summaries([m.summary for m in matches]))
    if not matches:
        click.echo(f"nothing fits {' '.join(text)!r}; `autorecipe models list` lists the models", err=True)
        return 1
    if matches[0].unmatched:
        click.echo(f"nothing fits {', '.join(map(repr, matches[0].unmatched))}; these come closest", err=True)
    return 0


@recipes.command()
@click.argument("first")
@click.argument("second", required=False)
@click.option("--from", "before", help="Release of the first recipe.")
@click.option("--to", "after", help="Release of the second recipe.")
@format_option
def diff(first: str, second: str | None, before: str | None, after: str | None, output_format: str) -> int:
    """Compare two recipes as shipped, or one recipe in two releases; exit code 1 if they differ."""
    from autorecipe.api.recipes import diff_recipes

    if second is None and before is None and after is None:
        raise click.UsageError("give a second recipe, or --from RELEASE to compare one recipe in two releases")
    changes = diff_recipes(first, second or first, before=before, after=after)
    emit_plain(changes, output_format=output_format, render=lambda: _print_changes(changes))
    return 1 if changes else 0


@recipes.command()
@click.argument("names", nargs=-1)
@click.option("--warnings", is_flag=True, help="Recipes with warnings too.")
@release_option
@format_option
def lint(names: tuple[str, ...], warnings: bool, release: str | None, output_format: str) -> int:
    """Run every rule on shipped recipes, against the GPU count in each name; exit code 1 if one cannot run."""
    from autorecipe.api.lint import lint_recipes
    from autorecipe.cli.progress import show_progress

    with show_progress("checking") as progress:
        report = lint_recipes(names, release=release, warnings=warnings, progress=progress)
    emit_plain(report, output_format=output_format, render=lambda: _print_lint(report))
    return 1 if report.broken else 0


def _print_summaries(rows: Any) -> None:
    titles = ("recipe", "kind", "mode", "GPUs", "min", "layout", "seq", "GBS/MBS", "models")
    print_table(titles, [_summary_cells(row) for row in rows], right=("GPUs", "min", "seq", "GBS/MBS"))


def _summary_cells(row: RecipeSummary) -> tuple[str, ...]:
    return (
        row.name if row.status == "ok" else f"{row.name} (fails)",
        row.kind.value,
        row.mode.value if row.mode else "-",
        f"{row.gpus} {row.gpu_type}" if row.gpus else "-",
        str(row.minimum_gpus or "-"),
        row.layout.render() if row.layout else "-",
        str(row.seq_length or "-"),
        f"{row.global_batch_size or '-'}/{row.micro_batch_size or '-'}",
        ", ".join(row.hf_model_ids) or "-",
    )


def _print_page(page: RecipePage) -> None:
    for title, section in page.sections.items():
        click.echo(f"{title}")
        _print_section(section, indent="  ")
    if page.collision:
        click.echo(f"also exported as {page.collision}")
    for note in page.notes:
        click.echo(f"note: {note}")
    if page.fields is not None:
        click.echo("fields")
        _print_section(page.fields, indent="  ", all_values=True)


def _print_section(section: dict[str, Any], *, indent: str = "", all_values: bool = False) -> None:
    shown = {name: value for name, value in section.items() if all_values or value not in (None, [], {}, "", [None, None])}
    width = max((len(name) for name in shown), default=0) if not all_values else 0
    for name, value in shown.items():
        click.echo(f"{indent}{name.ljust(width)}  {_text(value)}")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{name}={_text(item)}" for name, item in value.items())
    return str(value)


def _print_changes(changes: tuple[Change, ...]) -> None:
    from autorecipe.schema.value import Unknown

    def text(value: Any) -> str:
        return "(absent)" if isinstance(value, Unknown) else "unset" if value is None else str(value)

    if not changes:
        click.echo("no difference")
        return
    rows = [
        (change.layer.value if change.layer else "not classified", change.path, text(change.before), text(change.after))
        for change in changes
    ]
    print_table(("layer", "path", "before", "after"), rows)


def _print_lint(report: LintReport) -> None:
    for row in report.broken:
        _print_lint_row(row, "cannot run")
    for row in report.warned:
        _print_lint_row(row, "warning")
    if report.awaiting:
        click.echo(
            f"{len(report.awaiting)} fine-tuning recipes wait for their user's checkpoint (checkpoint.pretrained_checkpoint)"
        )
    click.echo(f"{report.checked} recipes of {report.release} checked, {len(report.broken)} cannot run as shipped")


def _print_lint_row(row: LintRow, verdict: str) -> None:
    hardware = f"{row.gpus} {row.gpu_type}" if row.gpus else "no GPU count in its name"
    click.echo(f"{row.recipe} ({hardware}): {verdict}")
    click.echo(f"  at {row.source}")
    if row.error:
        click.echo(f"  {row.reason}: {row.error.strip().splitlines()[0]}")
    for finding in row.findings:
        click.echo(f"  {finding.severity.value}[{finding.rule}]: {finding.message}")
