"""Packs that were made before, as Megatron Bridge writes them (Parquet), turned into the copy that training maps.

Columns: `input_ids` (rows end to end), `seq_start_id` (where each begins), `loss_mask` (of the token that follows).
Source: Megatron Bridge 0.6.2 data/packing/parquet.py, data/packing/paths.py, data/packing/gpt_sft.py (`collate_fn`).
Evidence: enforced-upstream, also that no loss is taken where an end-of-document token is read.
Start reading at `build_pack_store`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy

from autorecipe.engine.finetune.examples import RowError
from autorecipe.engine.finetune.packs import Packing
from autorecipe.engine.finetune.spec import FinetuneSpec
from autorecipe.engine.finetune.store import PACK_ENDS, SHOWN_BAD_ROWS, StoreReport, cache_root, make_copy
from autorecipe.errors import EnvironmentProblem, Problem

COLUMNS = ("input_ids", "seq_start_id", "loss_mask")
SUFFIXES = (".parquet", ".pq")


def build_pack_store(files: str, spec: FinetuneSpec, packing: Packing, *, eod: int, max_bad_rows: int) -> Path:
    """Make the copy of packs where it is not here yet; returns its folder.

    Args:
        files: a Parquet file, a folder of them, or a pattern.
        spec: of the run.
        packing: length and alignment that the packs must have.
        eod: the tokenizer's end-of-document id.
        max_bad_rows: packs that may be left out.

    Raises:
        EnvironmentProblem: the files are not here, or are not Parquet with these columns.
        NegativeAnswer: more packs cannot be read than may be left out.
    """
    found = find_files(files)
    stamps = [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in found]
    content = {"packs": stamps, "length": packing.length, "multiple": packing.multiple, "eod": eod}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    path = cache_root(spec) / f"packs-{digest}"
    return make_copy(
        path, lambda folder: _write(folder, found, packing, files, eod), max_bad_rows=max_bad_rows, fresh=spec.rewrite
    )


def find_files(spec: str) -> list[Path]:
    """Return the Parquet files that a file, a folder or a pattern names, sorted.

    Raises:
        EnvironmentProblem: there is none.
    """
    path = Path(spec).expanduser()
    if "*" in spec or "?" in spec:
        root = Path(path.anchor) if path.is_absolute() else Path()
        candidates = list(root.glob(str(path.relative_to(path.anchor)) if path.is_absolute() else spec))
    else:
        candidates = list(path.iterdir()) if path.is_dir() else [path]
    found = sorted(file for file in candidates if file.is_file() and file.name.lower().endswith(SUFFIXES))
    if not found:
        hint = "give a .parquet file, a folder of them, or a pattern such as 'packs/*.parquet'"
        raise EnvironmentProblem(Problem(path=spec, code="data-missing", message="names no Parquet file that is here", hint=hint))
    return found


def _write(folder: Path, files: list[Path], packing: Packing, called: str, eod: int) -> StoreReport:
    counts = {"rows": 0, "bad": 0, "unanswered": 0, "tokens": 0, "learned": 0}
    bad_rows: list[str] = []
    ends: list[int] = []
    pack_ends: list[int] = []
    with (folder / "ids.bin").open("wb") as ids_file, (folder / "learned.bin").open("wb") as learned_file:
        for where, pack in _read(files):
            try:
                rows = split_pack(pack, packing, eod=eod)
            except RowError as error:
                counts["bad"] += 1
                if len(bad_rows) < SHOWN_BAD_ROWS:
                    bad_rows.append(f"{where}: {error}")
                continue
            for ids, learned in rows:
                ids_file.write(ids.tobytes())
                learned_file.write(learned.tobytes())
                taught = int(learned[1:].sum())
                counts["rows"] += 1
                counts["unanswered"] += taught == 0
                counts["tokens"] += len(ids)
                counts["learned"] += taught
                ends.append(counts["tokens"])
            pack_ends.append(counts["rows"])
    numpy.save(folder / "ends.npy", numpy.array(ends, dtype=numpy.int64))
    numpy.save(folder / PACK_ENDS, numpy.array(pack_ends, dtype=numpy.int64))
    found: dict[str, Any] = {"bad_rows": tuple(bad_rows), **counts}
    return StoreReport(source=called, **found)


def _read(files: list[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield packs with the place they stand at, a few at a time."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        message = "packs in Parquet files need the pyarrow package"
        raise EnvironmentProblem(message, hint="pip install 'autorecipe[hf]', or unset packed_train_data_path") from None
    for file in files:
        try:
            opened = parquet.ParquetFile(file)
            missing = [name for name in COLUMNS if name not in opened.schema_arrow.names]
            if missing:
                message = f"lacks column {', '.join(missing)}; it has {', '.join(opened.schema_arrow.names)}"
                hint = f"packs have {', '.join(COLUMNS)}; rows of text go into dataset.dataset_root"
                raise EnvironmentProblem(Problem(path=str(file), code="data-unreadable", message=message, hint=hint))
            number = 0
            for batch in opened.iter_batches(batch_size=64, columns=list(COLUMNS)):
                for pack in batch.to_pylist():
                    yield f"{file} row {number}", pack
                    number += 1
        except (OSError, pyarrow.ArrowException) as error:
            text = (str(error).splitlines() or [""])[0]
            hint = "make the packs again"
            problem = Problem(path=str(file), code="data-unreadable", message=f"is not Parquet: {text}", hint=hint)
            raise EnvironmentProblem(problem) from None


def split_pack(pack: dict[str, Any], packing: Packing, *, eod: int) -> list[tuple[numpy.ndarray, numpy.ndarray]]:
    """Return the rows of a pack: ids (int32), and which of them are learned (bool), as long.

    Raises:
        RowError: its columns contradict each other, or it is longer than a pack of the run.
    """
    ids, starts, mask = (pack[name] for name in COLUMNS)
    if not isinstance(ids, list) or not isinstance(starts, list) or not isinstance(mask, list):
        raise RowError(f"{', '.join(name for name in COLUMNS if not isinstance(pack[name], list))} is not a list")
    if len(mask) != len(ids):
        raise RowError(f"loss_mask has {len(mask)} numbers for {len(ids)} tokens")
    ends = [*starts[1:], len(ids)]
    if not starts or starts[0] != 0 or any(end <= begin for begin, end in zip(starts, ends, strict=True)):
        raise RowError(f"seq_start_id must begin with 0 and rise up to {len(ids)} tokens, and is {starts[:8]}")
    whole, learns = numpy.array(ids, dtype=numpy.int32), numpy.array(mask, dtype=bool)
    learns &= whole != eod
    taken, rows = 0, []
    for begin, end in zip(starts, ends, strict=True):
        learned: numpy.ndarray = numpy.zeros(end - begin, dtype=bool)
        learned[1:] = learns[begin : end - 1]
        rows.append((whole[begin:end], learned))
        taken += -(-(end - begin - 1) // packing.multiple) * packing.multiple
    if taken > packing.length:
        aligned = f", each row padded to a multiple of {packing.multiple}" if packing.multiple > 1 else ""
        raise RowError(f"takes {taken} tokens{aligned}, and a pack has {packing.length}")
    return rows
