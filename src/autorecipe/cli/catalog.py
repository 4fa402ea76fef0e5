"""`autorecipe catalog`: build a release from upstream's source, and verify it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autorecipe.cli.output import emit_plain, format_option
from autorecipe.cli.table import print_table

if TYPE_CHECKING:
    from autorecipe.catalog.build import BuildOptions

_PATH = click.Path(path_type=Path)


@click.group()
def catalog() -> None:
    """Build, verify and list catalogs of upstream releases."""


def _source_options(function: Any) -> Any:
    for option in reversed(
        (
            click.option("--bridge", type=_PATH, required=True, help="Wheel or checkout of Megatron Bridge."),
            click.option(
                "--core", type=_PATH, help="Wheel or checkout of Megatron-Core; a checkout's submodule, or the installed one."
            ),
            click.option(
                "--hf-configs", type=_PATH, help="Directory of ORG/NAME/config.json files that win over the shipped ones."
            ),
            click.option("--no-hf-cache", is_flag=True, help="Leave the Hugging Face cache of this user alone."),
            click.option(
                "--time-limit", type=click.FloatRange(min=0.1), default=30.0, show_default=True, help="Seconds per recipe."
            ),
            click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Subprocesses."),
            click.option("--only", multiple=True, help="Evaluate only this recipe; repeatable."),
        )
    ):
        function = option(function)
    return function


@catalog.command()
@_source_options
@click.option(
    "--out",
    type=_PATH,
    default=Path("autorecipe-catalog"),
    show_default=True,
    help="Directory that gets RELEASE/; set AUTORECIPE_CATALOG to it to use the release.",
)
@format_option
def build(out: Path, output_format: str, **source: Any) -> None:
    """Evaluate every recipe of a Megatron Bridge and write its catalog."""
    from autorecipe.catalog.build import build_catalog
    from autorecipe.cli.progress import show_progress

    with show_progress("evaluating") as progress:
        report = build_catalog(_options(source), out, progress=progress)
    emit_plain(report, output_format=output_format, render=lambda: _print_build(report, out))


@catalog.command()
@_source_options
@click.option("--against", type=_PATH, help="Release directory to compare with; the shipped one of that release by default.")
@format_option
def verify(against: Path | None, output_format: str, **source: Any) -> None:
    """Build again and compare with what is there; exit code 1 if anything differs."""
    from autorecipe.catalog.build import verify_catalog
    from autorecipe.cli.progress import show_progress

    with show_progress("evaluating") as progress:
        report = verify_catalog(_options(source), against, progress=progress)
    emit_plain(
        report,
        output_format=output_format,
        render=lambda: click.echo(f"{report.directory} is what {report.meta['release']} gives ({report.seconds:.0f} s)"),
    )


@catalog.command()
@format_option
def releases(output_format: str) -> None:
    """List the releases at hand."""
    from autorecipe.catalog.store import open_catalog, shipped_releases

    rows = [dict(open_catalog(release).meta, directory=str(open_catalog(release).directory)) for release in shipped_releases()]
    emit_plain(rows, output_format=output_format, render=lambda: _print_releases(rows))


@catalog.command()
@click.argument("names", nargs=-1)
@format_option
def gpus(names: tuple[str, ...], output_format: str) -> None:
    """List the GPUs that are known, each fact with its source and kind: published, measured, derived or assumed."""
    from autorecipe.catalog.hardware import SAME_AS, find_gpu, load_gpus

    found = [find_gpu(name) for name in names or [name for name in load_gpus() if name not in SAME_AS]]
    emit_plain(found, output_format=output_format, render=lambda: _print_gpus(found))


def _print_gpus(gpus: list[Any]) -> None:
    for gpu in gpus:
        click.echo(f"{gpu.name}: {gpu.title}")
        rows = [
            (name, _quantity(name, getattr(gpu, name)), fact.evidence.value, fact.source) for name, fact in gpu.provenance.items()
        ]
        print_table(("fact", "value", "kind", "source"), rows)


def _quantity(name: str, value: Any) -> str:
    if name.endswith("memory_bytes"):
        return f"{value / 1e9:.1f} GB = {value / 2**30:.2f} GiB"
    if name.endswith("bandwidth"):
        return f"{value / 1e12:g} TB/s" if value >= 1e12 else f"{value / 1e9:g} GB/s"
    if isinstance(value, dict):
        return ", ".join(f"{precision} {flops / 1e12:g}" for precision, flops in value.items()) + " TFLOP/s"
    return str(value)


def _options(source: dict[str, Any]) -> BuildOptions:
    from autorecipe.catalog.build import BuildOptions

    return BuildOptions(
        bridge=source["bridge"],
        core=source["core"],
        hf_configs=source["hf_configs"],
        use_cache=not source["no_hf_cache"],
        seconds=source["time_limit"],
        jobs=source["jobs"],
        only=source["only"],
    )


def _print_build(report: Any, out: Path) -> None:
    meta = report.meta
    click.echo(f"{meta['release']}: {meta['names']} names, {meta['functions']} functions, {meta['aliases']} aliases")
    click.echo(f"with Megatron-Core {meta['core_release']}, in {report.seconds:.0f} s, at {report.directory}")
    for name, error in meta["failed"].items():
        click.echo(f"fails: {name}: {error.strip().splitlines()[0] if error.strip() else error}")
    for name, error in meta["broken_modules"].items():
        click.echo(f"not importable: {name}: {error}")
    if meta["collisions"]:
        click.echo(f"exported by both packages: {', '.join(meta['collisions'])}")
    click.echo(f"to use it: export AUTORECIPE_CATALOG={out}")


def _print_releases(rows: list[dict[str, Any]]) -> None:
    titles = ("release", "core", "names", "functions", "fail", "directory")
    cells = [
        (
            row["release"],
            row["core_release"],
            str(row["names"]),
            str(row["functions"]),
            str(len(row["failed"])),
            row["directory"],
        )
        for row in rows
    ]
    print_table(titles, cells, right=titles[2:5])
