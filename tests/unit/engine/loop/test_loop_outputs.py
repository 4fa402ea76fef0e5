"""What cannot be written is named before a run."""

import errno
from pathlib import Path
from typing import Any

import pytest

from autorecipe.engine.loop import outputs
from autorecipe.engine.loop.outputs import check_outputs
from autorecipe.engine.loop.settings import LoopSettings, read_settings
from autorecipe.errors import EnvironmentProblem
from autorecipe.schema.run import RunConfig


def settings(**fields: Any) -> LoopSettings:
    values = {"train.train_iters": 1, "train.global_batch_size": 1, "train.micro_batch_size": 1, "dataset.seq_length": 8}
    return read_settings(RunConfig(values={**values, **{name.replace("__", "."): value for name, value in fields.items()}}))


def test_every_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    blocked = settings(checkpoint__save=str(tmp_path / "file" / "c"), logger__tensorboard_dir=str(tmp_path / "file"))
    with pytest.raises(EnvironmentProblem) as caught:
        check_outputs(blocked, tmp_path / "file" / "m" / "metrics.jsonl")
    assert [problem.path for problem in caught.value.problems] == ["checkpoint.save", "--metrics", "logger.tensorboard_dir"]
    assert all("cannot be written: " in problem.message for problem in caught.value.problems)


def test_folders_are_made_and_left_empty(tmp_path: Path) -> None:
    check_outputs(settings(checkpoint__save=str(tmp_path / "a" / "c")), tmp_path / "b" / "metrics.jsonl")
    assert not list((tmp_path / "a" / "c").iterdir()) and not list((tmp_path / "b").iterdir())


def test_a_full_disk_is_found_although_it_takes_empty_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *_: Any) -> None:
            return None

        def write(self, _data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(outputs.tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(EnvironmentProblem, match="No space left on device"):
        check_outputs(settings(checkpoint__save=str(tmp_path)), None)
