"""`autorecipe estimate memory|time`: will it fit, and how fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autorecipe.cli.output import GPU_COUNT, emit, format_option

if TYPE_CHECKING:
    from rich.console import Console

    from autorecipe.api.estimate import EstimateTarget, TimeReport
    from autorecipe.schema.estimate import MemoryEstimate, PublishedError

Function = TypeVar("Function", bound=Callable[..., Any])

CAPACITY = {"visible_memory_bytes": "that a process sees", "memory_bytes": "by the data sheet", "": ""}
"""What kind of figure a GPU's memory is."""

SHOWN_STAGES = 12
"""Pipeline stages that the text form lists."""


@click.group()
def estimate() -> None:
    """Estimate memory and time of a training step, without GPUs.

    \b
    autorecipe estimate memory llama3_8b_pretrain_config --gpus 8 --gpu h100
    autorecipe estimate memory --model Qwen/Qwen3-30B-A3B --gpus 16 --gpu h100 model.expert_model_parallel_size=8
    autorecipe estimate time llama3_70b_pretrain_64gpu_h100_bf16_config --tokens 1e12 --price 2.5
    """


def _target_options(function: Function) -> Function:
    for decorate in (
        click.option("--release", default=None, help="Megatron Bridge release of the catalog.  [default: newest shipped]"),
        click.option(
            "--dataset", default=None, help="Dataset preset of the launcher, such as tulu3; packing may change with it."
        ),
        click.option(
            "--mode",
            type=click.Choice(["pretrain", "sft", "lora", "dora"]),
            help="Mode of the launcher; dora changes the adapter.",
        ),
        click.option("--gpu", default=None, help="GPU type, such as h100.  [default: the one in the recipe's name]"),
        click.option("--gpus", type=GPU_COUNT, default=None, help="GPU count.  [default: the one in the recipe's name]"),
        click.option("--model", default=None, help="Hugging Face id or config.json, in place of RECIPE."),
        click.argument("arguments", nargs=-1, metavar="[RECIPE] [KEY=VALUE]..."),
    ):
        function = decorate(function)
    return function


def _find_target(
    arguments: tuple[str, ...],
    *,
    model: str | None,
    gpus: int | None,
    gpu: str | None,
    mode: str | None,
    dataset: str | None,
    release: str | None,
    local: bool = False,
) -> EstimateTarget:
    from autorecipe.api.estimate import find_target
    from autorecipe.schema.estimate import LayerImplementation

    names = [text for text in arguments[:1] if "=" not in text]
    return find_target(
        recipe=names[0] if names else None,
        model=model,
        overrides=arguments[len(names) :],
        gpus=gpus,
        gpu=gpu,
        mode=mode,
        dataset=dataset,
        release=release,
        layers=LayerImplementation.LOCAL if local else None,
    )


@estimate.command()
@_target_options
@click.option(
    "--trace", is_flag=True, help="Build the real model of the worst rank under fake tensors and measure it (a minute)."
)
@click.option("--local-layers", is_flag=True, help="Layers without Transformer Engine, as the trace and --engine core use them.")
@format_option
def memory(
    arguments: tuple[str, ...],
    model: str | None,
    gpus: int | None,
    gpu: str | None,
    mode: str | None,
    dataset: str | None,
    release: str | None,
    trace: bool,
    local_layers: bool,
    output_format: str,
) -> int:
    """Say how much memory each pipeline stage needs, and whether the worst rank fits.

    Exit code 1 when it does not fit.
    """
    from autorecipe.api.estimate import estimate_target_memory
    from autorecipe.schema.estimate import Verdict

    target = _find_target(
        arguments, model=model, gpus=gpus, gpu=gpu, mode=mode, dataset=dataset, release=release, local=trace or local_layers
    )
    result = estimate_target_memory(target, trace=trace)
    emit(result, output_format=output_format, render=lambda console: _render_memory(console, target, result))
    return 1 if result.verdict is Verdict.OOM else 0


@estimate.command()
@_target_options
@click.option(
    "--formula",
    type=click.Choice(["megatron", "full-attention", "6n"]),
    default="megatron",
    show_default=True,
    help="FLOPs that count as work: Megatron's (causal half of attention), the full square, or 6 x parameters.",
)
@click.option("--tokens", type=float, default=None, help="Token budget, such as 1e12: adds days, GPU hours and cost.")
@click.option("--price", type=float, default=None, help="Price of one GPU hour.")
@format_option
def time(
    arguments: tuple[str, ...],
    model: str | None,
    gpus: int | None,
    gpu: str | None,
    mode: str | None,
    dataset: str | None,
    release: str | None,
    formula: str,
    tokens: float | None,
    price: float | None,
    output_format: str,
) -> None:
    """Say how long a step takes, where the time goes, and what a token budget costs."""
    from autorecipe.api.estimate import estimate_target_time
    from autorecipe.schema.estimate import FlopFormula

    target = _find_target(arguments, model=model, gpus=gpus, gpu=gpu, mode=mode, dataset=dataset, release=release)
    report = estimate_target_time(target, formula=FlopFormula(formula), tokens=tokens, price=price)
    emit(report, output_format=output_format, render=lambda console: _render_time(console, target, report))


def _heading(target: EstimateTarget) -> str:
    inputs, batch = target.inputs, target.inputs.batch
    return (
        f"{target.config.recipe} on {target.world_size} x {target.gpu.title}\n"
        f"{inputs.layout.render()}, micro batch {batch.micro_batch_size}, global batch {batch.global_batch_size}, "
        f"{batch.seq_length} tokens, {inputs.policy.precision.value}, recompute {inputs.policy.recompute.render()}"
    )


def _render_memory(console: Console, target: EstimateTarget, result: MemoryEstimate) -> None:
    from rich.table import Table

    from autorecipe.units import GIB, render_gib

    console.print(_heading(target))
    table = Table(box=None, header_style="", pad_edge=False)
    for name in ("stage", "layers", "weights", "grads", "optim", "activ", "logits", "trans", "peak GiB"):
        table.add_column(name, justify="right")
    shown = sorted(sorted(result.stages, key=lambda stage: -stage.peak_bytes)[:SHOWN_STAGES], key=lambda stage: stage.stage)
    for stage in shown:
        parts = (
            stage.weights_bytes,
            stage.gradients_bytes,
            stage.optimizer_bytes,
            stage.activations_bytes,
            stage.logits_bytes,
            stage.transient_bytes,
            stage.peak_bytes,
        )
        mark = "*" if stage.stage == result.worst_stage else ""
        table.add_row(f"{mark}{stage.stage}", str(stage.layers), *(f"{part / GIB:.1f}" for part in parts))
    console.print(table)
    if len(shown) < len(result.stages):
        console.print(f"({len(result.stages) - len(shown)} stages that need less are left out)")
    worst = result.worst
    if worst.activations_by_kind:
        kinds = sorted(worst.activations_by_kind.items(), key=lambda item: -item[1])
        console.print("activations of the worst stage: " + ", ".join(f"{name} {render_gib(size)}" for name, size in kinds))
    console.print(
        f"allocated {_interval(result.allocated_bytes)}, reserved {_interval(result.reserved_bytes)}, "
        f"outside the allocator {_interval(result.outside_bytes)}; "
        f"the GPU has {render_gib(result.capacity_bytes)} {CAPACITY[result.capacity_fact]}"
    )
    if result.verdict is not None:
        console.print(f"verdict: {result.verdict.value}")
    _render_notes(console, result.method, result.assumptions, result.error)
    console.print("not modelled: " + "; ".join(result.not_modelled))


def _interval(bounds: tuple[float, float]) -> str:
    from autorecipe.units import GIB

    return f"{bounds[0] / GIB:.1f}-{bounds[1] / GIB:.1f} GiB"


def _render_time(console: Console, target: EstimateTarget, report: TimeReport) -> None:
    from rich.table import Table

    time = report.time
    console.print(_heading(target))
    low, high = time.interval_seconds
    console.print(
        f"step {time.step_seconds:.3f} s ({low:.3f}-{high:.3f}), {time.tokens_per_second_per_gpu:,.0f} tokens/s/GPU, "
        f"{time.tflops_per_gpu:,.0f} TFLOP/s/GPU, MFU {time.mfu:.1%} of the {time.mfu_precision} peak"
    )
    console.print(
        f"{time.flops_per_token / 1e9:,.2f} GFLOP a token by the {time.flop_formula.value} formula; "
        f"{time.num_microbatches} micro batches, bubble {time.bubble_fraction:.1%}"
    )
    table = Table(box=None, header_style="", pad_edge=False)
    for name, side in (("part", "left"), ("exposed s", "right"), ("share", "right"), ("hidden s", "right")):
        table.add_column(name, justify="left" if side == "left" else "right")
    for name, seconds in sorted(time.breakdown_seconds.items(), key=lambda item: -item[1]):
        hidden = time.hidden_seconds.get(name, 0.0)
        if seconds or hidden:
            table.add_row(name, f"{seconds:.4f}", f"{seconds / time.step_seconds:.1%}", f"{hidden:.4f}" if hidden else "")
    console.print(table)
    if report.budget is not None:
        budget = report.budget
        cost = "" if budget.cost is None else f", cost {budget.cost:,.0f}"
        console.print(
            f"{budget.tokens:g} tokens: {budget.steps:,} steps, {budget.days:,.1f} days "
            f"({budget.interval_days[0]:,.1f}-{budget.interval_days[1]:,.1f}), {budget.gpu_hours:,.0f} GPU hours{cost}"
        )
    _render_notes(console, "closed-form", time.assumptions, time.error)


def _render_notes(console: Console, method: str, assumptions: tuple[str, ...], error: PublishedError | None) -> None:
    if method == "trace":
        console.print("obtained by: tracing the real model under fake tensors")
    else:
        console.print("obtained by: closed form (derived)")
    for line in assumptions:
        console.print(f"assumed: {line}")
    if error is not None:
        console.print(
            f"own error on {error.rows} public measurements ({error.configuration}, {error.method}): "
            f"median {error.median_pct:.1f}%, 90th percentile {error.p90_pct:.1f}%, bias {error.bias_pct:+.1f}%"
        )
