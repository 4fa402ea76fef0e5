"""`autorecipe check`: every rule that a run breaks, worst first, with ways out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from autorecipe.cli.output import emit, format_option

if TYPE_CHECKING:
    from rich.console import Console

    from autorecipe.schema import Finding, Fix
    from autorecipe.schema.finding import CheckReport, CorrectedRun

STYLES = {"error": "bold red", "warn": "yellow", "auto-fix": "cyan", "not-checked": "magenta", "info": "dim"}


@click.command()
@click.argument("target")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--gpus", type=click.IntRange(min=1), help="Number of GPUs.  [default: the count in the recipe's name]")
@click.option("--gpu", help="GPU type, such as h100.  [default: the type in the recipe's name]")
@click.option("--nodes", type=click.IntRange(min=1), help="Number of hosts; with --gpus it gives the GPUs of a host.")
@click.option("--framework", type=click.Choice(["bridge", "megatron-lm"]), default="bridge", show_default=True)
@click.option("--core", help="Megatron-Core release, such as 0.16.1.  [default: the one of the Bridge release]")
@click.option("--release", help="Megatron Bridge release of the catalog.  [default: newest shipped]")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Process environment; once one is given it counts as complete.")
@click.option("--package", multiple=True, metavar="NAME=RELEASE", help="Installed package, such as transformer-engine=2.10.")
@click.option("--dataset", help="Dataset preset of the launcher, such as mock or squad.")
@click.option("--mode", help="Mode of the launcher: pretrain, sft, peft, lora or dora.")
@click.option("--given", multiple=True, metavar="NAME=VALUE", help="Another fact of the launch, such as num_samples=100.")
@click.option("--saved", multiple=True, metavar="KEY=VALUE", help="What the checkpoint to resume from was saved with.")
@click.option("--here", is_flag=True, help="The run starts on this machine: look at its paths and environment.")
@click.option("--fix", is_flag=True, help="Print overrides that make it pass, and the layer of change each touches.")
@click.option("--all", "show_all", is_flag=True, help="Show findings of severity info too.")
@format_option
def check(target: str, overrides: tuple[str, ...], output_format: str, **options: Any) -> int:
    """Check TARGET (a recipe, or a YAML or JSON file) with overrides against every rule that applies.

    Errors come first, and among them what upstream would notice last or never. Exit status 1 when one is found.

    \b
    autorecipe check llama3_8b_pretrain_config --gpus 8 --gpu h100
    autorecipe check qwen3_30b_a3b_pretrain_config model.expert_model_parallel_size=6 --gpus 16 --gpu h100 --fix
    autorecipe check run.yaml --gpus 64 --gpu h100 --env CUDA_DEVICE_MAX_CONNECTIONS=1
    """
    from autorecipe.api.check import CheckRequest, check_run

    gpus, nodes = options["gpus"], options["nodes"]
    if nodes and gpus and gpus % nodes:
        raise click.UsageError(f"--gpus {gpus} is not a multiple of --nodes {nodes}")
    given = read_pairs(options["given"], "--given")
    for name in ("dataset", "mode"):
        if options[name]:
            given[name] = options[name]
    environment = options["env"]
    request = CheckRequest(
        target=target,
        overrides=overrides,
        gpus=gpus,
        gpu=options["gpu"],
        gpus_per_node=gpus // nodes if gpus and nodes else None,
        framework=options["framework"],
        release=options["release"],
        core_release=options["core"],
        environment={name: str(value) for name, value in read_pairs(environment, "--env", raw=True).items()}
        if environment
        else None,
        packages={name: str(value) for name, value in read_pairs(options["package"], "--package", raw=True).items()},
        given=given,
        saved=read_pairs(options["saved"], "--saved"),
        here=options["here"],
    )
    report = check_run(request, correct=options["fix"])
    for note in report.notes:
        click.echo(f"note: {note}", err=True)
    emit(report, output_format=output_format, render=lambda console: render_report(console, report, show_all=options["show_all"]))
    if report.ok:
        return 0
    return 1


def read_pairs(words: tuple[str, ...], option: str, *, raw: bool = False) -> dict[str, Any]:
    """Read `NAME=VALUE` words; values as YAML scalars unless raw."""
    import yaml

    pairs: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {word!r} is not NAME=VALUE")
        pairs[name] = value if raw else yaml.safe_load(value) if value else None
    return pairs


def render_report(console: Console, report: CheckReport, *, show_all: bool) -> None:
    """Write the text form of a report."""
    where = f"{report.gpus} x {report.gpu}" if report.gpus else "GPUs not given"
    console.print(
        f"{report.subject}: {where}, {report.framework}, Bridge {report.release}, Megatron-Core {report.core_release}",
        markup=False,
    )
    hidden = 0
    for finding in report.findings:
        if finding.severity.value == "info" and not show_all:
            hidden += 1
            continue
        render_finding(console, finding)
    counts = {name: sum(finding.severity.value == name for finding in report.findings) for name in STYLES}
    text = ", ".join(f"{number} {name}" for name, number in counts.items() if number) or "nothing found"
    console.print(f"{'fails' if not report.ok else 'passes'}: {text}{' (--all shows info)' if hidden else ''}", markup=False)
    if report.corrected is not None:
        render_corrected(console, report.corrected)


def render_finding(console: Console, finding: Finding) -> None:
    """Write one finding with its ways out."""
    from rich.text import Text

    head = Text(f"{finding.severity.value}[{finding.rule}]", style=STYLES[finding.severity.value])
    noticed = "never noticed upstream" if finding.stage.value == "never" else f"noticed at {finding.stage.value}"
    console.print(head + Text(f": {finding.message} ({noticed})", style=""))
    for fix in finding.fixes:
        console.print(f"  fix: {render_fix(fix)}", markup=False)
    if finding.hint:
        console.print(f"  hint: {finding.hint}", markup=False)


def render_fix(fix: Fix) -> str:
    """Render a way out on one line."""
    from autorecipe.api.check import render_words

    layers = ", ".join(layer.value for layer in fix.layers)
    state = "passes" if fix.verified else "does not pass by itself"
    return f"{' '.join(render_words(fix.overrides))}  [{layers + '; ' if layers else ''}{state}]" + (
        f" {fix.note}" if fix.note else ""
    )


def render_corrected(console: Console, corrected: CorrectedRun) -> None:
    """Write the corrected run."""
    for step in corrected.steps:
        layers = ", ".join(f"{path}: {layer.value}" for path, layer in step.layers.items())
        console.print(
            f"fix {step.rule}: {' '.join(step.words)}  [{layers}]" + (f" {step.note}" if step.note else ""), markup=False
        )
    if corrected.remaining:
        rules = ", ".join(sorted({finding.rule for finding in corrected.remaining}))
        console.print(f"no verified fix for {rules}", markup=False)
    words = [*corrected.options, *corrected.overrides]
    console.print("corrected: " + (" ".join(words) if words else "(nothing to change)"), markup=False)
