"""`autorecipe checkpoint`: Hugging Face checkpoints in and out."""

from __future__ import annotations

from pathlib import Path

import click

from autorecipe.cli.output import emit, format_option

FOLDER = click.Path(path_type=Path)


@click.group(short_help="Convert checkpoints from and to Hugging Face.")
def checkpoint() -> None:
    """Convert checkpoints from and to Hugging Face."""


@checkpoint.command("import")
@click.option("--hf", type=FOLDER, required=True, metavar="DIR", help="Folder with config.json and safetensors.")
@click.option("--out", type=FOLDER, required=True, metavar="DIR", help="Checkpoint folder to make.")
@format_option
def import_(hf: Path, out: Path, output_format: str) -> None:
    """Turn a Hugging Face folder into a checkpoint that training starts from, at any layout.

    \b
    Try:  autorecipe checkpoint import --hf /models/llama3 --out /checkpoints/llama3
          run_recipe.py --recipe NAME checkpoint.pretrained_checkpoint=/checkpoints/llama3 ...
    """
    from autorecipe.api.checkpoint import import_checkpoint

    report = import_checkpoint(hf, out)
    emit(
        report,
        output_format=output_format,
        render=lambda console: console.print(
            f"{report['checkpoint']}: {report['family']}, {report['parameters']:,} parameters, {report['dtype']}\n"
            f"use it: checkpoint.pretrained_checkpoint={out}"
        ),
    )


@checkpoint.command("export")
@click.option(
    "--checkpoint", "saved", type=FOLDER, required=True, metavar="DIR", help="A checkpoint, or a folder of them: the newest."
)
@click.option("--hf", type=FOLDER, required=True, metavar="DIR", help="Folder whose config.json and tokenizer files are taken.")
@click.option("--out", type=FOLDER, required=True, metavar="DIR", help="Folder to make.")
@format_option
def export(saved: Path, hf: Path, out: Path, output_format: str) -> None:
    """Turn a checkpoint of any layout into a Hugging Face folder."""
    from autorecipe.api.checkpoint import export_checkpoint

    report = export_checkpoint(saved, hf, out)
    emit(
        report,
        output_format=output_format,
        render=lambda console: console.print(
            f"{report['folder']}: {report['family']}, {report['parameters']:,} parameters, {report['dtype']}"
        ),
    )
