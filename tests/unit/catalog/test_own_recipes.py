from pathlib import Path

import pytest

from autorecipe.api.recipes import derive, find_recipe, show_recipe
from autorecipe.api.resolve import resolve_run
from autorecipe.catalog import own
from autorecipe.catalog.store import open_catalog
from autorecipe.cli.main import execute
from autorecipe.errors import EnvironmentProblem, UsageError

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_recipe.py"


def write(tmp_path, body):
    path = tmp_path / "mine.py"
    path.write_text("from autorecipe.api.recipes import derive\n" + body)
    return path


def test_example_differs_from_its_base_where_it_says_so():
    base = find_recipe("llama3_8b_pretrain_config", release="0.6.2")
    mine = find_recipe(f"{EXAMPLE}:llama3_8b_4k_two_stages_config", release="0.6.2")
    changed = {path for path in mine.fields if mine.fields[path] != base.fields.get(path)}
    assert changed == {
        "dataset.seq_length",
        "model.seq_length",
        "model.context_parallel_size",
        "model.pipeline_model_parallel_size",
        "train.global_batch_size",
        "train.train_iters",
        "scheduler.lr_warmup_iters",
    }
    assert mine.name == "llama3_8b_4k_two_stages_config"
    assert mine.alias_of is None
    assert mine.notes["derived_from"] == base.name
    assert mine.source.startswith(f"{EXAMPLE}:")


def test_a_function_stands_wherever_a_name_does():
    config = resolve_run(f"{EXAMPLE}:llama3_8b_4k_config", ["train.global_batch_size=128"])
    assert config.get("train.global_batch_size") == 128
    assert config.get("dataset.seq_length") == 4096
    summary = open_catalog().summary(f"{EXAMPLE}:llama3_8b_4k_config")
    assert (summary.minimum_gpus, summary.seq_length, summary.gpus) == (1, 4096, None)
    page = show_recipe(f"{EXAMPLE}:llama3_8b_4k_config")
    assert page.sections["parallelism"]["cp"] == 1
    assert page.sections["identity"]["derived_from"] == "llama3_8b_pretrain_config"


def test_a_taken_name_is_refused(tmp_path):
    path = write(tmp_path, 'def llama3_8b_pretrain_config():\n    return derive("llama3_70b_peft_config")\n')
    with pytest.raises(UsageError, match="is a recipe of release"):
        find_recipe(f"{path}:llama3_8b_pretrain_config")


def test_all_unknown_paths_are_reported_with_near_misses(tmp_path):
    body = 'def mine():\n    return derive("llama3_8b_pretrain_config", {"train.global_batchsize": 1, "model.nonsense": 2})\n'
    with pytest.raises(UsageError) as caught:
        find_recipe(f"{write(tmp_path, body)}:mine")
    assert [problem.path for problem in caught.value.problems] == ["train.global_batchsize", "model.nonsense"]
    assert "'train.global_batch_size'" in caught.value.problems[0].message


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        ("def mine():\n    return 3\n", UsageError, "returned int, not a derived recipe"),
        ("def mine():\n    return derive('no_such_recipe')\n", UsageError, "unknown recipe 'no_such_recipe'"),
        ("def mine():\n    return derive('x', {'train.lr': object})\n", UsageError, "is not a configuration value"),
        ("def other():\n    pass\n", UsageError, "has no function 'mine'; it has other"),
        ("def mine():\n    raise ValueError('broken inside')\n", EnvironmentProblem, r"ValueError: broken inside \(mine.py:3\)"),
        ("def mine(:\n", EnvironmentProblem, "SyntaxError"),
        ("import os\ndef mine():\n    os._exit(9)\n", EnvironmentProblem, "ended with status 9"),
    ],
)
def test_what_gives_no_recipe_says_why(tmp_path, body, error, text):
    with pytest.raises(error, match=text):
        find_recipe(f"{write(tmp_path, body)}:mine")


def test_what_a_file_prints_does_not_disturb(tmp_path):
    path = write(tmp_path, "print('hello')\ndef mine():\n    print('{}')\n    return derive('llama3_8b_pretrain_config')\n")
    assert find_recipe(f"{path}:mine").fields["model.num_layers"] == 32


def test_an_endless_function_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(own, "SECONDS", 2.0)
    path = write(tmp_path, "def mine():\n    while True:\n        pass\n")
    with pytest.raises(EnvironmentProblem, match="did not return within 2 seconds"):
        find_recipe(f"{path}:mine")


def test_a_missing_file_or_function_is_named(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        find_recipe(f"{tmp_path / 'none.py'}:mine")
    with pytest.raises(UsageError, match="names no function"):
        find_recipe(str(write(tmp_path, "")))


def test_deriving_from_a_derived_recipe_adds_up():
    first = derive("llama3_8b_pretrain_config", {"train.train_iters": 5}, release="0.6.2")
    second = derive(first, {"train.global_batch_size": 8})
    assert second.base == "llama3_8b_pretrain_config"
    assert second.values == {"train.train_iters": 5, "train.global_batch_size": 8}
    assert second.release == "0.6.2"


def test_lint_takes_a_function_for_a_recipe(tmp_path, capsys):
    assert execute(["recipes", "lint", f"{EXAMPLE}:llama3_8b_4k_config"]) == 0
    assert "1 recipes of 0.6.2 checked" in capsys.readouterr().out
    values = '{"model.tensor_model_parallel_size": 3}'
    path = write(tmp_path, f'def mine():\n    return derive("llama3_8b_pretrain_config", {values})\n')
    assert execute(["recipes", "lint", f"{path}:mine"]) == 1
    assert "error[PAR004]" in capsys.readouterr().out


def test_check_takes_a_function_for_a_recipe(capsys):
    assert execute(["check", f"{EXAMPLE}:llama3_8b_4k_config", "--gpus", "8", "--gpu", "h100"]) in (0, 1)
    assert "cannot be read" not in capsys.readouterr().err
