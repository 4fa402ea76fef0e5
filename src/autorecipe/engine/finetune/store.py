"""Tokenized copies of rows on disk, mapped into memory by every rank; made once, published whole. Start at `build_store`.

A copy is a folder: `ids.bin` (int32), `learned.bin` (bool), `ends.npy` (int64, where each row ends) and `report.json`. Its name
is a digest of everything that decides its content. Rows that cannot be read are counted and listed, never dropped in silence.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy

from autorecipe.engine.data.tokenizer import Tokenizer
from autorecipe.engine.finetune.examples import RowError
from autorecipe.engine.finetune.rows import Row, RowStream, open_rows
from autorecipe.engine.finetune.sources import Source
from autorecipe.engine.finetune.spec import FinetuneSpec
from autorecipe.engine.finetune.tokenize import RowTokenizer, TokenizedRow
from autorecipe.errors import EnvironmentProblem, NegativeAnswer, Problem

FORMAT = 1
PACK_ENDS = "packs.npy"
"""Where each pack ends, counted in rows (int64); only in copies of packs that were made before."""

SHOWN_BAD_ROWS = 20
"""Bad rows that a message lists; the others are counted."""

CACHE = "AUTORECIPE_CACHE"
ROWS_FOR_A_WORKER = 20_000
"""Rows that are worth a further process where the number is left to the engine."""

CHUNK = 256
_PROBES = ("The quick brown fox. 0123 \n\t", "naïve 日本語")


@dataclass(frozen=True, kw_only=True)
class StoreReport:
    """What a tokenized copy holds.

    Attributes:
        source: where the rows came from.
        rows: rows in it.
        bad: rows left out.
        bad_rows: the first of them, each with place and reason.
        cut: rows that were longer than the limit.
        unanswered: rows in which no token is learned: they take their turn and teach nothing.
        tokens: ids in it.
        learned: ids that are learned.
        plain_chat: whether chats were laid out plainly for want of a template.
    """

    source: str
    rows: int = 0
    bad: int = 0
    bad_rows: tuple[str, ...] = ()
    cut: int = 0
    unanswered: int = 0
    tokens: int = 0
    learned: int = 0
    plain_chat: bool = False

    def notes(self, limit: int) -> Iterator[str]:
        """Yield what the user must know.

        Args:
            limit: token ids that a row may have.
        """
        share = f"{self.learned / self.tokens:.0%}" if self.tokens else "none"
        yield f"{self.source}: {self.rows} rows, {self.tokens} tokens, {share} of them learned"
        if self.bad:
            yield f"{self.source}: {self.bad} rows LEFT OUT, as --max-bad-rows allows: {_list_bad(self.bad_rows, self.bad)}"
        if self.cut:
            yield f"{self.source}: {self.cut} rows were longer than {limit} tokens and are cut"
        if self.unanswered:
            yield f"{self.source}: {self.unanswered} rows have no answer left to learn; they take their turn and teach nothing"
        if self.plain_chat:
            yield f"{self.source}: the tokenizer has no chat template: turns become `Name: text`, answers end with its end id"


class Store:
    """Rows of a tokenized copy."""

    def __init__(self, path: Path) -> None:
        """Map it.

        Raises:
            EnvironmentProblem: it is not here, or incomplete.
        """
        try:
            report = json.loads((path / "report.json").read_text(encoding="utf-8"))
            self._path = path
            self._ends = numpy.load(path / "ends.npy")
            shape = (int(self._ends[-1]) if len(self._ends) else 0,)
            self._ids = numpy.memmap(path / "ids.bin", dtype=numpy.int32, mode="r", shape=shape) if shape[0] else numpy.zeros(0)
            self._learned = numpy.memmap(path / "learned.bin", dtype=bool, mode="r", shape=shape) if shape[0] else numpy.zeros(0)
        except (OSError, ValueError) as error:
            message, hint = f"cannot be read: {error}", "remove it; it is made again"
            raise EnvironmentProblem(Problem(path=str(path), code="data-unreadable", message=message, hint=hint)) from None
        self.report = StoreReport(**{**report, "bad_rows": tuple(report["bad_rows"])})

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._ends)

    def lengths(self) -> numpy.ndarray:
        """Return the ids of each row; int64."""
        return numpy.diff(self._ends, prepend=0)

    def packs(self) -> list[list[int]]:
        """Return the rows of each pack; empty where the copy was made of rows."""
        if not (self._path / PACK_ENDS).is_file():
            return []
        return [list(range(*pair)) for pair in itertools.pairwise([0, *numpy.load(self._path / PACK_ENDS).tolist()])]

    def row(self, index: int) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return the ids of a row, and which of them are learned."""
        begin, end = int(self._ends[index - 1]) if index else 0, int(self._ends[index])
        return self._ids[begin:end], self._learned[begin:end]


@dataclass(frozen=True, kw_only=True)
class TokenizerRecipe:
    """How another process loads the tokenizer: kind, name and size, as in the configuration, and a template of its own."""

    kind: str
    model: str | None
    vocab_size: int | None
    template: str | None

    def load(self) -> Tokenizer:
        """Load it."""
        from autorecipe.engine.data.tokenizer import HuggingFaceTokenizer, load_tokenizer

        tokenizer = load_tokenizer(self.kind, self.model, self.vocab_size)
        if self.template and isinstance(tokenizer, HuggingFaceTokenizer):
            tokenizer.set_chat_template(self.template)
        return tokenizer


def describe_tokenizer(tokenizer: Tokenizer) -> TokenizerRecipe:
    """Return how to load the same tokenizer again."""
    from autorecipe.engine.data.tokenizer import HuggingFaceTokenizer

    if isinstance(tokenizer, HuggingFaceTokenizer):
        template = getattr(tokenizer.inner, "chat_template", None)
        return TokenizerRecipe(kind="HuggingFaceTokenizer", model=tokenizer.name, vocab_size=None, template=template)
    return TokenizerRecipe(kind=type(tokenizer).__name__, model=None, vocab_size=tokenizer.vocab_size, template=None)


def cache_root(spec: FinetuneSpec) -> Path:
    """Return the folder of tokenized copies: of the configuration, else of the environment, else of the user."""
    if spec.root is not None:
        return spec.root
    base = os.environ.get(CACHE) or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / ("" if os.environ.get(CACHE) else "autorecipe") / "finetune"


def build_store(source: Source, spec: FinetuneSpec, tokenizer: Tokenizer, *, max_bad_rows: int, fresh: bool = False) -> Path:
    """Make the tokenized copy of a source where it is not here yet; returns its folder.

    Args:
        source: rows.
        spec: what becomes of them.
        tokenizer: of the run.
        max_bad_rows: rows that may be left out.
        fresh: make it although it is here.

    Raises:
        EnvironmentProblem: the rows cannot be had, or the folder cannot be written.
        NegativeAnswer: more rows cannot be read than may be left out (listing them), or none can.
    """
    stream = open_rows(source)
    tokenize = RowTokenizer(tokenizer, spec.form, schema=source.schema, limit=spec.row_limit)
    path = cache_root(spec) / _digest(source, spec, stream, tokenizer)
    return make_copy(
        path,
        lambda folder: _write(folder, stream, tokenize, tokenizer, spec, source),
        max_bad_rows=max_bad_rows,
        fresh=fresh,
    )


def make_copy(path: Path, write: Callable[[Path], StoreReport], *, max_bad_rows: int, fresh: bool = False) -> Path:
    """Make a copy where it is not here yet, and publish it whole; returns its folder.

    Args:
        path: its name.
        write: fills a folder, but for the report, which it returns.
        max_bad_rows: rows that may be left out.
        fresh: make it although it is here.

    Raises:
        EnvironmentProblem: the folder cannot be written.
        NegativeAnswer: more rows cannot be read than may be left out (listing them), or none can.
    """
    if (path / "report.json").is_file() and not fresh:
        _judge(Store(path).report, max_bad_rows)
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{path.name}.partial-", dir=path.parent))
    except OSError as error:
        hint = f"set {CACHE} or dataset.hf_output_root to a folder that can be written"
        raise EnvironmentProblem(f"cannot write {path.parent}: {error.strerror}", hint=hint) from None
    try:
        report = write(partial)
        _judge(report, max_bad_rows)
        (partial / "report.json").write_text(json.dumps(asdict(report)), encoding="utf-8")
        _publish(partial, path)
    except OSError as error:
        hint = "free some space, or set AUTORECIPE_CACHE to another disk"
        raise EnvironmentProblem(f"cannot write {partial}: {error.strerror}", hint=hint) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return path


def _publish(partial: Path, path: Path) -> None:
    """Give a finished copy its name; where another process was faster, its copy stays."""
    aside = partial.with_name(f"{partial.name}.old")
    with contextlib.suppress(FileNotFoundError):
        path.rename(aside)
    try:
        partial.rename(path)
    except OSError:
        if not (path / "report.json").is_file():
            raise
    shutil.rmtree(aside, ignore_errors=True)


def _digest(source: Source, spec: FinetuneSpec, stream: RowStream, tokenizer: Tokenizer) -> str:
    """Return a name that changes with everything that decides the tokens of a source."""
    recipe = describe_tokenizer(tokenizer)
    probes = [tokenizer.tokenize(text) for text in _PROBES] if recipe.kind != "NullTokenizer" else []
    content = {
        "format": FORMAT,
        "rows": stream.fingerprint,
        "schema": source.schema,
        "form": [type(spec.form).__name__, asdict(spec.form)],
        "limit": spec.row_limit,
        "tokenizer": [asdict(recipe), tokenizer.vocab_size, tokenizer.eod, probes],
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    name = "".join(letter if letter.isalnum() else "-" for letter in Path(source.path).name)[:40]
    return f"{name}-{digest}"


def _judge(report: StoreReport, max_bad_rows: int) -> None:
    if report.bad > max_bad_rows:
        listed = "\n  ".join(report.bad_rows)
        more = f"\n  ... and {report.bad - len(report.bad_rows)} more" if report.bad > len(report.bad_rows) else ""
        noun = "row" if report.bad == 1 else "rows"
        message = f"{report.bad} {noun} of {report.rows + report.bad} cannot be read:\n  {listed}{more}"
        hint = f"repair them, or add --max-bad-rows {report.bad} to train without them"
        raise NegativeAnswer(Problem(path=report.source, code="bad-rows", message=message, hint=hint))
    if not report.rows:
        raise NegativeAnswer(
            Problem(path=report.source, code="no-rows", message="holds no row", hint="give another file or split")
        )


def _list_bad(rows: Sequence[str], count: int) -> str:
    return "; ".join(rows[:5]) + (f"; and {count - 5} more" if count > 5 else "")


def _write(
    folder: Path, stream: RowStream, tokenize: RowTokenizer, tokenizer: Tokenizer, spec: FinetuneSpec, source: Source
) -> StoreReport:
    counts = {"rows": 0, "bad": 0, "cut": 0, "unanswered": 0, "tokens": 0, "learned": 0}
    bad_rows: list[str] = []
    ends: list[int] = []
    workers = _worker_count(spec, stream.count)
    with (folder / "ids.bin").open("wb") as ids_file, (folder / "learned.bin").open("wb") as learned_file:
        for outcome in _tokenize_all(stream, tokenize, tokenizer, spec, source, workers):
            if isinstance(outcome, str):
                counts["bad"] += 1
                if len(bad_rows) < SHOWN_BAD_ROWS:
                    bad_rows.append(outcome)
                continue
            ids_file.write(outcome.ids.tobytes())
            learned_file.write(outcome.learned.tobytes())
            learned = int(outcome.learned[1:].sum())
            counts["rows"] += 1
            counts["cut"] += outcome.was_cut
            counts["unanswered"] += learned == 0
            counts["tokens"] += len(outcome.ids)
            counts["learned"] += learned
            ends.append(counts["tokens"])
    numpy.save(folder / "ends.npy", numpy.array(ends, dtype=numpy.int64))
    plain = tokenize.chat is not None and tokenize.chat.is_plain
    return StoreReport(source=source.render(), bad_rows=tuple(bad_rows), plain_chat=plain, **counts)


def _worker_count(spec: FinetuneSpec, rows: int) -> int:
    if spec.tokenizer_workers >= 0:
        return max(1, spec.tokenizer_workers)
    share = max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    return min(share, 16, 1 + rows // ROWS_FOR_A_WORKER)


def _tokenize_all(
    stream: RowStream, tokenize: RowTokenizer, tokenizer: Tokenizer, spec: FinetuneSpec, source: Source, workers: int
) -> Iterator[TokenizedRow | str]:
    """Yield each row's tokens in order, or place and reason where it cannot be read."""
    if workers == 1:
        for row in stream.read():
            yield _tokenize_row(row, tokenize)
        return
    given = (describe_tokenizer(tokenizer), spec, source.schema)
    with multiprocessing.get_context("spawn").Pool(workers, _start_worker, given) as pool:
        for chunk in pool.imap(_tokenize_chunk, _chunks(stream.read())):
            yield from chunk


def _chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _tokenize_row(row: Row, tokenize: RowTokenizer) -> TokenizedRow | str:
    if row.problem:
        return f"{row.where}: {row.problem}"
    try:
        return tokenize(row.value)
    except RowError as error:
        return f"{row.where}: {error}"


_worker: dict[str, Any] = {}


def _start_worker(recipe: TokenizerRecipe, spec: FinetuneSpec, schema: str | None) -> None:
    _worker["tokenize"] = RowTokenizer(recipe.load(), spec.form, schema=schema, limit=spec.row_limit)


def _tokenize_chunk(rows: list[Row]) -> list[TokenizedRow | str]:
    return [_tokenize_row(row, _worker["tokenize"]) for row in rows]
