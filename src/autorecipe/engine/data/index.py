"""Turns JSON Lines text into Megatron's .bin/.idx pair: `python -m autorecipe.engine.data.index --help`.

Purpose: one document per line, tokenized, ended by the end-of-document id, written through Megatron-Core's own builder.
The pair appears under its final names only when it is complete. Leaves out: cleaning and deduplication.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from autorecipe.engine.data.tokenizer import Tokenizer, load_tokenizer
from autorecipe.errors import AutorecipeError, EnvironmentProblem, NegativeAnswer, Problem, UsageError


@dataclass(frozen=True, kw_only=True)
class IndexReport:
    """What was written.

    Attributes:
        output: path prefix of the pair.
        documents: documents written.
        tokens: tokens written, end-of-document ids included.
        empty_lines: lines without text, skipped.
        token_dtype: integer type of the .bin file.
        vocab_size: of the tokenizer.
    """

    output: str
    documents: int
    tokens: int
    empty_lines: int
    token_dtype: str
    vocab_size: int


def write_index(
    inputs: Sequence[Path],
    output: str,
    *,
    tokenizer: Tokenizer,
    key: str = "text",
    append_eod: bool = True,
    overwrite: bool = False,
    progress: TextIO | None = None,
) -> IndexReport:
    """Tokenize JSON Lines files into one indexed dataset.

    Args:
        inputs: JSON Lines files; `-` reads standard input.
        output: path prefix; `.bin` and `.idx` are added.
        tokenizer: ids of the text.
        key: JSON key that holds the text.
        append_eod: end each document with the tokenizer's end-of-document id.
        overwrite: replace an existing pair.
        progress: where to report every 100,000 documents, or None.

    Raises:
        UsageError: a bad line or key, or an existing output.
        EnvironmentProblem: a file cannot be read or written.
        NegativeAnswer: no document was found.
    """
    import numpy
    from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

    final = {suffix: Path(output + suffix) for suffix in (".bin", ".idx")}
    existing = [str(path) for path in final.values() if path.exists()]
    if existing and not overwrite:
        raise UsageError(f"{', '.join(existing)} already exists", hint="choose another --output, or add --overwrite")
    partial = {suffix: Path(f"{output}.partial{os.getpid()}{suffix}") for suffix in final}
    dtype = DType.optimal_dtype(tokenizer.vocab_size)
    documents = tokens = empty = 0
    try:
        final[".bin"].parent.mkdir(parents=True, exist_ok=True)
        builder = IndexedDatasetBuilder(str(partial[".bin"]), dtype=dtype)
        for text in _read_texts(inputs, key):
            ids = tokenizer.tokenize(text) if text.strip() else []
            if not ids:
                empty += 1
                continue
            if append_eod:
                ids.append(tokenizer.eod)
            builder.add_document(numpy.asarray(ids, dtype=dtype), [len(ids)])
            documents += 1
            tokens += len(ids)
            if progress is not None and documents % 100_000 == 0:
                print(f"{documents} documents, {tokens} tokens", file=progress)
        if not documents:
            raise NegativeAnswer(f"no text under key {key!r} in {', '.join(map(str, inputs))}", hint="check --key")
        builder.finalize(str(partial[".idx"]))
        # The index goes last: a reader that finds it finds complete data.
        for suffix in (".bin", ".idx"):
            partial[suffix].replace(final[suffix])
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {output}: {error}", hint="check the folder and the free space") from error
    finally:
        for path in partial.values():
            path.unlink(missing_ok=True)
    return IndexReport(
        output=output,
        documents=documents,
        tokens=tokens,
        empty_lines=empty,
        token_dtype=numpy.dtype(dtype).name,
        vocab_size=tokenizer.vocab_size,
    )


def _read_texts(inputs: Sequence[Path], key: str) -> Iterator[str]:
    """Yield the text of every line.

    Raises:
        UsageError: a line that is not JSON, or has no text under the key, with its file and number.
        EnvironmentProblem: a file cannot be read.
    """
    for path in inputs:
        try:
            file = sys.stdin if str(path) == "-" else path.open(encoding="utf-8")
        except OSError as error:
            raise EnvironmentProblem(f"cannot read {path}: {error.strerror}", hint="check the path") from None
        with file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    yield ""
                    continue
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise UsageError(f"{path}:{number}: not JSON: {error}", hint="one JSON object per line") from None
                if not isinstance(row, dict) or not isinstance(row.get(key), str):
                    keys = ", ".join(map(repr, row)) if isinstance(row, dict) else type(row).__name__
                    raise UsageError(
                        Problem(
                            path=f"{path}:{number}",
                            code="no-text",
                            message=f"has no text under key {key!r}; it has {keys}",
                            hint="choose the key with --key",
                        )
                    )
                yield row[key]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the report goes to standard output as JSON, messages to standard error."""
    parser = argparse.ArgumentParser(prog="python -m autorecipe.engine.data.index", description=__doc__)
    parser.add_argument("inputs", nargs="+", type=Path)
    parser.add_argument("--output", required=True)
    parser.add_argument("--key", default="text")
    parser.add_argument("--tokenizer", default="ByteTokenizer")
    parser.add_argument("--tokenizer-model")
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--no-eod", action="store_true")
    parser.add_argument("--overwrite", action="store_true")
    given = parser.parse_args(arguments)
    try:
        report = write_index(
            given.inputs,
            given.output,
            tokenizer=load_tokenizer(given.tokenizer, given.tokenizer_model, given.vocab_size),
            key=given.key,
            append_eod=not given.no_eod,
            overwrite=given.overwrite,
            progress=sys.stderr,
        )
    except AutorecipeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(asdict(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
