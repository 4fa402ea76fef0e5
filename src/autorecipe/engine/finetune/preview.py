"""Shows what a run would learn from its rows: `python -m autorecipe.engine.finetune.preview`, a JSON request on standard input.

The request: `values` (resolved configuration), `rows` (examples to show), `max_bad_rows`. The answer, on standard output, is the
report of `preview`, or `problems` with the exit code of their error. Needs neither torch nor Megatron-Core.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy

from autorecipe.engine.data.tokenizer import HuggingFaceTokenizer, Tokenizer, resolve_vocabulary
from autorecipe.engine.finetune.packing import pack_rows, padded_lengths
from autorecipe.engine.finetune.prebuilt import build_pack_store
from autorecipe.engine.finetune.sources import Source
from autorecipe.engine.finetune.spec import FinetuneSpec, read_finetune_spec
from autorecipe.engine.finetune.store import Store, build_store
from autorecipe.errors import AutorecipeError
from autorecipe.schema.run import RunConfig

END = "<end>"
"""Shown for the end-of-document id of tokenizers that give it no text."""


def preview(run: RunConfig, *, rows: int, max_bad_rows: int = 0) -> dict[str, Any]:
    """Tokenize the rows of a run and describe them.

    Args:
        run: resolved configuration.
        rows: training rows to show.
        max_bad_rows: rows of each source that may be left out.

    Returns:
        `data` (one line), `splits` (each with counts, lengths and packs), `notes`, and `examples`: for each row its pieces,
        each a text and whether it is learned.

    Raises:
        AutorecipeError: fields, files or rows that would stop the run.
    """
    spec = read_finetune_spec(run)
    tokenizer = resolve_vocabulary(run, mock=False).tokenizer
    named = {"training": spec.train, "validation": spec.validation, "test": spec.test}
    sources = {name: source for name, source in named.items() if source is not None}
    packing = spec.packing
    made = {"training": packing.train_files, "validation": packing.validation_files} if packing is not None else {}
    stores = {name: _open(source, spec, tokenizer, max_bad_rows) for name, source in sources.items() if not made.get(name)}
    for name, files in made.items():
        if files is not None and packing is not None:
            stores[name] = Store(build_pack_store(files, spec, packing, eod=tokenizer.eod, max_bad_rows=max_bad_rows))
    train = stores["training"]
    return {
        "data": spec.render(),
        "splits": {name: _describe(store, spec, packs=name != "test") for name, store in stores.items()},
        "held_out": spec.held_out,
        "notes": [note for store in stores.values() for note in store.report.notes(spec.row_limit)],
        "examples": [list(_pieces(*train.row(index), tokenizer)) for index in range(min(rows, len(train)))],
    }


def _open(source: Source, spec: FinetuneSpec, tokenizer: Tokenizer, max_bad_rows: int) -> Store:
    return Store(build_store(source, spec, tokenizer, max_bad_rows=max_bad_rows, fresh=spec.rewrite))


def _describe(store: Store, spec: FinetuneSpec, *, packs: bool) -> dict[str, Any]:
    lengths = store.lengths()
    described: dict[str, Any] = {
        "rows": len(store),
        "tokens": store.report.tokens,
        "learned": store.report.learned,
        "median_tokens": int(numpy.median(lengths)),
        "longest_tokens": int(lengths.max()),
        "bad_rows": list(store.report.bad_rows),
        "cut": store.report.cut,
        "unanswered": store.report.unanswered,
    }
    if spec.packing is not None and packs:
        taken = padded_lengths(lengths, spec.packing)
        packed = store.packs() or pack_rows(taken.tolist(), size=spec.packing.length, seed=spec.seed)
        described["packs"] = len(packed)
        described["filled"] = float(taken.sum() / (len(packed) * spec.packing.length))
    return described


def _pieces(ids: numpy.ndarray, learned: numpy.ndarray, tokenizer: Tokenizer) -> Iterator[dict[str, Any]]:
    """Yield runs of learned and of other tokens as text, special tokens by name."""
    for is_learned, group in itertools.groupby(zip(ids.tolist(), learned.tolist(), strict=True), key=lambda pair: pair[1]):
        numbers = [number for number, _ in group]
        yield {"text": _show(numbers, tokenizer), "learned": is_learned, "tokens": len(numbers)}


def _show(numbers: list[int], tokenizer: Tokenizer) -> str:
    if isinstance(tokenizer, HuggingFaceTokenizer):
        return str(tokenizer.inner.decode(numbers, skip_special_tokens=False))
    if numbers[-1] == tokenizer.eod:
        return tokenizer.detokenize(numbers[:-1]) + END
    return tokenizer.detokenize(numbers)


def main() -> int:
    """Answer the request and return the exit code."""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # libraries print
            request: Mapping[str, Any] = json.load(sys.stdin)
            run = RunConfig(values=request["values"])
            report = preview(run, rows=int(request["rows"]), max_bad_rows=int(request["max_bad_rows"]))
    except AutorecipeError as error:
        print(json.dumps({"problems": [asdict(problem) for problem in error.problems]}))
        return error.exit_code
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
