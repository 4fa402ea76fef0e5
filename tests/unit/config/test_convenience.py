import pytest

from autorecipe.config.convenience import CONVENIENCE_FLAGS, convenience_overrides, join_overrides
from autorecipe.config.overrides import parse_overrides


@pytest.mark.parametrize(
    ("short", "expected"),
    [
        ("-ms", "train.train_iters=2"),
        ("-gb", "train.global_batch_size=2"),
        ("-mb", "train.micro_batch_size=2"),
        ("-sl", "dataset.seq_length=2"),
        ("-tp", "model.tensor_model_parallel_size=2"),
        ("-pp", "model.pipeline_model_parallel_size=2"),
        ("-cp", "model.context_parallel_size=2"),
        ("-vp", "model.virtual_pipeline_model_parallel_size=2"),
        ("-ep", "model.expert_model_parallel_size=2"),
        ("-etp", "model.expert_tensor_parallel_size=2"),
    ],
)
def test_short_flags_stand_for_upstreams_paths(short, expected):
    (flag,) = [flag for flag in CONVENIENCE_FLAGS if flag.short == short]
    assert convenience_overrides({flag.dest: 2}) == (expected,)


def test_flags_come_first_so_that_a_trailing_override_wins():
    assert join_overrides({"max_steps": 2, "lr": 2e-5}, ["train.train_iters=3"]) == (
        "train.train_iters=2",
        "optimizer.lr=2e-05",
        "train.train_iters=3",
    )


def test_paths_with_spaces_survive_the_grammar(schema):
    (text,) = convenience_overrides({"save_dir": "/data/my run's"})
    assert parse_overrides([text], schema)[0].value == "/data/my run's"


def test_spellings_are_unique():
    spellings = [spelling for flag in CONVENIENCE_FLAGS for spelling in flag.flags]
    assert len(spellings) == len(set(spellings))
