"""`autorecipe config`: show a resolved configuration, compare two, look up fields, check a cohort."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from autorecipe.cli.output import GPU_COUNT, emit, format_option

if TYPE_CHECKING:
    from rich.console import Console

    from autorecipe.api.config import CohortCheck, ConfigDiff
    from autorecipe.config.explain import FieldPage
    from autorecipe.schema.change import Change
    from autorecipe.schema.run import RunConfig

LAYERS = ["convergence", "execution", "fingerprint", "benchmark_only", "io"]
ORIGINS = ["default", "model-card", "recipe", "preset", "override", "derived"]

release_option = click.option(
    "--release", default=None, help="Megatron Bridge release of the catalog.  [default: newest shipped]"
)
gpus_option = click.option("--gpus", type=GPU_COUNT, default=None, help="GPU count; decides data parallel size.")


@click.group()
def config() -> None:
    """Show, compare and look up configurations.

    \b
    autorecipe config show llama3_8b_pretrain_config train.train_iters=10 --origins
    autorecipe config diff llama3_8b_pretrain_config 'llama3_8b_pretrain_config train.micro_batch_size=2'
    autorecipe config schema model.sequence_parallel
    """


@config.command()
@click.argument("recipe")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--origins", is_flag=True, help="Say where each value came from and what it replaced.")
@click.option("--section", multiple=True, help="Only this section, such as model; may be given more than once.")
@click.option(
    "--mode", type=click.Choice(["pretrain", "sft", "lora", "dora"]), help="Mode of the launcher; dora changes the adapter."
)
@click.option("--from", "kinds", multiple=True, type=click.Choice(ORIGINS), help="Only values decided by this; repeatable.")
@gpus_option
@release_option
@format_option
def show(
    recipe: str,
    overrides: tuple[str, ...],
    origins: bool,
    section: tuple[str, ...],
    mode: str | None,
    kinds: tuple[str, ...],
    gpus: int | None,
    release: str | None,
    output_format: str,
) -> None:
    """Print what will run: RECIPE (or a YAML/JSON file) with overrides, in upstream's order of precedence.

    Values that were given and do not act are reported on stderr.
    """
    from autorecipe.api.config import show_config

    run = _filtered(show_config(recipe, overrides, release=release, world_size=gpus, mode=mode), section, kinds)
    _print_notes(run.notes)
    emit(run, output_format=output_format, render=lambda console: _render_run(console, run, origins=origins))


def _filtered(run: RunConfig, sections: tuple[str, ...], kinds: tuple[str, ...]) -> RunConfig:
    from autorecipe.errors import UsageError, unknown_name
    from autorecipe.record import replace

    known = sorted({path.split(".", 1)[0] for path in run.values})
    wrong = [name for name in sections if not any(path == name or path.startswith(name + ".") for path in run.values)]
    if wrong:
        raise UsageError([unknown_name("section", name, known, hint=f"sections: {', '.join(known)}") for name in wrong])

    def kept(path: str) -> bool:
        inside = not sections or any(path == name or path.startswith(name + ".") for name in sections)
        return inside and (not kinds or (path in run.origins and run.origins[path].kind.value in kinds))

    values = {path: run.values[path] for path in sorted(run.values) if kept(path)}
    return replace(run, values=values, origins={path: run.origins[path] for path in values if path in run.origins})


def _render_run(console: Console, run: RunConfig, *, origins: bool) -> None:
    from autorecipe.config.state import show as show_value

    width = max((len(path) for path in run.values), default=0)
    for path, value in run.values.items():
        text = f"{path:<{width}} = {show_value(value)}"
        origin = run.origins.get(path)
        if origins and origin is not None:
            detail = f": {origin.detail}" if origin.detail else ""
            replaced = f" (replaced {show_value(origin.replaced)})" if origin.replaced is not None else ""
            text += f"   [{origin.kind.value}{detail}]{replaced}"
        console.print(text, markup=False)


@config.command()
@click.argument("a")
@click.argument("b")
@click.option("--allow", multiple=True, type=click.Choice(["convergence"]), help="Exit 0 although this layer moved.")
@click.option("--layer", "layers", multiple=True, type=click.Choice(LAYERS), help="List only this layer; repeatable.")
@gpus_option
@release_option
@format_option
def diff(
    a: str,
    b: str,
    allow: tuple[str, ...],
    layers: tuple[str, ...],
    gpus: int | None,
    release: str | None,
    output_format: str,
) -> int:
    """Compare two configurations by layer of change; exit 1 when it is a new convergence experiment.

    A and B are each a recipe name, a recipe with overrides (and --mode dora) in quotes, or a YAML/JSON file of a configuration.
    """
    from autorecipe.api.config import diff_sides

    result = diff_sides(a, b, release=release, world_size=gpus)
    _print_notes(result.notes)
    emit(result, output_format=output_format, render=lambda console: _render_diff(console, result, layers))
    return 1 if result.verdict.convergence and "convergence" not in allow else 0


def _render_diff(console: Console, result: ConfigDiff, layers: tuple[str, ...]) -> None:
    groups: dict[str, list[Change]] = {}
    for change in result.changes:
        layer = change.layer.value if change.layer is not None else "unclassified (treated like convergence)"
        if layers and layer.split()[0] not in layers and not (change.layer is None and "convergence" in layers):
            continue
        groups.setdefault("inert (given differently, does not act)" if change.inert else layer, []).append(change)
    for title, changes in groups.items():
        console.print(f"{title}: {len(changes)}", markup=False)
        width = max(len(change.path) for change in changes)
        for change in changes:
            moved = f"{_show_side(change.before)} -> {_show_side(change.after)}"
            console.print(f"  {change.path:<{width}}  {moved}   {change.reason}", markup=False)
        console.print()
    console.print(f"verdict: {result.verdict.label}", markup=False)
    for reason in result.verdict.reasons:
        console.print(f"  {reason}", markup=False)


def _show_side(value: Any) -> str:
    from autorecipe.config.state import show as show_value
    from autorecipe.schema.value import UNKNOWN

    return "(absent)" if value is UNKNOWN else show_value(value)


@config.command()
@click.argument("path", default="")
@click.option("--layer", type=click.Choice(LAYERS), default=None, help="Only fields of this layer of change.")
@release_option
@format_option
def schema(path: str, layer: str | None, release: str | None, output_format: str) -> None:
    """List the fields of a release below PATH, or everything about one field."""
    from autorecipe.api.config import describe_fields
    from autorecipe.schema.layer import Layer

    pages = describe_fields(path, layer=Layer(layer) if layer else None, release=release)
    emit(pages, output_format=output_format, render=lambda console: _render_pages(console, pages, path))


def _render_pages(console: Console, pages: tuple[FieldPage, ...], path: str) -> None:
    from autorecipe.config.state import show as show_value

    if len(pages) == 1 and pages[0].path == path:
        render_field(console, pages[0])
        return
    width = max((len(page.path) for page in pages), default=0)
    for page in pages:
        layer = page.layer.value if page.layer is not None else "unclassified"
        mark = " !" if page.traps else ""
        text = f"{page.path:<{width}}  {layer:<14}  {page.type} = {show_value(page.default)}{mark}"
        console.print(text, markup=False)
    if any(page.traps for page in pages):
        console.print("! has a trap: `autorecipe config schema PATH` tells it", markup=False)


def _some(names: tuple[str, ...], count: int = 6) -> str:
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more


def render_field(console: Console, page: FieldPage) -> None:
    """Print the page of one field."""
    from autorecipe.config.state import show as show_value

    layer = page.layer.value if page.layer is not None else "unclassified, treated like convergence"
    rows = [
        ("field", page.path),
        ("for", page.doc),
        ("type", page.type),
        ("legal", page.legal),
        ("default", show_value(page.default)),
        ("layer", f"{layer}: {page.meaning}"),
        ("why", page.reason),
        ("settable", page.settable),
        ("classes", _some(page.classes)),
        ("rules", ", ".join(page.rules)),
        ("release", page.release),
    ]
    for name, text in rows:
        if text:
            console.print(f"{name:<9} {text}", markup=False)
    for trap in page.traps:
        console.print(f"{trap.id}: when {trap.when}, {trap.effect}", markup=False)
        console.print(f"  instead: {trap.remedy}", markup=False)


@config.command()
@click.argument("recipes", nargs=-1, required=True, metavar="RECIPE RECIPE...")
@click.option(
    "--contract",
    "contract_file",
    type=click.Path(exists=True, dir_okay=False),
    default=None,
    help="YAML contract.  [default: the first member's own values]",
)
@gpus_option
@release_option
@format_option
def cohort(
    recipes: tuple[str, ...],
    contract_file: str | None,
    gpus: int | None,
    release: str | None,
    output_format: str,
) -> int:
    """Check that model-verification runs share one convergence contract; exit 1 when one must be aligned first.

    Each RECIPE is a recipe name, a recipe with overrides in quotes, or a YAML/JSON file. The first is the reference.
    """
    from pathlib import Path

    from autorecipe.api.config import check_recipes

    file = Path(contract_file) if contract_file else None
    result = check_recipes(recipes, contract_file=file, release=release, world_size=gpus)
    _print_notes(result.notes)
    emit(result, output_format=output_format, render=lambda console: _render_cohort(console, result))
    return 0 if result.report.aligned else 1


def _render_cohort(console: Console, result: CohortCheck) -> None:
    report = result.report
    console.print(f"contract: {report.contract}", markup=False)
    for member in report.members:
        tokens = f"{member.tokens_per_step:,} tokens a step" if member.tokens_per_step else "tokens a step unknown"
        horizon = f", {member.horizon_tokens:,} in all" if member.horizon_tokens else ""
        steps = f", compared at steps {', '.join(map(str, member.checkpoint_steps))}" if member.checkpoint_steps else ""
        console.print(f"  {member.name}: {tokens}{horizon}{steps}", markup=False)
    for forced, title in ((False, "deviations"), (True, "forced by the architecture")):
        rows = [item for item in report.deviations if item.forced is forced]
        if rows:
            console.print(f"\n{title}: {len(rows)}", markup=False)
        for item in rows:
            why = f"   {item.why}" if item.why else ""
            text = f"  {item.member}  {item.dimension}: {item.path} = {_show_side(item.value)}, not {_show_side(item.expected)}"
            console.print(text + why, markup=False)
    for member in report.members:
        if member.overrides:
            console.print(f"\nalign {member.name} with:", markup=False)
            for override in member.overrides:
                console.print(f"  {shlex.quote(override)}", markup=False)
    console.print(f"\nthe result may be called: {report.label}", markup=False)
    for reason in report.reasons:
        console.print(f"  {reason}", markup=False)
    if result.aligned_report is not None:
        console.print(f"after these overrides: {result.aligned_report.label}", markup=False)
        for item in result.aligned_report.deviations:
            if not item.forced:
                left = f"  still {item.member}: {item.path} = {_show_side(item.value)}   {item.why}"
                console.print(left, markup=False)


def _print_notes(notes: tuple[str, ...]) -> None:
    for note in notes:
        click.echo(f"note: {note}", err=True)
