import json

import pytest

from autorecipe.cli.main import execute


def run(capsys, *arguments):
    code = execute(list(arguments))
    return code, capsys.readouterr()


def test_list_filters_add_up(capsys):
    code, printed = run(capsys, "recipes", "list", "--family", "llama", "--mode", "peft", "--kind", "library", "--format", "json")
    assert code == 0
    rows = json.loads(printed.out)
    assert {(row["family"], row["mode"], row["kind"]) for row in rows} == {("llama", "peft", "library")}
    assert "llama3_70b_peft_config" in {row["name"] for row in rows}


def test_listed_recipes_fit_the_gpus_at_hand(capsys):
    _, printed = run(capsys, "recipes", "list", "--gpus", "8", "--long-context", "--format", "json")
    rows = json.loads(printed.out)
    assert rows
    assert all(8 % row["minimum_gpus"] == 0 and row["seq_length"] > 8192 for row in rows)


def test_an_empty_list_is_a_negative_answer(capsys):
    code, printed = run(capsys, "recipes", "list", "--family", "llama", "--modality", "diffusion")
    assert code == 1
    assert "no recipe fits" in printed.err


def test_a_mistyped_filter_is_an_error_and_not_an_empty_list(capsys):
    code, printed = run(capsys, "recipes", "list", "--family", "lama", "--gpu", "h1000", "--precision", "bf61")
    assert code == 2
    assert "did you mean 'llama'" in printed.err
    assert "did you mean 'h100'" in printed.err
    assert "did you mean 'bf16'" in printed.err


def test_precisions_are_known_as_launchers_spell_them(capsys):
    spellings = ("fp8_mx", "FP8MX", "mxfp8")
    rows = [json.loads(run(capsys, "recipes", "list", "--precision", text, "--format", "json")[1].out) for text in spellings]
    assert rows[0] and rows[0] == rows[1] == rows[2]


def test_text_is_not_cut_off(capsys):
    _, printed = run(capsys, "recipes", "list", "--family", "deepseek")
    assert "deepseek_v3_pretrain_1024gpu_h100_bf16_config@library" in printed.out
    assert "…" not in printed.out


def test_show_has_values_that_take_effect_and_provenance(capsys):
    _, printed = run(capsys, "recipes", "show", "llama3_8b_pretrain_config", "--format", "json")
    sections = json.loads(printed.out)["sections"]
    assert sections["identity"]["alias_of"] == "llama3_8b_pretrain_2gpu_h100_bf16_config"
    assert sections["identity"]["source"] == "megatron/bridge/recipes/llama/h100/llama3.py:235"
    assert sections["parallelism"]["cp"] == sections["parallelism"]["minimum_gpus"] == 2
    assert sections["optimizer"]["weight_decay"] == 0.033  # the scheduler writes it over the optimizer's 0.1
    assert sections["data"]["default_preset"] == "mock"


def test_show_names_the_other_recipe_of_a_shared_name(capsys):
    name = "llama3_70b_peft_8gpu_h100_bf16_config"
    assert f"also exported as {name}@library" in run(capsys, "recipes", "show", name)[1].out
    sections = json.loads(run(capsys, "recipes", "show", f"{name}@library", "--format", "json")[1].out)["sections"]
    assert sections["peft"]["with_dora"]["peft._class"] == "DoRA"


def test_workload_is_for_benchmarks_alone(capsys):
    code, printed = run(
        capsys, "recipes", "show", "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config", "--workload", "--format", "json"
    )
    workload = json.loads(printed.out)
    assert code == 0
    assert (workload["num_gpus"], workload["gpu"], workload["expert_model_parallel_size"]) == (16, "h100", 16)
    assert run(capsys, "recipes", "show", "llama3_8b_pretrain_config", "--workload")[0] == 1


def test_search_says_what_did_not_fit(capsys):
    code, printed = run(capsys, "recipes", "search", "llama3", "8b", "qlora4bit")
    assert code == 0
    assert "nothing fits 'qlora4bit'" in printed.err
    assert run(capsys, "recipes", "search", "xyzzy")[0] == 1


def test_diff_exit_codes(capsys):
    alias, target = "llama3_8b_pretrain_config", "llama3_8b_pretrain_2gpu_h100_bf16_config"
    assert run(capsys, "recipes", "diff", alias, target)[0] == 0
    code, printed = run(capsys, "recipes", "diff", alias, "llama3_8b_16k_pretrain_config", "--format", "json")
    assert code == 1
    assert any(row["path"] == "dataset.seq_length" and row["layer"] == "convergence" for row in json.loads(printed.out))
    assert run(capsys, "recipes", "diff", alias)[0] == 2


def test_lint_separates_broken_from_waiting(capsys):
    names = [
        "llama3_8b_pretrain_config",
        "llama3_70b_peft_config",
        "qwen3_next_80b_a3b_peft_config",
        "nemotron_3_super_pretrain_64gpu_b200_nvfp4_config",
        "glm45_355b_pretrain_config",
    ]
    code, printed = run(capsys, "recipes", "lint", *names, "--format", "json")
    report = json.loads(printed.out)
    assert code == 1
    reasons = {row["recipe"]: row["reason"] for row in report["broken"]}
    assert reasons["qwen3_next_80b_a3b_peft_1gpu_h100_bf16_config"] == "raises"
    assert reasons["nemotron_3_super_pretrain_64gpu_b200_nvfp4_config"] == "missing file"
    assert "llama3_8b_pretrain_config" not in reasons
    assert report["checked"] == 5
    assert run(capsys, "recipes", "lint", "llama3_8b_pretrain_config")[0] == 0


def test_models(capsys, tmp_path):
    _, printed = run(capsys, "models", "show", "Qwen/Qwen3-30B-A3B", "--format", "json")
    page = json.loads(printed.out)
    assert page["count"]["total"] == page["card"]["num_parameters"] == 30532122624
    assert {
        row["hf_model_id"] for row in json.loads(run(capsys, "models", "list", "--search", "gpt-oss", "--format", "json")[1].out)
    } == {
        "openai/gpt-oss-120b",
        "openai/gpt-oss-20b",
    }
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    code, printed = run(capsys, "models", "show", "--hf-config", str(tmp_path))
    assert code == 2
    assert "no decoder LLM" in printed.err
    assert run(capsys, "models", "show", "Qwen/Qwen3-30B-A3")[0] == 2


@pytest.mark.parametrize("command", ["list", "show", "search", "diff", "lint"])
def test_help(capsys, command):
    assert run(capsys, "recipes", command, "--help")[0] == 0
