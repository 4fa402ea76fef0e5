"""`autorecipe plan`: the best layout for given GPUs, with reasons."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autorecipe.cli.output import emit, format_option, make_console

if TYPE_CHECKING:
    from rich.console import Console

    from autorecipe.schema.plan import Choice, Plan, ScalingPoint


@click.command()
@click.argument("recipe", required=False, default="")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--model", default="", help="Hugging Face id or config.json instead of a recipe.")
@click.option("--gpus", "num_gpus", type=int, required=True, help="GPUs to use, all of them.")
@click.option("--gpu", default="h100", show_default=True, help="GPU type.")
@click.option("--gpus-per-node", type=int, default=None, help="GPUs of a host; the type's usual number by default.")
@click.option("--seq-length", type=int, default=None, help="Another sequence length: a convergence change.")
@click.option("--max-micro-batch-size", type=int, default=8, show_default=True, help="Largest micro batch size tried.")
@click.option("--fsdp", is_flag=True, help="Try fully sharded data parallelism too.")
@click.option("--top", type=int, default=5, show_default=True, help="Choices to show.")
@click.option("--explain", "explain", default=None, metavar="LAYOUT", help="Explain one layout, such as 'TP2 PP4 EP8'.")
@click.option("--scaling", type=click.Choice(["strong", "weak"]), default=None, help="A curve over GPU counts instead.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write memory against speed as PNG.")
@click.option("--bridge", "release", default=None, help="Megatron Bridge release; the newest shipped by default.")
@format_option
def plan(
    recipe: str,
    overrides: tuple[str, ...],
    model: str,
    num_gpus: int,
    gpu: str,
    gpus_per_node: int | None,
    seq_length: int | None,
    max_micro_batch_size: int,
    fsdp: bool,
    top: int,
    explain: str | None,
    scaling: str | None,
    plot: Path | None,
    release: str | None,
    output_format: str,
) -> int:
    """Rank every legal layout of RECIPE on given GPUs.

    The training itself never changes: global batch, sequence, precision and packing stay. Layouts that a rule refuses or that do
    not fit in memory are dropped; the rest is ranked by predicted speed. Exit 1 when nothing fits.

    \b
    Example:  autorecipe plan qwen3_30b_a3b_pretrain_config --gpus 32 --gpu h100
              autorecipe plan llama3_70b_pretrain_config --gpus 64 --explain 'TP4 PP4 CP2'
    """
    from autorecipe.api.plan import PlanQuestion, explain_layout, plan_curve, plan_run
    from autorecipe.schema.plan import Scaling

    if model and "=" in recipe:
        overrides, recipe = (recipe, *overrides), ""
    question = PlanQuestion(
        recipe=recipe,
        model=model,
        overrides=overrides,
        num_gpus=num_gpus,
        gpu=gpu,
        gpus_per_node=gpus_per_node,
        seq_length=seq_length,
        max_micro_batch_size=max_micro_batch_size,
        with_fsdp=fsdp,
        release=release,
    )
    if explain is not None:
        choice, refusal = explain_layout(question, explain)
        result = {"layout": explain, "legal": not refusal, "refusal": refusal, "choice": choice}
        emit(result, output_format=output_format, render=lambda console: _render_explained(console, explain, choice, refusal))
        return 1 if refusal else 0
    if scaling is not None:
        counts = [num_gpus // 4, num_gpus // 2, *(num_gpus * 2**power for power in range(4))]
        points = plan_curve(question, gpu_counts=[count for count in counts if count >= 1], scaling=Scaling(scaling))
        emit(points, output_format=output_format, render=lambda console: _render_curve(console, points))
        return 0 if any(point.choice for point in points) else 1
    answer = plan_run(question, top=top)
    emit(answer, output_format=output_format, render=lambda console: _render(console, answer, recipe or model))
    if plot is not None:
        from autorecipe.plan.plot import draw_plan

        draw_plan(answer, plot)
        make_console(stderr=True).print(f"wrote {plot}")
    return 0 if answer.choices else 1


def _render(console: Console, plan: Plan, recipe: str) -> None:
    from autorecipe.units import render_gib

    request, count = plan.request, plan.count
    cluster = request.cluster
    console.print(
        f"[bold]{recipe}[/bold] on {cluster.num_gpus} x {cluster.gpu.title}, GBS {request.batch.global_batch_size}, "
        f"sequence {request.batch.seq_length}"
    )
    console.print(
        f"{count.considered:,} candidates in {count.seconds:.2f} s: {sum(count.illegal.values()):,} illegal, "
        f"{count.oom:,} do not fit, {count.at_risk:,} at risk, {count.fitting:,} fit, "
        f"{count.dominated:,} recompute more than they need"
    )
    if plan.choices:
        _render_table(console, plan.choices)
        _render_best(console, plan.choices[0])
    else:
        console.print("\n[bold]Nothing fits.[/bold]")
        if plan.nearest is not None:
            nearest = plan.nearest
            console.print(f"nearest: {nearest.candidate.render()} needs {render_gib(nearest.peak_bytes)} ({nearest.verdict})")
        for way in plan.ways_out:
            console.print(f"  [{way.layer}] {way.change}".replace("[", r"\[", 1))
    if plan.shipped is not None and plan.choices:
        slower = 100 * (plan.shipped.step_seconds / plan.choices[0].step_seconds - 1)
        console.print(
            f"\nas shipped: {plan.shipped.candidate.render()}, {plan.shipped.verdict}, "
            f"{render_gib(plan.shipped.peak_bytes)}, predicted {slower:+.1f}% step time against the best"
        )
    elif plan.shipped_refusal:
        console.print(f"\nas shipped it cannot run here: {plan.shipped_refusal}")
    for note in plan.notes:
        console.print(f"note: {note}", markup=False)


def _render_table(console: Console, choices: tuple[Choice, ...]) -> None:
    from autorecipe.units import render_gib

    names = ["#", "layout", "MBS", "recompute", "DP", "acc", "peak", "verdict", "step s", "tok/s/GPU", "TFLOP/s"]
    rows = [
        [
            str(number),
            choice.candidate.layout.render() + (" FSDP" if choice.candidate.fsdp else ""),
            str(choice.candidate.micro_batch_size),
            choice.candidate.recompute.render(),
            str(choice.data_parallel_size),
            str(choice.num_microbatches),
            render_gib(choice.peak_bytes),
            str(choice.verdict),
            f"{choice.step_seconds:.2f}",
            f"{choice.tokens_per_second_per_gpu:,.0f}",
            f"{choice.tflops_per_gpu:.0f}",
        ]
        for number, choice in enumerate(choices, 1)
    ]
    if any(choice.candidate.layout.ep > 1 for choice in choices):
        names.insert(5, "EDP")
        for row, choice in zip(rows, choices, strict=True):
            row.insert(5, str(choice.expert_data_parallel_size))
    console.print()
    _print_columns(console, names, rows)


def _print_columns(console: Console, names: list[str], rows: list[list[str]]) -> None:
    """Print aligned columns without wrapping: text to the left, numbers to the right."""
    widths = [max(len(row[index]) for row in [names, *rows]) for index in range(len(names))]
    left = {"layout", "recompute", "verdict", "best layout"}
    for row in [names, *rows]:
        cells = [
            cell.ljust(width) if name in left else cell.rjust(width) for name, cell, width in zip(names, row, widths, strict=True)
        ]
        console.print("  ".join(cells).rstrip(), markup=False)


def _render_best(console: Console, best: Choice) -> None:
    from autorecipe.plan.settings import render_override

    console.print("\n[bold]overrides of the best[/bold]" + ("" if best.overrides else ": none, it is the recipe's own layout"))
    for path, value in best.overrides.items():
        console.print(f"  {render_override(path, value)}  ({best.layers[path]})", markup=False)
    console.print("\n[bold]why[/bold]")
    for reason in best.reasons:
        console.print(f"  {reason}", markup=False)
    for finding in best.findings:
        console.print(f"  {finding.severity}[{finding.rule}]: {finding.message}", markup=False)


def _render_explained(console: Console, text: str, choice: Choice | None, refusal: str) -> None:
    if choice is None:
        console.print(f"{text}: not legal: {refusal}", markup=False)
        return
    _render_table(console, (choice,))
    _render_best(console, choice)


def _render_curve(console: Console, points: tuple[ScalingPoint, ...]) -> None:
    names = ["GPUs", "GBS", "best layout", "step s", "tok/s/GPU", "efficiency"]
    rows = []
    for point in points:
        choice = point.choice
        rows.append(
            [
                str(point.num_gpus),
                str(point.global_batch_size),
                choice.candidate.render() if choice else "nothing fits or is legal",
                f"{choice.step_seconds:.2f}" if choice else "-",
                f"{choice.tokens_per_second_per_gpu:,.0f}" if choice else "-",
                f"{100 * point.efficiency:.0f}%" if point.efficiency is not None else "-",
            ]
        )
    _print_columns(console, names, rows)
