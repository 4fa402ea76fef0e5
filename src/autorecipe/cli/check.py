"""`autorecipe check`: every rule that a run breaks, worst first, with ways out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from autorecipe.cli.output import GPU_COUNT, emit, format_option

if TYPE_CHECKING:
    from rich.console import Console

    from autorecipe.schema import Finding, Fix
    from autorecipe.schema.finding import CheckReport, CorrectedRun

STYLES = {"error": "bold red", "warn": "yellow", "auto-fix": "cyan", "not-checked": "magenta", "info": "dim"}

WORDS = {
    "en": {
        "no-gpus": "GPUs not given",
        "error": "error",
        "warn": "warn",
        "auto-fix": "auto-fix",
        "not-checked": "not-checked",
        "info": "info",
        "fix": "fix",
        "hint": "hint",
        "note": "note",
        "verified": "passes",
        "unverified": "does not pass by itself",
        "passes": "passes",
        "fails": "fails",
        "nothing": "nothing found",
        "all": " (--all shows info)",
        "no-fix": "no verified fix for {rules}",
        "corrected": "corrected",
        "no-change": "(nothing to change)",
    },
    "ja": {
        "no-gpus": "GPU 台数は未指定",
        "error": "エラー",
        "warn": "警告",
        "auto-fix": "自動修正",
        "not-checked": "未検査",
        "info": "情報",
        "fix": "修正案",
        "hint": "ヒント",
        "note": "注意",
        "verified": "合格する",
        "unverified": "単独では合格しない",
        "passes": "合格",
        "fails": "不合格",
        "nothing": "指摘なし",
        "all": "(--all で情報も表示)",
        "no-fix": "検証済みの修正案がないもの: {rules}",
        "corrected": "修正後",
        "no-change": "(変更なし)",
    },
}
"""Words of the text form."""


@click.command()
@click.argument("target")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--gpus", type=GPU_COUNT, help="Number of GPUs.  [default: the count in the recipe's name]")
@click.option("--gpu", help="GPU type, such as h100.  [default: the type in the recipe's name]")
@click.option("--nodes", type=GPU_COUNT, help="Number of hosts; with --gpus it gives the GPUs of a host.")
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
@click.option("--lang", type=click.Choice(["en", "ja"]), default="en", show_default=True, help="Language of the findings.")
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
    report, lang = check_run(request, correct=options["fix"]), options["lang"]
    if lang == "ja":
        from autorecipe.rules.japanese.findings import say_report

        report = say_report(report)
    for note in report.notes:
        click.echo(f"{WORDS[lang]['note']}: {note}", err=True)
    emit(
        report,
        output_format=output_format,
        render=lambda console: render_report(console, report, show_all=options["show_all"], lang=lang),
    )
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


def render_report(console: Console, report: CheckReport, *, show_all: bool, lang: str = "en") -> None:
    """Write the text form of a report, whose sentences are in the same language."""
    words = WORDS[lang]
    where = f"{report.gpus} x {report.gpu}" if report.gpus else words["no-gpus"]
    console.print(
        f"{report.subject}: {where}, {report.framework}, Bridge {report.release}, Megatron-Core {report.core_release}",
        markup=False,
    )
    hidden = 0
    for finding in report.findings:
        if finding.severity.value == "info" and not show_all:
            hidden += 1
            continue
        render_finding(console, finding, lang=lang)
    counts = {name: sum(finding.severity.value == name for finding in report.findings) for name in STYLES}
    text = ", ".join(
        f"{number} {words[name]}" if lang == "en" else f"{words[name]} {number}" for name, number in counts.items() if number
    )
    verdict = words["passes" if report.ok else "fails"]
    console.print(f"{verdict}: {text or words['nothing']}{words['all'] if hidden else ''}", markup=False)
    if report.corrected is not None:
        render_corrected(console, report.corrected, lang=lang)


def render_finding(console: Console, finding: Finding, *, lang: str = "en") -> None:
    """Write one finding with its ways out."""
    from rich.text import Text

    words = WORDS[lang]
    head = Text(f"{words[finding.severity.value]}[{finding.rule}]", style=STYLES[finding.severity.value])
    console.print(head + Text(f": {finding.message} ({_noticed(finding, lang)})", style=""))
    for fix in finding.fixes:
        console.print(f"  {words['fix']}: {render_fix(fix, lang=lang)}", markup=False)
    if finding.hint:
        console.print(f"  {words['hint']}: {finding.hint}", markup=False)


def _noticed(finding: Finding, lang: str) -> str:
    if lang == "ja":
        from autorecipe.rules.japanese.findings import STAGES

        return STAGES[finding.stage]
    return "never noticed upstream" if finding.stage.value == "never" else f"noticed at {finding.stage.value}"


def render_fix(fix: Fix, *, lang: str = "en") -> str:
    """Render a way out on one line."""
    from autorecipe.api.check import render_words

    layers = ", ".join(layer.value for layer in fix.layers)
    state = WORDS[lang]["verified" if fix.verified else "unverified"]
    return f"{' '.join(render_words(fix.overrides))}  [{layers + '; ' if layers else ''}{state}]" + (
        f" {fix.note}" if fix.note else ""
    )


def render_corrected(console: Console, corrected: CorrectedRun, *, lang: str = "en") -> None:
    """Write the corrected run."""
    words = WORDS[lang]
    for step in corrected.steps:
        layers = ", ".join(f"{path}: {layer.value}" for path, layer in step.layers.items())
        console.print(
            f"{words['fix']} {step.rule}: {' '.join(step.words)}  [{layers}]" + (f" {step.note}" if step.note else ""),
            markup=False,
        )
    if corrected.remaining:
        rules = ", ".join(sorted({finding.rule for finding in corrected.remaining}))
        console.print(words["no-fix"].format(rules=rules), markup=False)
    typed = [*corrected.options, *corrected.overrides]
    console.print(f"{words['corrected']}: " + (" ".join(typed) if typed else words["no-change"]), markup=False)
