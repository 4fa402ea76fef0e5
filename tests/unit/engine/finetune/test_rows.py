"""Files, folders, splits and slices; each row knows its place."""

import json
from pathlib import Path
from typing import Any

import pytest

from autorecipe.engine.finetune.rows import open_rows
from autorecipe.engine.finetune.sources import LOCAL_COPIES, Source, resolve_source
from autorecipe.errors import EnvironmentProblem, UsageError


def write(path: Path, values: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(value)}\n" for value in values))
    return path


def values_of(path: Path, split: str = "") -> list[Any]:
    return [row.value for row in open_rows(Source(path=str(path), split=split)).read()]


def test_lines_are_counted_blank_ones_too_and_broken_ones_are_kept_with_their_reason(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'{"a": 1}\n\n{"a": \n\xff\xfe\n{"a": 2}')
    rows = list(open_rows(Source(path=str(file))).read())
    assert [row.where for row in rows] == [f"{file}:{line}" for line in (1, 3, 4, 5)]
    assert [bool(row.problem) for row in rows] == [False, True, True, False]
    assert "is not JSON" in rows[1].problem and "is not UTF-8" in rows[2].problem


@pytest.mark.parametrize("name", ["training.jsonl", "train.json", "train-00000-of-00001.jsonl", "data/train.jsonl", "only.jsonl"])
def test_a_folder_holds_its_training_split_under_the_usual_names(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, [1])
    assert values_of(tmp_path, "train") == [1]


def test_splits_do_not_read_each_others_files(tmp_path: Path) -> None:
    for name in ("training", "validation", "test"):
        write(tmp_path / f"{name}.jsonl", [name])
    assert [values_of(tmp_path, split) for split in ("train", "validation", "test")] == [["training"], ["validation"], ["test"]]
    (tmp_path / "test.jsonl").unlink()
    with pytest.raises(EnvironmentProblem, match=r"no file of split 'test' \(training.jsonl, validation.jsonl\)"):
        open_rows(Source(path=str(tmp_path), split="test"))


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("train[:3]", [0, 1, 2]),
        ("train[8:]", [8, 9]),
        ("train[10%:25%]", [1]),
        ("train[-2:]", [8, 9]),
        ("train[:99]", list(range(10))),
    ],
)
def test_slices_of_local_rows_mean_what_they_mean_for_hub_data(tmp_path: Path, split: str, expected: list[int]) -> None:
    stream = open_rows(Source(path=str(write(tmp_path / "train.jsonl", list(range(10)))), split=split))
    assert [row.value for row in stream.read()] == expected
    assert stream.count == len(expected)


def test_a_slice_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train\[:1000\]"):
        values_of(write(tmp_path / "a.jsonl", [1]), "train[a:b]")


def test_a_list_in_a_json_file_is_rows(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(json.dumps([{"a": 1}, {"a": 2}]))
    rows = list(open_rows(Source(path=str(tmp_path), split="train")).read())
    assert [row.where for row in rows] == [f"{tmp_path / 'train.json'}[{index}]" for index in (0, 1)]


def test_parquet_files_and_saved_data_sets_are_read_through_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    table = datasets.Dataset.from_list([{"a": number, "b": {"text": ["x"]}} for number in range(5)])
    table.to_parquet(tmp_path / "columns" / "train-00000-of-00001.parquet")
    datasets.DatasetDict({"train": table, "test": table.select([4])}).save_to_disk(str(tmp_path / "saved"))
    expected = [{"a": number, "b": {"text": ["x"]}} for number in (1, 2)]
    for folder in ("columns", "saved"):
        stream = open_rows(Source(path=str(tmp_path / folder), split="train[1:3]"))
        rows = list(stream.read())
        assert [row.value for row in rows] == expected and stream.count == 2
        assert rows[0].where == f"{tmp_path / folder} row 1"
    assert [value["a"] for value in values_of(tmp_path / "saved", "test")] == [4]
    with pytest.raises(EnvironmentProblem, match="cannot be loaded"):
        values_of(tmp_path / "saved", "validation")


def test_the_fingerprint_follows_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", [1])
    before = open_rows(Source(path=str(file))).fingerprint
    assert open_rows(Source(path=str(file))).fingerprint == before
    write(file, [1, 2])
    assert open_rows(Source(path=str(file))).fingerprint != before


def test_named_data_is_the_local_copy_where_one_is_and_the_hubs_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"dataset_name": "gsm8k"}
    problems: list[Any] = []
    hub = resolve_source(fields, path="dataset.hf_dataset", problems=problems)
    assert hub is not None and (hub.path, hub.subset, hub.split, hub.is_local) == ("openai/gsm8k", "main", "train", False)
    write(tmp_path / "openai" / "gsm8k" / "train.jsonl", [1])
    monkeypatch.setenv(LOCAL_COPIES, str(tmp_path))
    local = resolve_source(fields, path="dataset.hf_dataset", problems=problems)
    assert local is not None and local.is_local and values_of(Path(local.path), local.split) == [1]
    assert local.schema == "gsm8k" and not problems


def test_a_hub_id_is_its_local_copy_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"path_or_dataset": "someone/rows", "split": "train[1:]", "load_kwargs.data_files.train": "math/a.jsonl"}
    monkeypatch.setenv(LOCAL_COPIES, str(tmp_path))
    assert not resolve_source(fields, path="dataset.hf_dataset", problems=[]).is_local  # type: ignore[union-attr]
    write(tmp_path / "someone" / "rows" / "train.jsonl", [1, 2])
    whole = resolve_source(fields, path="dataset.hf_dataset", problems=[])
    assert whole is not None and values_of(Path(whole.path), whole.split) == [2]
    write(tmp_path / "someone" / "rows" / "math" / "a.jsonl", [3, 4])
    one = resolve_source(fields, path="dataset.hf_dataset", problems=[])
    assert one is not None and values_of(Path(one.path), one.split) == [4]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "names no source"),
        ({"dataset_name": "squad", "path_or_dataset": "/d"}, "names two sources"),
        ({"dataset_name": "squd"}, "did you mean 'squad'"),
        ({"dataset_name": "squad", "split": "test"}, "'test' is not a split of squad: it has train, validation"),
        ({"dataset_name": "squad", "adapter_kwargs": {"a": 1}}, "is not read by --engine core"),
    ],
)
def test_wrong_sources_are_refused_by_name(fields: dict[str, Any], reason: str) -> None:
    problems: list[Any] = []
    resolve_source(fields, path="dataset.hf_dataset", problems=problems)
    assert len(problems) == 1 and reason in problems[0].message
