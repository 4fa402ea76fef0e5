import json
from pathlib import Path

import numpy
import pytest

from autorecipe.engine import compat
from autorecipe.engine.data.index import main, write_index
from autorecipe.engine.data.tokenizer import ByteTokenizer, NullTokenizer
from autorecipe.errors import NegativeAnswer, UsageError


@pytest.fixture(autouse=True)
def core() -> None:
    compat.prepare()


def write_lines(path: Path, rows: list[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_documents_come_back_as_written(tmp_path: Path) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    source = write_lines(tmp_path / "a.jsonl", [{"text": "ab"}, {"text": "  "}, {"text": "c"}])
    report = write_index([source], str(tmp_path / "out"), tokenizer=ByteTokenizer())
    assert (report.documents, report.tokens, report.empty_lines, report.token_dtype) == (2, 5, 1, "uint16")
    dataset = IndexedDataset(str(tmp_path / "out"))
    assert [list(dataset[index]) for index in range(len(dataset))] == [[97, 98, 256], [99, 256]]
    assert list(dataset.document_indices) == [0, 1, 2]


def test_large_vocabularies_take_wider_tokens(tmp_path: Path) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    source = write_lines(tmp_path / "a.jsonl", [{"body": "70000 1"}])
    report = write_index([source], str(tmp_path / "out"), tokenizer=NullTokenizer(100_000), key="body", append_eod=False)
    assert report.token_dtype == "int32"
    dataset = IndexedDataset(str(tmp_path / "out"))
    assert numpy.array_equal(dataset[0], [70000, 1])


def test_a_bad_line_is_named_and_leaves_no_file(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", [{"text": "ok"}, {"body": "no"}])
    with pytest.raises(UsageError, match=r"a\.jsonl:2.*'text'.*'body'"):
        write_index([source], str(tmp_path / "out"), tokenizer=ByteTokenizer())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl"]


def test_an_existing_output_is_not_overwritten_by_accident(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", [{"text": "ok"}])
    write_index([source], str(tmp_path / "out"), tokenizer=ByteTokenizer())
    with pytest.raises(UsageError, match="already exists"):
        write_index([source], str(tmp_path / "out"), tokenizer=ByteTokenizer())
    assert write_index([source], str(tmp_path / "out"), tokenizer=ByteTokenizer(), overwrite=True).documents == 1


def test_empty_input_is_a_negative_answer(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", [])
    with pytest.raises(NegativeAnswer, match="no text"):
        write_index([source], str(tmp_path / "out"), tokenizer=ByteTokenizer())


def test_the_module_prints_its_report_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_lines(tmp_path / "a.jsonl", [{"text": "ab"}])
    assert main([str(source), "--output", str(tmp_path / "out")]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == 3
    assert main([str(source), "--output", str(tmp_path / "out")]) == 2
