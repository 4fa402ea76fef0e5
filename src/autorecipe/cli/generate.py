"""`autorecipe generate`: what a checkpoint makes of a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autorecipe.cli.output import emit, format_option

if TYPE_CHECKING:
    from rich.console import Console


@click.command(short_help="Complete prompts with a checkpoint, to see what training did.")
@click.option(
    "--checkpoint",
    "saved",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="A checkpoint of any layout, or a folder of them: the newest. Adapters load with their base.",
)
@click.option("--prompt", "prompts", multiple=True, required=True, metavar="TEXT", help="Text to complete; may be given again.")
@click.option(
    "--tokenizer",
    metavar="NAME",
    help="ByteTokenizer, NullTokenizer, or a Hugging Face name or folder. Default: the tokenizer of the training.",
)
@click.option("--max-new-tokens", type=click.IntRange(min=1), default=64, show_default=True, help="Most tokens to add.")
@click.option(
    "--base",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Weights that an adapter belongs to. Default: those that its training started from.",
)
@click.option("--compare", is_flag=True, help="Complete with the weights that training started from, too.")
@click.option(
    "--chat", is_flag=True, help="Each prompt is what a user says: laid out by the chat template, as fine-tuning does; answered."
)
@format_option
def generate(
    saved: Path,
    prompts: tuple[str, ...],
    tokenizer: str | None,
    max_new_tokens: int,
    base: Path | None,
    compare: bool,
    chat: bool,
    output_format: str,
) -> None:
    """Complete prompts greedily with a checkpoint, on one GPU or on the CPU.

    \b
    Try:  autorecipe generate --checkpoint /runs/sft/checkpoints --prompt "The capital of France is" --compare
    """
    from autorecipe.api.generate import generate_text

    report = generate_text(
        saved, prompts, max_new_tokens=max_new_tokens, tokenizer=tokenizer, base=base, compare=compare, chat=chat
    )
    emit(report, output_format=output_format, render=lambda console: _render(report, console))


def _render(report: dict[str, Any], console: Console) -> None:
    adapter = f", {report['adapter']} on {report['base']}" if report["adapter"] else ""
    console.print(f"{report['checkpoint']}{adapter}", markup=False)
    for row in report["completions"]:
        console.print(f"\nprompt: {row['prompt']}", markup=False)
        if "before" in row:
            console.print(f"before: {row['before']['text']}{_end(row['before'])}", markup=False)
        console.print(f"answer: {row['completion']['text']}{_end(row['completion'])}", markup=False)


def _end(completion: dict[str, Any]) -> str:
    return "" if completion["ended"] else " ..."
