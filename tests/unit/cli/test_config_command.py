import json

import pytest

from autorecipe.cli.main import execute

RECIPE = "llama3_8b_pretrain_config"


def run(capsys, *arguments):
    code = execute(["config", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_show_says_where_each_value_came_from(capsys):
    code, out, err = run(capsys, "show", RECIPE, "train.train_iters=2000000", "model.seq_length=9", "--origins")
    assert code == 0
    lines = {line.split(" = ")[0].strip(): line for line in out.splitlines()}
    assert "[override: train.train_iters=2000000]" in lines["train.train_iters"]
    assert "[derived: dataset.seq_length=8192 owns the sequence" in lines["model.seq_length"]
    assert "[preset: mixed_precision=bf16_mixed" in lines["optimizer.params_dtype"]
    assert "[model-card: meta-llama/Meta-Llama-3-8B]" in lines["model.hidden_size"]
    assert "[default]" in lines["rng.data_parallel_random_init"]
    assert "[recipe: " in lines["optimizer.lr"]
    assert err.startswith("note: TRAP-SEQ: model.seq_length=9 does not act")


def test_show_filters_by_section_and_origin(capsys):
    _, out, _ = run(capsys, "show", RECIPE, "--section", "rng")
    assert {line.split(".")[0] for line in out.splitlines()} == {"rng"}
    _, out, _ = run(capsys, "show", RECIPE, "train.train_iters=3000000", "--from", "override")
    assert out.split() == ["train.train_iters", "=", "3000000"]
    code, _, err = run(capsys, "show", RECIPE, "--section", "modl")
    assert code == 2
    assert "did you mean 'model'" in err


def test_show_as_json_is_a_file_that_diff_reads(capsys, tmp_path):
    code, out, _ = run(capsys, "show", RECIPE, "--format", "json")
    assert code == 0
    file = tmp_path / "run.json"
    file.write_text(out)
    code, out, _ = run(capsys, "diff", RECIPE, str(file))
    assert code == 0
    assert out.splitlines() == ["verdict: identical"]


def test_diff_exits_1_when_convergence_moved_unless_allowed(capsys):
    other = f"{RECIPE} optimizer.lr=1e-5 train.micro_batch_size=2"
    code, out, _ = run(capsys, "diff", RECIPE, other)
    assert code == 1
    assert "convergence: 1" in out
    assert "optimizer.lr  0.0003 -> 1e-05" in out
    assert "verdict: new convergence experiment" in out
    assert run(capsys, "diff", RECIPE, other, "--allow", "convergence")[0] == 0
    assert run(capsys, "diff", RECIPE, f"{RECIPE} train.micro_batch_size=2")[0] == 0


def test_diff_reports_values_that_do_not_act(capsys):
    code, out, _ = run(capsys, "diff", RECIPE, f"{RECIPE} optimizer.weight_decay=0.5")
    assert code == 0
    assert "inert (given differently, does not act): 1" in out
    assert "verdict: identical" in out


def test_diff_as_json_has_one_row_a_change(capsys):
    _, out, _ = run(capsys, "diff", RECIPE, f"{RECIPE} optimizer.lr=1e-5", "--format", "json")
    result = json.loads(out)
    (change,) = result["changes"]
    assert change == {
        "path": "optimizer.lr",
        "before": 0.0003,
        "after": 1e-05,
        "layer": "convergence",
        "reason": "optimizer hyperparameter",
        "inert": False,
    }
    assert result["verdict"]["label"] == "new convergence experiment"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["show", "llama3_8b_pretrain_confg"], 2, "llama3_8b_pretrain_config"),
        (["show", RECIPE, "model.tp=2"], 2, "model.tensor_model_parallel_size"),
        (["diff", RECIPE, ""], 2, "one side is empty"),
        (["diff", RECIPE, "nowhere.yaml"], 3, "No such file"),
        (["diff", RECIPE, f"{RECIPE} 'a"], 2, "No closing quotation"),
        (["schema", "model.num_layer"], 2, "model.num_layers"),
        (["cohort", RECIPE], 2, "at least two members"),
        (["cohort", RECIPE, RECIPE], 2, "given twice"),
    ],
)
def test_mistakes_are_explained(capsys, arguments, code, text):
    found, _, err = run(capsys, *arguments)
    assert found == code
    assert text in err


def test_every_wrong_override_is_reported_at_once(capsys):
    code, _, err = run(capsys, "show", RECIPE, "model.tp=2", "train.train_iters=x", "dataset.split=1,2")
    assert code == 2
    assert [line.split(":")[0] for line in err.splitlines() if line.startswith("error")] == [
        "error[unknown-key]",
        "error[wrong-type]",
        "error[override-syntax]",
    ]


def test_schema_shows_a_field_with_its_trap(capsys):
    code, out, _ = run(capsys, "schema", "optimizer.weight_decay")
    assert code == 0
    assert "TRAP-WD: when optimizer.weight_decay is overridden alone, it does not act" in out
    assert "rules     BR-WD-01" in out


def test_schema_lists_a_section_by_layer(capsys):
    _, out, _ = run(capsys, "schema", "rng", "--layer", "convergence", "--format", "json")
    assert [page["path"] for page in json.loads(out)] == ["rng.data_parallel_random_init", "rng.seed"]


def test_cohort_lists_deviations_and_the_overrides_that_align(capsys, tmp_path):
    contract = tmp_path / "contract.yaml"
    contract.write_text("name: bounded\nvalues: {train.global_batch_size: 256}\ntoken_checkpoints: [1048576000]\n")
    members = ["llama3_8b_pretrain_config", "llama32_1b_pretrain_config"]
    code, out, _ = run(capsys, "cohort", *members, "--contract", str(contract))
    assert code == 1
    assert "contract: bounded" in out
    assert "align llama32_1b_pretrain_config with:" in out
    assert "train.global_batch_size=256" in out
    assert "the result may be called: not convergence evidence: benchmark or mock members" in out
