"""Where rows lie, and whether they are chats, from what is typed."""

from pathlib import Path

import pytest

from autorecipe.api.finetune import CHAT_PREPROCESSING, check_dataset_name, holds_chats, place_dataset
from autorecipe.api.resolve import resolve_run
from autorecipe.errors import UsageError


def test_a_named_preset_is_pointed_to_rows_with_its_columns() -> None:
    run = resolve_run("llama3_8b_sft_config", place_dataset("gsm8k", ["/data/my set"]), dataset="gsm8k")
    for section in ("hf_dataset", "hf_test_dataset"):
        assert run.get(f"dataset.{section}.dataset_name") is None
        assert run.get(f"dataset.{section}.path_or_dataset") == "/data/my set"
        assert run.get(f"dataset.{section}.schema_adapter") == "gsm8k"
    tulu = resolve_run("llama3_8b_sft_config", place_dataset("tulu3", ["/t"]), dataset="tulu3")
    assert tulu.get("dataset.hf_dataset.schema_adapter") is None
    assert place_dataset("squad", []) == ()


def test_a_local_set_of_chats_is_read_as_chats_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "training.jsonl").write_text('\n{"messages": []}\n')
    root = f"dataset.dataset_root={tmp_path}"
    assert place_dataset("local-jsonl", [str(tmp_path)]) == (root, CHAT_PREPROCESSING)
    assert place_dataset("local-jsonl", [], typed=[root]) == (CHAT_PREPROCESSING,)
    typed = "dataset.preprocessing.prompt_column=q"
    assert place_dataset("local-jsonl", [str(tmp_path)], typed=[typed]) == (root,)
    run = resolve_run("llama3_8b_sft_config", place_dataset("local-jsonl", [str(tmp_path)]), dataset="local-jsonl")
    assert run.get("dataset.preprocessing._class") == "ChatSFTPreprocessingConfig"


@pytest.mark.parametrize("text", ["", '{"prompt": 1}', "{", "[1]", None])
def test_what_is_no_chat_or_cannot_be_told_is_left_to_the_reader(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "rows.jsonl").write_text(text)
    assert not holds_chats(tmp_path / "rows.jsonl")


def test_unknown_presets_and_several_folders_are_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'squad'"):
        check_dataset_name("squda")
    check_dataset_name("mock")
    check_dataset_name(None)
    with pytest.raises(UsageError, match="takes one --dataset-path, not 2"):
        place_dataset("squad", ["a", "b"])
