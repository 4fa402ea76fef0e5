"""Models named by their id: the local cache, and what is said when there is no way to them."""

import json
from pathlib import Path

import pytest

from autorecipe.engine.hf.hub import find_folder
from autorecipe.errors import EnvironmentProblem

constants = pytest.importorskip("huggingface_hub.constants")


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder of org/model in a cache of this test's own; the hub itself is out of reach."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    model = tmp_path / "models--org--model"
    folder = model / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("abc")
    (folder / "config.json").write_text("{}")
    return folder


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    assert find_folder(tmp_path, weights=True) == tmp_path


def test_a_whole_snapshot_of_the_cache_is_found(snapshot: Path) -> None:
    assert find_folder(Path("org/model"), weights=False) == snapshot
    (snapshot / "model.safetensors").write_text("")
    assert find_folder(Path("org/model"), weights=True) == snapshot


def test_what_is_not_whole_and_cannot_be_fetched_says_what_to_do(snapshot: Path) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    (snapshot / "model-00001-of-00002.safetensors").write_text("")
    for name in ("org/model", "org/other", "org/model@v2"):
        with pytest.raises(EnvironmentProblem) as caught:
            find_folder(Path(name), weights=True)
        assert f"hf download {name.partition('@')[0]} --local-dir DIR" in str(caught.value)
