from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autorecipe.engine.checkpoint import folder

Save = Callable[..., Path]


def test_a_published_checkpoint_is_whole_and_the_newest(tmp_path: Path, save: Save) -> None:
    save(tmp_path, 5)
    path = save(tmp_path, 10)
    found = folder.list_checkpoints(tmp_path)
    assert [candidate.iteration for candidate in found] == [10, 5]
    assert found[0].path == path and found[0].damage == ""
    assert found[0].manifest is not None and found[0].manifest.consumed_train_samples == 80
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "10"


def test_a_half_written_folder_is_no_checkpoint_and_is_cleared(tmp_path: Path, save: Save) -> None:
    save(tmp_path, 5)
    partial = folder.open_partial(tmp_path, 10)
    (partial / "shard.distcp").write_bytes(b"wei")
    assert folder.open_partial(tmp_path, 10) != partial
    assert [candidate.iteration for candidate in folder.list_checkpoints(tmp_path)] == [5]
    assert partial.name in folder.clear_leftovers(tmp_path)
    assert folder.clear_leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda path: (path / "shard.distcp").unlink(), "is missing"),
        (lambda path: (path / "shard.distcp").write_bytes(b"wei"), "3 bytes"),
        (lambda path: (path / "autorecipe.json").unlink(), "not a complete checkpoint"),
        (lambda path: (path / "autorecipe.json").write_text("{"), "cannot be read"),
    ],
)
def test_damage_is_found_by_name_and_size(tmp_path: Path, save: Save, harm: Any, words: str) -> None:
    harm(save(tmp_path, 5))
    assert words in folder.list_checkpoints(tmp_path)[0].damage


def test_changed_bytes_of_the_same_size_are_found_by_checksum(tmp_path: Path, save: Save) -> None:
    path = save(tmp_path, 5)
    candidate = folder.list_checkpoints(tmp_path)[0]
    assert folder.verify_checksums(candidate) == ""
    (path / "shard.distcp").write_bytes(b"wEights")
    assert folder.list_checkpoints(tmp_path)[0].damage == ""
    assert "shard.distcp has changed" in folder.verify_checksums(candidate)


def test_only_the_newest_are_retained(tmp_path: Path, save: Save) -> None:
    for iteration in (1, 2, 3, 4):
        save(tmp_path, iteration)
    assert folder.prune(tmp_path, keep=-1) == []
    assert folder.prune(tmp_path, keep=2) == ["iter_0000002", "iter_0000001"]
    assert [candidate.iteration for candidate in folder.list_checkpoints(tmp_path)] == [4, 3]


def test_pruning_never_counts_a_damaged_checkpoint_as_one_of_the_kept(tmp_path: Path, save: Save) -> None:
    save(tmp_path, 1)
    (save(tmp_path, 2) / "shard.distcp").unlink()
    assert folder.prune(tmp_path, keep=1) == []


def test_setting_aside_deletes_nothing(tmp_path: Path, save: Save) -> None:
    root = tmp_path / "checkpoints"
    assert folder.set_aside(root) is None
    save(root, 5)
    aside = folder.set_aside(root)
    assert aside is not None and aside.parent == tmp_path
    assert not root.exists()
    assert [candidate.iteration for candidate in folder.list_checkpoints(aside)] == [5]


def test_saving_an_iteration_again_replaces_it(tmp_path: Path, save: Save) -> None:
    save(tmp_path, 5, b"old")
    save(tmp_path, 5, b"newer")
    [candidate] = folder.list_checkpoints(tmp_path)
    assert (candidate.path / "shard.distcp").read_bytes() == b"newer"


def test_a_manifest_of_a_newer_format_is_refused(tmp_path: Path, save: Save) -> None:
    path = save(tmp_path, 5)
    text = (path / "autorecipe.json").read_text().replace('"format": 1', '"format": 99')
    (path / "autorecipe.json").write_text(text)
    with pytest.raises(ValueError, match="format 99"):
        folder.read_manifest(path)
