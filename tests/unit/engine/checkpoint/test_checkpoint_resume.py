from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autorecipe.engine.checkpoint import folder
from autorecipe.engine.checkpoint.identity import compare_identity, describe_changes, describe_identity
from autorecipe.engine.checkpoint.resume import plan_resume
from autorecipe.errors import EnvironmentProblem, NegativeAnswer
from autorecipe.schema.run import RunConfig

Save = Callable[..., Path]
IDENTITY = {"num_layers": 2}
CONFIG = {"optimizer.lr": 3e-4}


def plan(root: Path, **extra: Any) -> Any:
    return plan_resume(root, identity={**IDENTITY, **extra}, config=CONFIG)


def test_nothing_is_resumed_from_nothing(tmp_path: Path) -> None:
    assert plan_resume(None, identity=IDENTITY, config=CONFIG) is None
    assert plan(tmp_path / "absent") is None
    assert plan(tmp_path) is None


def test_the_newest_whole_checkpoint_comes_first_and_damage_is_said(tmp_path: Path, save: Save) -> None:
    save(tmp_path, 5)
    save(tmp_path, 10)
    (save(tmp_path, 15) / "shard.distcp").write_bytes(b"")
    result = plan(tmp_path)
    assert [candidate.iteration for candidate in result.candidates] == [10, 5]
    assert "iter_0000015 is damaged" in result.messages[0] and "falling back to iteration 10" in result.messages[0]


def test_a_flipped_byte_falls_back_too(tmp_path: Path, save: Save) -> None:
    save(tmp_path, 5)
    (save(tmp_path, 10) / "shard.distcp").write_bytes(b"wEights")
    assert [candidate.iteration for candidate in plan(tmp_path).candidates] == [5]


def test_all_damaged_is_an_environment_problem_that_names_each(tmp_path: Path, save: Save) -> None:
    for iteration in (5, 10):
        (save(tmp_path, iteration) / "shard.distcp").unlink()
    with pytest.raises(EnvironmentProblem) as caught:
        plan(tmp_path)
    assert len(caught.value.problems) == 2
    assert "--fresh" in caught.value.problems[0].hint


def test_another_model_is_refused_field_by_field(tmp_path: Path, save: Save) -> None:
    save(tmp_path, 5)
    with pytest.raises(NegativeAnswer) as caught:
        plan(tmp_path, num_layers=4)
    assert caught.value.problems[0].path == "model.num_layers"
    assert "is 4 here and 2 in the checkpoint" in caught.value.problems[0].message
    assert "--fresh" in caught.value.problems[-1].hint


def test_changed_training_fields_are_said_and_do_not_stop(tmp_path: Path, save: Save) -> None:
    save(tmp_path, 5)
    result = plan_resume(tmp_path, identity=IDENTITY, config={"optimizer.lr": 1e-4})
    assert result is not None
    assert result.messages == ["changed since the checkpoint: optimizer.lr: 0.0003 -> 0.0001"]


def test_identity_covers_architecture_and_not_the_layout_or_batch() -> None:
    base = {
        "model.num_layers": 2,
        "model.hidden_size": 64,
        "model.num_attention_heads": 4,
        "model.vocab_size": 128,
        "model.position_embedding_type": "rope",
        "model.seq_length": 32,
    }

    def identity(**extra: Any) -> dict[str, Any]:
        return describe_identity(RunConfig(values={**base, **{k.replace("__", "."): v for k, v in extra.items()}}))

    same = identity(model__tensor_model_parallel_size=2, train__global_batch_size=8, model__seq_length=64)
    assert compare_identity(identity(), same) == []
    for change in ({"model__rotary_base": 500000}, {"model__num_query_groups": 2}, {"model__gated_linear_unit": True}):
        assert len(compare_identity(identity(), identity(**change))) == 1
    learned = {"model__position_embedding_type": "learned_absolute"}
    assert compare_identity(identity(**learned), identity(**learned, model__seq_length=64))


def test_changes_ignore_execution_fields() -> None:
    before = {"optimizer.lr": 1.0, "model.tensor_model_parallel_size": 1, "dataset.num_workers": 2, "train.micro_batch_size": 1}
    after = {"optimizer.lr": 2.0, "model.tensor_model_parallel_size": 2, "dataset.num_workers": 0, "train.micro_batch_size": 2}
    assert describe_changes(before, after) == ["optimizer.lr: 1.0 -> 2.0"]


def test_a_folder_with_foreign_content_is_not_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "iter_0000003").mkdir()
    (tmp_path / "notes").mkdir()
    found = folder.list_checkpoints(tmp_path)
    assert len(found) == 1 and "not a complete checkpoint" in found[0].damage
