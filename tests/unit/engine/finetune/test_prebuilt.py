"""Packs that were made before: the same training as from rows, and what is wrong with a file is named."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from autorecipe.engine.data.tokenizer import ByteTokenizer
from autorecipe.engine.finetune.data import build_finetune_data
from autorecipe.engine.finetune.prebuilt import find_files
from autorecipe.engine.finetune.spec import FinetuneSpec, read_finetune_spec
from autorecipe.engine.finetune.store import CACHE
from autorecipe.errors import EnvironmentProblem, NegativeAnswer
from autorecipe.schema.run import RunConfig

EOD = 256
SPECS = "dataset.offline_packing_specs"
FIRST = {"input_ids": [1, 2, 3, EOD, 4, 5, EOD], "seq_start_id": [0, 4], "loss_mask": [0, 1, 1, 0, 1, 1, 0]}
"""Two rows as upstream stores them: the mask belongs to the token that follows."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))


def write(file: Path, *packs: dict[str, Any]) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(list(packs)), file)
    return file


def read(files: Path | str, tmp_path: Path, **fields: Any) -> FinetuneSpec:
    values = {
        "dataset._class": "GPTSFTDatasetConfig",
        "dataset.dataset_root": str(tmp_path / "rows"),
        "dataset.seq_length": 16,
        "dataset.enable_offline_packing": True,
        f"{SPECS}.packed_train_data_path": str(files),
    }
    return read_finetune_spec(RunConfig(values={**values, **fields}))


def test_packs_are_read_as_upstream_lays_them(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", FIRST, {"input_ids": [7, EOD, 8], "seq_start_id": [0], "loss_mask": [1, 1, 0]})
    spec = read(file, tmp_path)
    assert spec.render() == f"fine-tuning data: {file}, packed to 16 tokens"
    data = build_finetune_data(spec, ByteTokenizer())
    assert len(data.train) == 2 and any("3 rows in 2 packs of 16 tokens" in note for note in data.notes)
    pack = data.train[0, 16]
    assert pack["tokens"].tolist()[:5] == [1, 2, 3, 4, 5] and pack["labels"].tolist()[:5] == [2, 3, EOD, 5, EOD]
    assert pack["loss_mask"].tolist()[:6] == [0, 1, 1, 1, 1, 0]
    assert pack["cu_seqlens"].tolist() == [0, 3, 5, 16] and pack["position_ids"].tolist()[:5] == [0, 1, 2, 0, 1]
    # No loss where an end of document is read, whatever the file says.
    assert data.train[1, 16]["loss_mask"].tolist()[:3] == [1, 0, 0]


def test_a_folder_or_a_pattern_names_several_files_in_order(tmp_path: Path) -> None:
    for name in ("b.pq", "a.idx.parquet", "c.txt"):
        write(tmp_path / name, FIRST)
    assert [file.name for file in find_files(str(tmp_path))] == ["a.idx.parquet", "b.pq"]
    assert [file.name for file in find_files(f"{tmp_path}/*.parquet")] == ["a.idx.parquet"]
    with pytest.raises(EnvironmentProblem, match="names no Parquet file that is here"):
        find_files(str(tmp_path / "missing.parquet"))
    assert len(build_finetune_data(read(tmp_path, tmp_path), ByteTokenizer()).train) == 2


def test_rows_are_aligned_where_the_layout_needs_it(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", FIRST)
    aligned = {f"{SPECS}.pad_seq_to_mult": 4, "model.context_parallel_size": 2, "train.micro_batch_size": 1}
    data = build_finetune_data(read(file, tmp_path, **aligned), ByteTokenizer())
    assert data.train[0, 16]["cu_seqlens"].tolist() == [0, 4, 8, 16]
    assert data.train[0, 16]["loss_mask"].tolist()[:8] == [0, 1, 1, 0, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"loss_mask": [1]}, "loss_mask has 1 numbers for 7 tokens"),
        ({"seq_start_id": [1, 4]}, "seq_start_id must begin with 0 and rise up to 7 tokens"),
        ({"seq_start_id": [0, 7]}, "seq_start_id must begin with 0 and rise up to 7 tokens"),
        ({"seq_start_id": []}, "seq_start_id must begin with 0"),
        ({"input_ids": None}, "input_ids is not a list"),
        ({"input_ids": [1] * 40, "loss_mask": [1] * 40, "seq_start_id": [0]}, "takes 39 tokens, and a pack has 16"),
    ],
)
def test_a_pack_that_contradicts_itself_is_named_with_its_place(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    spec = read(write(tmp_path / "a.parquet", FIRST, {**FIRST, **change}), tmp_path)
    with pytest.raises(NegativeAnswer) as caught:
        build_finetune_data(spec, ByteTokenizer())
    assert f"a.parquet row 1: {reason}" in str(caught.value)
    assert len(build_finetune_data(spec, ByteTokenizer(), max_bad_rows=1).train) == 1


def test_another_file_is_named(tmp_path: Path) -> None:
    other = write(tmp_path / "a.parquet", {"text": "x"})
    with pytest.raises(EnvironmentProblem, match="lacks column input_ids, seq_start_id, loss_mask; it has text"):
        build_finetune_data(read(other, tmp_path), ByteTokenizer())
    other.write_text("no parquet")
    with pytest.raises(EnvironmentProblem, match="is not Parquet"):
        build_finetune_data(read(other, tmp_path), ByteTokenizer())


def test_validation_packs_take_the_place_of_held_out_rows(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", FIRST)
    spec = read(file, tmp_path, **{f"{SPECS}.packed_val_data_path": str(file)})
    data = build_finetune_data(replace(spec, held_out=0.5), ByteTokenizer())  # its rows are not even opened
    assert data.validation is not None and len(data.validation) == 1
