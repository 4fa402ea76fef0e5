"""Where rows lie, and whether they are chats, from what is typed."""

import json
from pathlib import Path

import pytest

from autorecipe.api.finetune import CHAT_PREPROCESSING, check_dataset_name, holds_chats, place_dataset, preview_data
from autorecipe.api.resolve import resolve_run
from autorecipe.cli.main import execute
from autorecipe.errors import EnvironmentProblem, NegativeAnswer, UsageError

BYTES = "tokenizer.tokenizer_type=ByteTokenizer"
ROWS = '{"prompt": "Where is Oslo?", "completion": "Norway"}\n' * 3


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


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AUTORECIPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "rows.jsonl").write_text(ROWS)
    return str(tmp_path / "rows.jsonl")


def test_a_preview_shows_what_is_learned_and_how_it_packs(rows: str, capsys: pytest.CaptureFixture[str]) -> None:
    packing = ("dataset.enable_offline_packing=true", "dataset.seq_length=48")
    report = preview_data("llama3_8b_sft_config", (BYTES, *packing), dataset="local-jsonl", paths=[rows], rows=1)
    assert [(piece["text"], piece["learned"]) for piece in report["examples"][0]] == [
        ("Where is Oslo?", False),
        (" Norway<end>", True),
    ]
    assert (report["splits"]["training"]["packs"], report["splits"]["training"]["rows"]) == (2, 3)
    words = ["data", "preview", "llama3_8b_sft_config", BYTES, "--dataset", "local-jsonl", "--dataset-path", rows, "--rows", "1"]
    assert execute(words) == 0
    assert "Where is Oslo?« Norway<end>»" in capsys.readouterr().out


def test_a_preview_names_every_bad_row_and_what_is_missing(rows: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS + "[]\n{\n")
    with pytest.raises(NegativeAnswer) as caught:
        preview_data("llama3_8b_sft_config", (BYTES,), dataset="local-jsonl", paths=[rows])
    text = str(caught.value)
    assert "rows.jsonl:4: is a list" in text and "rows.jsonl:5: is not JSON" in text and "--max-bad-rows 2" in text
    allowed = preview_data("llama3_8b_sft_config", (BYTES,), dataset="local-jsonl", paths=[rows], max_bad_rows=2)
    assert len(allowed["splits"]["training"]["bad_rows"]) == 2
    with pytest.raises(EnvironmentProblem, match="is not here"):
        preview_data("llama3_8b_sft_config", (BYTES,), dataset="squad", paths=[str(tmp_path / "nowhere.jsonl")])
    with pytest.raises(UsageError, match="nothing of it can be shown"):
        preview_data("llama3_8b_pretrain_config", dataset="mock")


def test_a_preview_renders_chats_by_the_template_of_a_tokenizer_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTORECIPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "engine" / "finetune"))
    chat_tokenizer = pytest.importorskip("chat_tokenizer")
    folder = chat_tokenizer.save_tokenizer(tmp_path / "tokenizer", chat_tokenizer.TEMPLATES["chatml"])
    turns = [("user", "hi"), ("assistant", "hello"), ("user", "bye"), ("assistant", "see you")]
    chat = {"messages": [{"role": role, "content": text} for role, text in turns]}
    (tmp_path / "training.jsonl").write_text(json.dumps(chat))
    words = ("tokenizer.tokenizer_type=HuggingFaceTokenizer", f"tokenizer.tokenizer_model={folder}", "validation.eval_iters=0")
    report = preview_data("llama3_8b_sft_config", words, dataset="local-jsonl", paths=[str(tmp_path)], rows=1)
    learned = [piece["text"] for piece in report["examples"][0] if piece["learned"]]
    assert learned == ["hello<|im_end|>\n", "see you<|im_end|>\n"]
