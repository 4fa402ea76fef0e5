"""`autorecipe checkpoint`: Hugging Face checkpoints in and out, and adapters merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from autorecipe.cli.output import emit, format_option

FOLDER = click.Path(path_type=Path)
saved_option = click.option(
    "--checkpoint", "saved", type=FOLDER, required=True, metavar="DIR", help="A checkpoint, or a folder of them: the newest."
)
base_option = click.option(
    "--base",
    type=FOLDER,
    metavar="DIR",
    help="Weights that an adapter belongs to. Default: those that its training started from.",
)


@click.group(short_help="Convert checkpoints from and to Hugging Face; merge adapters.")
def checkpoint() -> None:
    """Convert checkpoints from and to Hugging Face, and merge adapters."""


@checkpoint.command("import")
@click.option("--hf", type=FOLDER, required=True, metavar="DIR", help="Folder with config.json and safetensors, or ORG/NAME.")
@click.option("--out", type=FOLDER, required=True, metavar="DIR", help="Checkpoint folder to make.")
@click.option("--peft", type=FOLDER, metavar="DIR", help="Folder of an adapter (peft package) to merge into the weights.")
@click.option("--vocab-size", type=int, metavar="N", help="Tokens of the checkpoint: rows of zeros are added up to N.")
@format_option
def import_(hf: Path, out: Path, peft: Path | None, vocab_size: int | None, output_format: str) -> None:
    """Turn a Hugging Face folder into a checkpoint that training starts from, at any layout.

    \b
    Try:  autorecipe checkpoint import --hf /models/llama3 --out /checkpoints/llama3
          run_recipe.py --recipe NAME checkpoint.pretrained_checkpoint=/checkpoints/llama3 ...
    """
    from autorecipe.api.checkpoint import import_checkpoint

    report = import_checkpoint(hf, out, peft=peft, vocab_size=vocab_size)
    merged = f", {report['merged_layers']} layers with the adapter merged in" if report["merged_layers"] else ""
    emit(
        report,
        output_format=output_format,
        render=lambda console: console.print(
            f"{report['checkpoint']}: {report['family']}, {report['parameters']:,} parameters, {report['dtype']}{merged}\n"
            f"use it: checkpoint.pretrained_checkpoint={out}{_notes(report)}"
        ),
    )


@checkpoint.command("export")
@saved_option
@click.option(
    "--hf", type=FOLDER, required=True, metavar="DIR", help="Folder, or ORG/NAME, whose config.json and tokenizer are taken."
)
@click.option("--out", type=FOLDER, required=True, metavar="DIR", help="Folder to make.")
@click.option("--merge", is_flag=True, help="Merge an adapter into its weights and export these, not the adapter.")
@click.option("--vocab-size", type=int, metavar="N", help="Tokens of the checkpoint: rows that config.json lacks are left out.")
@base_option
@format_option
def export(saved: Path, hf: Path, out: Path, merge: bool, vocab_size: int | None, base: Path | None, output_format: str) -> None:
    """Turn a checkpoint of any layout into a Hugging Face folder.

    A checkpoint of an adapter becomes a folder that the peft package loads.
    """
    from autorecipe.api.checkpoint import export_checkpoint

    report = export_checkpoint(saved, hf, out, base=base, merge=merge, vocab_size=vocab_size)
    what = {"weights": "", "merged": ", adapter merged in", "peft": ", an adapter for peft"}[report["format"]]
    emit(
        report,
        output_format=output_format,
        render=lambda console: console.print(
            f"{report['folder']}: {report['family']}, {report['parameters']:,} parameters, {report['dtype']}{what}"
            f"{_notes(report)}"
        ),
    )


def _notes(report: dict[str, Any]) -> str:
    return "".join(f"\nnote: {note}" for note in report["notes"])


@checkpoint.command("merge")
@saved_option
@click.option("--out", type=FOLDER, required=True, metavar="DIR", help="Checkpoint folder to make.")
@base_option
@format_option
def merge(saved: Path, out: Path, base: Path | None, output_format: str) -> None:
    """Merge an adapter into the weights it was trained on: one checkpoint, the same function."""
    from autorecipe.api.checkpoint import merge_checkpoint

    report = merge_checkpoint(saved, out, base=base)
    emit(
        report,
        output_format=output_format,
        render=lambda console: console.print(
            f"{report['checkpoint']}: {report['adapter']}, merged into {report['layers']} layers of {report['base']}"
            f"{_notes(report)}"
        ),
    )
