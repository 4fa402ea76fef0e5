"""`autorecipe data`: prepare training data."""

from __future__ import annotations

import click

from autorecipe.cli.output import emit, format_option


@click.group(short_help="Prepare training data.")
def data() -> None:
    """Prepare training data."""


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
