"""`autorecipe parity`: do two runs train alike?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autorecipe.cli.output import GPU_COUNT, emit, format_option

if TYPE_CHECKING:
    from rich.console import Console

    from autorecipe.schema.parity import LayoutSentinel, ParityDesign, ParityReport

_LOG = click.Path(path_type=Path)


@click.group()
def parity() -> None:
    """Prove that two runs give the same loss, or say where and why they part."""


@parity.command()
@click.argument("logs", nargs=-1, type=_LOG, required=True)
@click.option(
    "--repeat",
    "repeats",
    multiple=True,
    type=_LOG,
    help="A further run of the first log's configuration: measures run-to-run spread.",
)
@click.option(
    "--repeat-candidate", "candidate_repeats", multiple=True, type=_LOG, help="The same for the second log's configuration."
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16", "fp16", "fp8"]),
    help="Arithmetic of the runs; read from the logs by default.",
)
@click.option("--from", "first", type=click.IntRange(min=1), help="First iteration to compare.")
@click.option("--to", "last", type=click.IntRange(min=1), help="Last iteration to compare.")
@click.option("--expect-identical", is_flag=True, help="Any printed digit that differs breaks parity.")
@click.option("--allow-incomplete", is_flag=True, help="Accept a log that ends before its last announced iteration.")
@click.option("--ignore-settings", is_flag=True, help="Compare losses only, not the settings that the logs' headers state.")
@click.option("--plot", "png", type=_LOG, help="Write a PNG with loss, difference, gradient norm and learning rate.")
@click.option("--html", type=_LOG, help="Write a self-contained HTML page.")
@format_option
def compare(
    logs: tuple[Path, ...],
    repeats: tuple[Path, ...],
    candidate_repeats: tuple[Path, ...],
    precision: str | None,
    first: int | None,
    last: int | None,
    expect_identical: bool,
    allow_incomplete: bool,
    ignore_settings: bool,
    png: Path | None,
    html: Path | None,
    output_format: str,
) -> int:
    """Compare training LOGS: each further one with the first.

    Console output of Megatron-LM, Megatron Bridge or autorecipe, JSON lines, or TensorBoard event files. Exit status 1 when
    parity is broken, a log is cut short, or the losses must not be compared.
    """
    from autorecipe.api.parity import compare_log_files, write_plots
    from autorecipe.parity.compare import CompareOptions
    from autorecipe.schema.parity import Precision

    if len(logs) < 2:
        raise click.UsageError("two logs are needed: the reference and a candidate")
    if candidate_repeats and len(logs) != 2:
        raise click.UsageError("--repeat-candidate needs exactly one candidate")
    reports = compare_log_files(
        logs,
        reference_repeats=repeats,
        candidate_repeats=candidate_repeats,
        options=CompareOptions(
            precision=Precision(precision) if precision else None,
            first=first,
            last=last,
            expect_identical=expect_identical,
            allow_incomplete=allow_incomplete,
        ),
        use_settings=not ignore_settings,
    )
    for path in write_plots(reports, png=png, html=html):
        click.echo(f"wrote {path}", err=True)
    holds = all(report.verdict.holds for report in reports)

    def render(console: Console) -> None:
        for report in reports:
            render_report(report, console)

    emit({"holds": holds, "reports": reports}, output_format=output_format, render=render)
    return 0 if holds else 1


@parity.command(context_settings={"ignore_unknown_options": True})
@click.argument("sides", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--gpus", type=GPU_COUNT, help="Processes of both sides; read from them by default.")
@click.option("--release", help="Bridge release; the newest shipped one by default.")
@click.option("--match-execution", is_flag=True, help="Match fields that only drift by rounding as well.")
@click.option("--megatron-lm", default="3rdparty/Megatron-LM", show_default=True, help="Megatron-LM checkout for the command.")
@format_option
def design(
    sides: tuple[str, ...], gpus: int | None, release: str | None, match_execution: bool, megatron_lm: str, output_format: str
) -> int:
    """Say what keeps two sides A and B from being comparable, and print the corrected commands.

    \b
    A side is one argument (quote it): Megatron-LM options, a launch script, a YAML file, RECIPE KEY=VALUE ..., or the log
    of a run. B is corrected to match A.
    autorecipe parity design "--num-layers 2 --bf16 ..." "vanilla_gpt_pretrain_config model.num_layers=2 ..."

    Exit status 1 when a difference remains that nothing can express.
    """
    from autorecipe.api.parity_design import design_parity

    if len(sides) != 2:
        raise click.UsageError(f"two sides are needed, quoted as one argument each; {len(sides)} were given")
    result = design_parity(
        sides[0], sides[1], release=release, gpus=gpus, match_execution=match_execution, megatron_lm=megatron_lm
    )
    emit(result, output_format=output_format, render=lambda console: render_design(result, console))
    return 0 if result.comparable else 1


@parity.command(context_settings={"ignore_unknown_options": True})
@click.argument("sides", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--engine-a", type=click.Choice(["core", "bridge", "mlm"]), help="Engine of A; mlm for Megatron-LM options if it is there."
)
@click.option("--engine-b", type=click.Choice(["core", "bridge", "mlm"]), help="Engine of B.")
@click.option(
    "--megatron-lm",
    type=_LOG,
    help="Checkout or folder with its packages; by default MEGATRON_LM, 3rdparty/Megatron-LM or the installed one.",
)
@click.option(
    "--bridge",
    type=_LOG,
    help="The same for Megatron Bridge: MEGATRON_BRIDGE, 3rdparty/Megatron-Bridge or the installed one.",
)
@click.option("--gpus", type=GPU_COUNT, help="Processes of each side; read from them by default.")
@click.option("--output", type=_LOG, default=Path("parity-runs"), show_default=True, help="Folder for runs, logs and pictures.")
@click.option("--timeout", "timeout_s", type=float, help="Seconds for each run.")
@click.option("--release", help="Bridge release; the newest shipped one by default.")
@click.option("--match", is_flag=True, help="Correct B first, as `parity design` does.")
@click.option("--match-execution", is_flag=True, help="Correct fields that only drift by rounding as well.")
@click.option("--expect-identical", is_flag=True, help="Any printed digit that differs breaks parity.")
@format_option
def run(
    sides: tuple[str, ...],
    engine_a: str | None,
    engine_b: str | None,
    megatron_lm: Path | None,
    bridge: Path | None,
    gpus: int | None,
    output: Path,
    timeout_s: float | None,
    release: str | None,
    match: bool,
    match_execution: bool,
    expect_identical: bool,
    output_format: str,
) -> int:
    """Run two sides A and B in fresh folders, capture their logs and compare them.

    \b
    Sides are those of `parity design`. Engines: core (this project's), bridge and mlm (upstream's programs, unmodified; without
    CUDA they start through a CPU stand-in).
    """
    from autorecipe.api.parity import write_plots
    from autorecipe.api.parity_run import RunRequest, run_parity
    from autorecipe.parity.compare import CompareOptions

    if len(sides) != 2:
        raise click.UsageError(f"two sides are needed, quoted as one argument each; {len(sides)} were given")
    request = RunRequest(
        a=sides[0],
        b=sides[1],
        engine_a=engine_a or "",
        engine_b=engine_b or "",
        output=output,
        megatron_lm=megatron_lm,
        bridge=bridge,
        gpus=gpus,
        release=release,
        timeout_s=timeout_s,
        match=match,
        match_execution=match_execution,
        options=CompareOptions(expect_identical=expect_identical),
    )
    outcomes, report = run_parity(request, say=lambda text: click.echo(text, err=True))
    for path in write_plots([report], html=output / "parity.html"):
        click.echo(f"wrote {path}", err=True)
    payload = {"holds": report.verdict.holds, "runs": outcomes, "report": report}
    emit(payload, output_format=output_format, render=lambda console: render_report(report, console))
    return 0 if report.verdict.holds else 1


@parity.command()
@click.argument("recipe")
@click.argument("overrides", nargs=-1)
@click.option("--gpus", type=GPU_COUNT, required=True, help="Processes of each run.")
@click.option("--only", multiple=True, help="Layout to run, such as tp2; repeatable. The reference always runs.")
@click.option("--shrink", is_flag=True, help="Shrink the recipe to a toy of its structure first: fewer layers, smaller sizes.")
@click.option("--output", type=_LOG, default=Path("parity-layouts"), show_default=True, help="Folder for runs and logs.")
@click.option("--timeout", "timeout_s", type=float, help="Seconds for each run.")
@click.option("--release", help="Bridge release; the newest shipped one by default.")
@format_option
def layouts(
    recipe: str,
    overrides: tuple[str, ...],
    gpus: int,
    only: tuple[str, ...],
    shrink: bool,
    output: Path,
    timeout_s: float | None,
    release: str | None,
    output_format: str,
) -> int:
    """Run RECIPE under several layouts: loss sentinels for a change that must touch execution only.

    \b
    All start from the same weights: one run of the reference layout without an update draws them. Exit status 1 when a layout
    trains otherwise, a run fails, or nothing could be compared.
    """
    from autorecipe.api.parity_layouts import LayoutRequest, run_layouts
    from autorecipe.cli.columns import print_columns

    found = run_layouts(
        LayoutRequest(
            recipe=recipe,
            overrides=overrides,
            gpus=gpus,
            output=output,
            only=only,
            shrink=shrink,
            release=release,
            timeout_s=timeout_s,
        ),
        say=lambda text: click.echo(text, err=True),
    )
    compared = any(item.report is not None for item in found)
    holds = compared and all(item.holds for item in found)

    def render(console: Console) -> None:
        from rich.text import Text

        print_columns(console, ("layout", "verdict", "summary"), [_sentinel_row(item) for item in found])
        for item in found:
            if item.report is not None and item.report.divergence is not None:
                console.print(Text(f"{item.name}: {item.report.divergence.cause}"))
            for note in item.notes if not item.skipped else ():
                console.print(Text(f"note: {item.name}: {note}"))
        if not compared:
            console.print(Text("nothing was compared: no second layout ran", style="bold red"))

    emit({"holds": holds, "layouts": found}, output_format=output_format, render=render)
    return 0 if holds else 1


def _sentinel_row(item: LayoutSentinel) -> tuple[str, str, str]:
    if item.skipped:
        return item.name, "not run", item.skipped
    if item.failed:
        return item.name, "failed", item.failed
    return (
        (item.name, item.report.verdict.value, item.report.summary) if item.report is not None else (item.name, "reference", "")
    )


def render_design(design: ParityDesign, console: Console) -> None:
    """Write a design as text: what differs, what corrects it, the two commands, the checklist."""
    from rich.text import Text

    from autorecipe.cli.columns import print_columns

    a, b = design.sides
    if design.unmatched:
        console.print(Text(f"not matched: {len(design.unmatched)} fields that decide the training differ", style="bold red"))
    else:
        console.print(Text("matched: no field that decides the training differs", style="bold green"))
    for title, changes in (("convergence", design.unmatched), ("execution", design.execution)):
        if not changes:
            continue
        heads = (title, f"A ({a.kind.value})", f"B ({b.kind.value})", "why it matters")
        print_columns(console, heads, [(row.path, str(row.before), str(row.after), row.reason) for row in changes])
    if design.fixes:
        console.print(Text(f"corrections of B: {' '.join(design.fixes)}"))
    for text in design.lost:
        console.print(Text(f"cannot be matched: {text}", style="bold red"))
    for side in design.sides:
        corrected = " corrected" if side.label == "B" and design.fixes else ""
        console.print(Text(f"\n# {side.label}:{corrected} {side.kind.value}"))
        console.print(Text(side.command))
    console.print(Text("\nchecklist:"))
    for number, text in enumerate(design.checklist, start=1):
        console.print(Text(f"{number}. {text}"))
    for note in design.notes:
        console.print(Text(f"note: {note}"))


def render_report(report: ParityReport, console: Console) -> None:
    """Write one comparison as text: verdict first, then the numbers, then what was assumed."""
    from rich.table import Table
    from rich.text import Text

    from autorecipe.parity.sparkline import average_columns, draw_sparkline
    from autorecipe.schema.parity import LOSS

    style = "bold green" if report.verdict.holds else "bold red"
    console.print(Text(f"{report.verdict.value}: {report.summary}", style=style))
    console.print(Text(f"reference  {report.reference}  [{report.frameworks[0].value}]"))
    console.print(Text(f"candidate  {report.candidate}  [{report.frameworks[1].value}]"))
    if report.divergence is not None:
        console.print(Text(f"cause ({report.divergence.onset.value}): {report.divergence.cause}"))
        if report.divergence.next_step:
            console.print(Text(f"next: {report.divergence.next_step}"))
    if report.series:
        table = Table(box=None, pad_edge=False)
        for head in ("metric", "iterations", "first difference", "largest", "at"):
            table.add_column(head, justify="left" if head == "metric" else "right")
        for entry in report.series:
            begins = (
                "none (identical)"
                if entry.identical
                else "none"
                if entry.first_divergence is None
                else str(entry.first_divergence)
            )
            table.add_row(
                entry.metric, str(len(entry.points)), begins, f"{entry.max_difference:.3g}", str(entry.max_difference_iteration)
            )
        console.print(table)
    losses = next((entry for entry in report.series if entry.metric == LOSS), None)
    if losses is not None:
        sides = [[p.reference for p in losses.points], [p.candidate for p in losses.points]]
        values = [mean for side in sides for mean in average_columns(side) if math.isfinite(mean)]
        low, high = min(values, default=0.0), max(values, default=1.0)
        for name, side in zip(("reference", "candidate"), sides, strict=True):
            console.print(Text(f"{name}    {draw_sparkline(side, low=low, high=high)}"))
        gaps = [abs(point.difference) for point in losses.points]
        console.print(Text(f"|difference| {draw_sparkline(gaps, low=0.0)}  up to {losses.max_difference:.3g}"))
        if len(losses.points) <= 20:
            _render_points(report, console)
    for item in report.fact_differences:
        console.print(Text(f"settings: {item.name} is {item.reference} / {item.candidate}"))
    if report.tolerance is not None:
        model = report.tolerance
        spread = f"; spread measured on {model.spread_runs} runs: {model.spread:.3g}" if model.spread_runs else ""
        console.print(
            Text(
                f"tolerance: {model.precision.value} ({model.precision_reason}), k={model.factor:g}, "
                f"{model.tokens_per_step} tokens a step, hidden size {model.hidden_size or 'not stated'}{spread}"
            )
        )
    for note in report.notes:
        console.print(Text(f"note: {note}"))


def _render_points(report: ParityReport, console: Console) -> None:
    from rich.table import Table

    from autorecipe.schema.parity import LOSS

    losses = next(entry for entry in report.series if entry.metric == LOSS)
    table = Table(box=None, pad_edge=False)
    for head in ("iteration", "reference", "candidate", "difference", "tolerance", ""):
        table.add_column(head, justify="right")
    for point in losses.points:
        table.add_row(
            str(point.iteration),
            f"{point.reference:.6f}",
            f"{point.candidate:.6f}",
            f"{point.difference:+.2e}",
            f"{point.tolerance:.2e}",
            "" if point.agrees else "differs",
        )
    console.print(table)
