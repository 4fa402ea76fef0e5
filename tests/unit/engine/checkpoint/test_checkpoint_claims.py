from collections.abc import Callable
from pathlib import Path

import pytest

from autorecipe.engine.checkpoint import folder
from autorecipe.engine.checkpoint.weights import claim_folder
from autorecipe.errors import UsageError


def test_a_new_and_an_empty_folder_are_free(tmp_path: Path) -> None:
    assert claim_folder(tmp_path / "new") == [] and not (tmp_path / "new").exists()
    assert claim_folder(tmp_path) == []


def test_what_a_killed_conversion_left_is_removed_and_said(tmp_path: Path) -> None:
    partial = folder.open_partial(tmp_path, 0)
    (partial / "shard.distcp").write_bytes(b"wei")
    [note] = claim_folder(tmp_path)
    assert note.startswith(f"removed {partial}:")
    assert not partial.exists()


def test_whatever_else_a_folder_holds_is_refused_and_left_alone(tmp_path: Path, save: Callable[..., Path]) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is a file"):
        claim_folder(tmp_path / "file")
    conversion, training = folder.open_partial(tmp_path, 0), folder.open_partial(tmp_path, 10)
    with pytest.raises(UsageError, match=r"is not empty: it holds 'file' and 1 more"):
        claim_folder(tmp_path)
    assert conversion.exists() and training.exists()
    save(tmp_path / "taken", 5)
    with pytest.raises(UsageError, match="already holds a checkpoint"):
        claim_folder(tmp_path / "taken")
