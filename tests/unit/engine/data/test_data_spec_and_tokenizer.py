from pathlib import Path
from typing import Any

import pytest

from autorecipe.engine.data.spec import check_data_files, read_data_spec
from autorecipe.engine.data.tokenizer import ByteTokenizer, NullTokenizer, load_tokenizer, resolve_vocabulary
from autorecipe.errors import EnvironmentProblem, UsageError
from autorecipe.schema.run import RunConfig


def spec_of(**fields: Any) -> Any:
    return read_data_spec(RunConfig(values={f"dataset.{name}": value for name, value in fields.items()}))


def test_no_data_means_mock_data() -> None:
    assert spec_of(blend=None, blend_per_split=None).mock


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", (("a",), None)),
        ("a b", (("a", "b"), None)),
        ("0.3 a 0.7 b", (("a", "b"), (0.3, 0.7))),
        (["30", "a", "70", "b"], (("a", "b"), (30.0, 70.0))),
    ],
)
def test_path_lists_read_like_megatron_lms(value: Any, expected: Any) -> None:
    assert spec_of(data_path=value, split="1,1,1").blend == expected


def test_blends_read_like_bridges() -> None:
    assert spec_of(blend=[["a", "b"], [0.3, 0.7]], split="1,1,1").blend == (("a", "b"), (0.3, 0.7))
    assert spec_of(blend=[["a"], None], split="1,1,1").blend == (("a",), None)
    per_split = spec_of(blend_per_split=[[["a"], None], [["b"], None], None])
    assert per_split.blend_per_split == ((("a",), None), (("b",), None), None)
    assert per_split.prefixes == ("a", "b")


@pytest.mark.parametrize(
    "fields",
    [
        {"blend": [["a", "b"], [0.3]], "split": "1,1,1"},
        {"data_path": "0.3 a b", "split": "1,1,1"},
        {"data_path": "a", "split": None},
        {"blend_per_split": [[["a"], None]]},
        {"blend": [["a"], None], "blend_per_split": [None, None, None], "split": "1,1,1"},
        {"dataloader_type": "batch"},
    ],
)
def test_contradictory_data_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"dataset\."):
        spec_of(**fields)


def test_all_missing_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.bin").touch()
    with pytest.raises(EnvironmentProblem) as caught:
        check_data_files(spec_of(data_path=f"{tmp_path}/a {tmp_path}/b", split="1,1,1"))
    assert [Path(problem.path).name for problem in caught.value.problems] == ["a.bin", "a.idx", "b.bin", "b.idx"]
    assert "autorecipe data index" in caught.value.problems[0].hint


def vocabulary_of(*, mock: bool = True, **values: Any) -> Any:
    return resolve_vocabulary(RunConfig(values={path.replace("__", "."): value for path, value in values.items()}), mock=mock)


def test_a_model_without_vocabulary_takes_the_tokenizers_padded() -> None:
    result = vocabulary_of(tokenizer__tokenizer_type="NullTokenizer", tokenizer__vocab_size=32000)
    assert result.run.get("model.vocab_size") == 32000
    assert result.run.get("model.should_pad_vocab") is True
    assert (result.tokenizer.eod, result.tokenizer.pad) == (31999, -1)


def test_a_models_own_vocabulary_is_kept_unpadded_and_never_too_small() -> None:
    result = vocabulary_of(tokenizer__tokenizer_type="NullTokenizer", tokenizer__vocab_size=100, model__vocab_size=128)
    assert (result.run.get("model.vocab_size"), result.run.get("model.should_pad_vocab")) == (128, False)
    with pytest.raises(UsageError, match="smaller than the tokenizer"):
        vocabulary_of(tokenizer__tokenizer_type="NullTokenizer", tokenizer__vocab_size=100, model__vocab_size=64)


def test_mock_data_needs_no_tokenizer_files_and_says_so() -> None:
    result = vocabulary_of(
        tokenizer__tokenizer_type="HuggingFaceTokenizer", tokenizer__tokenizer_model="some/model", model__vocab_size=500
    )
    assert result.tokenizer == NullTokenizer(500)
    assert "some/model" in result.notes[0]


def test_tokenizers_read_text() -> None:
    assert NullTokenizer(10).tokenize("3 1 4") == [3, 1, 4]
    assert ByteTokenizer().tokenize("é") == [0xC3, 0xA9]
    with pytest.raises(UsageError, match="outside the vocabulary"):
        NullTokenizer(10).tokenize("10")
    with pytest.raises(UsageError, match="tokenizer_type"):
        load_tokenizer("BertWordPieceLowerCase", None, None)
