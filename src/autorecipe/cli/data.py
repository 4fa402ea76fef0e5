"""`autorecipe data`: prepare training data, and look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from autorecipe.cli.output import emit, format_option

if TYPE_CHECKING:
    from rich.console import Console


@click.group(short_help="Prepare training data, and look at it.")
def data() -> None:
    """Prepare training data, and look at it."""


@data.command("index")
@click.argument("inputs", nargs=-1, required=True, metavar="TEXT.jsonl...")
@click.option("--output", required=True, metavar="PREFIX", help="Path prefix of the pair; .bin and .idx are added.")
@click.option("--key", default="text", show_default=True, help="JSON key that holds the text.")
@click.option(
    "--tokenizer",
    type=click.Choice(["ByteTokenizer", "NullTokenizer", "HuggingFaceTokenizer"]),
    default="ByteTokenizer",
    show_default=True,
    help="Bytes need no file; NullTokenizer reads numbers; HuggingFaceTokenizer needs --tokenizer-model.",
)
@click.option("--tokenizer-model", metavar="NAME|FOLDER", help="Tokenizer of the transformers package.")
@click.option("--vocab-size", type=int, help="Vocabulary size, for NullTokenizer.")
@click.option("--no-eod", is_flag=True, help="Do not end documents with the end-of-document id.")
@click.option("--overwrite", is_flag=True, help="Replace an existing pair.")
@format_option
def index(inputs: tuple[str, ...], output: str, output_format: str, **options: object) -> None:
    """Turn JSON Lines text into Megatron's .bin/.idx pair, one document per line.

    \b
    Try:  autorecipe data index corpus.jsonl --output data/corpus
          run_recipe.py --recipe NAME --dataset megatron-indexed --dataset-path data/corpus ...
    """
    from autorecipe.api.data import index_text

    report = index_text(inputs, output, **options)  # type: ignore[arg-type]
    emit(
        report,
        output_format=output_format,
        render=lambda console: console.print(
            f"{report['output']}.bin and .idx: {report['documents']:,} documents, {report['tokens']:,} tokens "
            f"({report['token_dtype']}, vocabulary {report['vocab_size']:,}), {report['empty_lines']:,} empty lines skipped\n"
            f"use it: --dataset megatron-indexed --dataset-path {report['output']}"
        ),
    )


@data.command("preview")
@click.argument("recipe")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--dataset", metavar="PRESET", help="squad, tulu3, gsm8k, local-jsonl ...  [default: the recipe's own]")
@click.option("--dataset-path", "paths", multiple=True, metavar="FOLDER|FILE", help="Where the rows lie, if not on a hub.")
@click.option("--rows", type=click.IntRange(min=0), default=2, show_default=True, help="Rows to show.")
@click.option("--max-bad-rows", type=click.IntRange(min=0), default=0, show_default=True, help="Rows that may be left out.")
@format_option
def preview(
    recipe: str,
    overrides: tuple[str, ...],
    dataset: str | None,
    paths: tuple[str, ...],
    rows: int,
    max_bad_rows: int,
    output_format: str,
) -> None:
    """Show what fine-tuning would learn: rows as tokens, what is learned between « and », rows that cannot be read.

    \b
    Try:  autorecipe data preview llama3_8b_sft_config --dataset squad
          autorecipe data preview llama3_8b_sft_config --dataset local-jsonl --dataset-path rows.jsonl
    """
    from autorecipe.api.finetune import preview_data

    report = preview_data(recipe, overrides, dataset=dataset, paths=paths, rows=rows, max_bad_rows=max_bad_rows)
    emit(report, output_format=output_format, render=lambda console: _render_preview(report, console))


def _render_preview(report: dict[str, Any], console: Console) -> None:
    console.print(report["data"], markup=False)
    for name, split in report["splits"].items():
        packs = f", {split['packs']:,} packs {split['filled']:.0%} filled" if "packs" in split else ""
        console.print(
            f"{name}: {split['rows']:,} rows of {split['median_tokens']} tokens (median; the longest has "
            f"{split['longest_tokens']}), {split['learned'] / split['tokens']:.0%} learned{packs}",
            markup=False,
        )
    for note in report["notes"]:
        console.print(f"note: {note}", markup=False)
    for number, pieces in enumerate(report["examples"]):
        console.print(f"\nrow {number}, what is learned between « and »:", markup=False)
        text = "".join(f"«{piece['text']}»" if piece["learned"] else piece["text"] for piece in pieces)
        console.print(text, markup=False)
