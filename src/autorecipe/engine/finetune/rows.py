"""Reads the rows of a source, each with the place it stands at: local JSON Lines by line, everything else through `datasets`.

Nothing is judged here: a line that is no JSON becomes a row with a problem. Start reading at `open_rows`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autorecipe.engine.finetune.sources import LOCAL_COPIES, Source
from autorecipe.errors import EnvironmentProblem, Problem, UsageError

SPLIT_FILES = {
    "train": ("training", "train"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}
"""Names of files that hold a split, beside the split's own name."""

SUFFIXES = (".jsonl", ".json", ".parquet")
_SPLIT = re.compile(r"(?P<name>\w+)(?:\[(?P<first>-?\d+%?)?:(?P<last>-?\d+%?)?\])?")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row.

    Attributes:
        where: file and line, or data set and number.
        value: what stands there.
        problem: why it cannot be read; empty where it can.
    """

    where: str
    value: Any = None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class RowStream:
    """Rows that can be read once or more.

    Attributes:
        fingerprint: changes where the rows may have changed.
        count: rows there are.
        read: begins at the first row.
    """

    fingerprint: str
    count: int
    read: Callable[[], Iterator[Row]]


def open_rows(source: Source) -> RowStream:
    """Find a source's files or data set; reads no row of a local JSON Lines file yet.

    Raises:
        EnvironmentProblem: it is not here and cannot be had.
        UsageError: a split expression that cannot be read.
    """
    path = Path(source.path)
    if source.is_local and (path.is_file() or not _is_saved_by_datasets(path)):
        name = _SPLIT.match(source.split)
        files = [path] if path.is_file() else _find_files(path, name["name"] if name else "train", source)
        if all(file.suffix in (".jsonl", ".json") for file in files):
            return _slice_rows(_open_json(files), source)
        return _open_table([str(file) for file in files], source)
    if not source.is_local and (path.is_absolute() or path.suffix in SUFFIXES):
        raise EnvironmentProblem(Problem(path=source.path, code="data-missing", message="is not here", hint="correct the path"))
    return _open_hub(source, saved=source.is_local)


def _is_saved_by_datasets(folder: Path) -> bool:
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def _find_files(folder: Path, split: str, source: Source) -> list[Path]:
    """Return the files of a split in a folder (and its `data` folder), sorted."""
    if not folder.is_dir():
        hint = f"correct the path, or put the rows into {folder}"
        raise EnvironmentProblem(Problem(path=str(folder), code="data-missing", message="is not here", hint=hint))
    places = [folder, folder / "data"]
    everything = sorted(file for place in places if place.is_dir() for file in place.iterdir() if file.suffix in SUFFIXES)
    logical = "train" if split.startswith("train") else split
    for name in dict.fromkeys((split, *SPLIT_FILES.get(logical, ()))):
        for suffix in SUFFIXES:
            found = [file for file in everything if file.suffix == suffix and re.fullmatch(rf"{name}(-.*)?", file.stem)]
            if found:
                return found
    if logical == "train" and len(everything) == 1:
        return everything
    present = ", ".join(file.name for file in everything[:8]) or "no .jsonl, .json or .parquet file"
    message = f"holds no file of split {split!r} ({present})"
    hint = f"name one {SPLIT_FILES.get(logical, (split,))[0]}.jsonl, one row a line"
    raise EnvironmentProblem(Problem(path=source.path, code="data-missing", message=message, hint=hint))


def _open_json(files: Sequence[Path]) -> RowStream:
    """Open JSON Lines, or files that hold one list."""
    listed = {file: rows for file in files if (rows := _read_list(file)) is not None}

    def read() -> Iterator[Row]:
        for file in files:
            if file in listed:
                yield from (Row(where=f"{file}[{index}]", value=value) for index, value in enumerate(listed[file]))
                continue
            with file.open("rb") as handle:
                for number, line in enumerate(handle, start=1):
                    if line.strip():
                        yield _parse_line(line, f"{file}:{number}")

    stamps = []
    count = 0
    for file in files:
        try:
            status = file.stat()
            if file in listed:
                count += len(listed[file])
            else:
                with file.open("rb") as handle:
                    count += sum(1 for line in handle if line.strip())
        except OSError as error:
            raise EnvironmentProblem(f"cannot read {file}: {error.strerror}", hint="check the path and its permissions") from None
        stamps.append([str(file.resolve()), status.st_size, status.st_mtime_ns])
    return RowStream(fingerprint=json.dumps(stamps), count=count, read=read)


def _read_list(file: Path) -> list[Any] | None:
    """Return the rows of a .json file that is one list; None for JSON Lines."""
    if file.suffix != ".json":
        return None
    try:
        with file.open("rb") as handle:
            if handle.read(64).lstrip()[:1] != b"[":
                return None
        whole = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise EnvironmentProblem(f"cannot read {file}: {error.strerror}", hint="check the path and its permissions") from None
    except ValueError as error:
        raise EnvironmentProblem(
            Problem(
                path=str(file),
                code="data-unreadable",
                message=f"is not JSON: {error}",
                hint="one list of rows, or one row a line",
            )
        ) from None
    return whole if isinstance(whole, list) else [whole]


def _parse_line(line: bytes, where: str) -> Row:
    try:
        return Row(where=where, value=json.loads(line.decode("utf-8")))
    except UnicodeDecodeError as error:
        return Row(where=where, problem=f"is not UTF-8 (byte {error.start})")
    except json.JSONDecodeError as error:
        return Row(where=where, problem=f"is not JSON: {error.msg} at character {error.pos + 1}")


def _open_table(files: list[str], source: Source) -> RowStream:
    """Read local files of another format through `datasets`."""
    kind = {".parquet": "parquet", ".json": "json", ".jsonl": "json"}[Path(files[0]).suffix]
    local = Source(path=kind, split="train", load_options={"data_files": {"train": files}}, is_local=False)
    return _slice_rows(_open_hub(local, saved=False, called=source.path), source)


def _open_hub(source: Source, *, saved: bool, called: str = "") -> RowStream:
    try:
        import datasets
    except ImportError:
        message = f"data set {source.path!r} needs the datasets package"
        raise EnvironmentProblem(message, hint="pip install 'autorecipe[hf]', or give local .jsonl files") from None
    datasets.disable_progress_bars()
    try:
        if saved:
            whole = datasets.load_from_disk(source.path)
            table = whole[source.split.partition("[")[0] or "train"] if hasattr(whole, "keys") else whole
            return _slice_rows(_wrap_table(table, called or source.path), source)
        subsets = source.subset if isinstance(source.subset, list) else [source.subset]
        parts = [datasets.load_dataset(source.path, name, split=source.split, **source.load_options) for name in subsets]
        table = parts[0] if len(parts) == 1 else datasets.concatenate_datasets(parts)
    except Exception as error:  # the hub's client and the readers raise dozens of kinds; all mean that the rows cannot be had
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        where = "add --dataset-path FOLDER_OR_FILE" + (f", or set {LOCAL_COPIES} to a folder of copies" if source.named else "")
        message = f"cannot be loaded: {text}"
        raise EnvironmentProblem(
            Problem(
                path=source.render(),
                code="data-missing",
                message=message,
                hint=f"{where}; or download it where there is a network",
            )
        ) from None
    return _wrap_table(table, called or source.render())


def _wrap_table(table: Any, called: str) -> RowStream:
    def read() -> Iterator[Row]:
        for number, value in enumerate(table):
            yield Row(where=f"{called} row {number}", value=value)

    return RowStream(fingerprint=str(table._fingerprint), count=len(table), read=read)


def _slice_rows(stream: RowStream, source: Source) -> RowStream:
    """Keep the rows that the split expression of a local source names."""
    if "[" not in source.split:
        return stream
    ranges = []
    for part in source.split.split("+"):
        match = _SPLIT.fullmatch(part.strip())
        if match is None or source.split.count("+"):
            message = f"{source.split!r} cannot be read for local rows"
            hint = "use a name with at most one slice, such as train[:1000] or train[1%:]"
            raise UsageError(Problem(path="dataset.hf_dataset.split", code="bad-value", message=message, hint=hint))
        first, last = (_bound(match[name], stream.count) for name in ("first", "last"))
        ranges.append(range(stream.count)[slice(first, last)])
    kept = ranges[0]

    def read() -> Iterator[Row]:
        for number, row in enumerate(stream.read()):
            if number >= kept.stop:
                return
            if number >= kept.start:
                yield row

    return RowStream(fingerprint=f"{stream.fingerprint}[{kept.start}:{kept.stop}]", count=len(kept), read=read)


def _bound(text: str | None, count: int) -> int | None:
    """Return a slice bound; percentages are rounded to the nearest row, as `datasets` does."""
    if not text:
        return None
    return round(int(text[:-1]) * count / 100) if text.endswith("%") else int(text)
