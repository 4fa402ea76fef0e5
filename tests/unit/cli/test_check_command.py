import json
import re

import pytest

from autorecipe.cli.main import execute


def run(capsys, *words):
    code = execute(list(words))
    out = capsys.readouterr()
    return code, out.out, out.err


def test_shipped_recipe_passes_on_its_gpus(capsys):
    code, out, _ = run(capsys, "check", "llama3_8b_pretrain_config", "--gpus", "8", "--gpu", "h100")
    assert code == 0
    assert "passes:" in out


def test_error_makes_the_exit_status_one_and_names_ways_out(capsys):
    code, out, _ = run(
        capsys, "check", "qwen3_30b_a3b_pretrain_config", "model.expert_model_parallel_size=6", "--gpus", "16", "--gpu", "h100"
    )
    assert code == 1
    assert "error[PAR005]: num_moe_experts=128 is not a multiple of EP=6 (noticed at build)" in out
    assert "fix: model.expert_model_parallel_size=8  [execution; passes]" in out


def test_json_holds_the_same_report(capsys):
    code, out, _ = run(capsys, "check", "llama3_8b_16k_pretrain_config", "--gpus", "4", "--gpu", "h100", "--format", "json")
    report = json.loads(out)
    assert code == 1
    [finding] = [row for row in report["findings"] if row["rule"] == "PAR001"]
    assert finding["facts"]["minimum_gpus"] == 16
    assert all("layers" in fix for fix in finding["fixes"])


def test_fix_prints_overrides_that_pass(capsys):
    words = ["check", "qwen3_30b_a3b_pretrain_config", "model.expert_model_parallel_size=6", "--gpus", "16", "--gpu", "h100"]
    code, out, _ = run(capsys, *words, "--fix", "--format", "json")
    corrected = json.loads(out)["corrected"]
    assert code == 1
    assert corrected["remaining"] == []
    assert corrected["steps"][0]["layers"] == {"model.expert_model_parallel_size": "execution"}
    code, _, _ = run(capsys, "check", "qwen3_30b_a3b_pretrain_config", *corrected["overrides"], "--gpus", "16", "--gpu", "h100")
    assert code == 0


def test_file_with_bridge_paths_nested_or_flat(capsys, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("model:\n  tensor_model_parallel_size: 6\n  num_query_groups: 8\nmodel.num_attention_heads: 48\n")
    code, out, _ = run(capsys, "check", str(path), "--gpus", "48", "--gpu", "h100")
    assert code == 1
    assert "error[PAR003]: tp=6 does not fit num_query_groups=8" in out


def test_file_with_megatron_lm_options(capsys, tmp_path):
    path = tmp_path / "args.json"
    path.write_text(
        json.dumps({"--num-layers": 10, "pipeline_model_parallel_size": 4, "num_layers_per_virtual_pipeline_stage": 1})
    )
    code, out, _ = run(capsys, "check", str(path), "--framework", "megatron-lm", "--gpus", "4", "--gpu", "h100")
    assert code == 1
    assert "error[PIP011]" in out


def test_file_with_unknown_keys_fails_on_all_of_them(capsys, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("model.tensor_model_paralel_size: 2\ntrain.global_batchsize: 8\n")
    code, _, err = run(capsys, "check", str(path))
    assert code == 2
    assert "tensor_model_parallel_size" in err
    assert "global_batch_size" in err


@pytest.mark.parametrize("name", ["PAR002", "MC-WORLD-02", "par002"])
def test_explain_knows_rules_by_any_name(capsys, name):
    code, out, _ = run(capsys, "explain", name)
    assert code == 0
    assert out.startswith("PAR002: EP x ETP x PP must divide the number of GPUs")


def test_explain_field_lists_the_rules_that_read_it(capsys):
    code, out, _ = run(capsys, "explain", "model.expert_model_parallel_size")
    assert code == 0
    assert "PAR002" in out


def test_explain_suggests_near_misses(capsys):
    code, _, err = run(capsys, "explain", "MC-WORLD-03")
    assert code == 2
    assert "MC-WORLD-02" in err


def write(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_file_may_say_where_it_runs_and_the_command_line_wins(capsys, tmp_path):
    path = write(tmp_path, {"gpus": 8, "gpu": "h100", "tp": 4, "pp": 2, "cp": 2})
    assert run(capsys, "check", path)[0] == 1
    assert run(capsys, "check", path, "--gpus", "16")[0] == 0


def test_file_may_start_from_a_recipe(capsys, tmp_path):
    path = write(tmp_path, {"recipe": "llama3_8b_pretrain_config", "model.tensor_model_parallel_size": 16})
    code, out, _ = run(capsys, "check", path, "--gpus", "16", "--gpu", "h100")
    assert code == 1
    assert "error[PAR001]" in out


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"--seq-length": 32768, "--max-position-embeddings": 8192}, "SEQ003"),
        ({"--num-attention-heads": 32, "--num-query-groups": 8, "--group-query-attention": False}, "MDL007"),
        ({"--num-experts": 8, "--expert-model-parallel-size": 3}, "PAR005"),
        ({"--optimizer-cpu-offload": True, "--use-precision-aware-optimizer": False}, "REC028"),
        ({"--train-iters": 10, "--lr-warmup-iters": 20, "--lr-decay-iters": 10}, "SCH002"),
    ],
)
def test_megatron_lm_options_reach_the_rules(capsys, tmp_path, options, rule):
    code, out, _ = run(capsys, "check", write(tmp_path, options), "--framework", "megatron-lm", "--gpus", "24", "--gpu", "h100")
    assert code == 1
    assert f"error[{rule}]" in out


def test_negative_flag_and_its_destination_mean_opposite_values(capsys, tmp_path):
    base = {
        "--num-experts": 8,
        "--tensor-model-parallel-size": 2,
        "--sequence-parallel": True,
        "--expert-tensor-parallel-size": 2,
    }
    on = write(tmp_path, {**base, "add_bias_linear": True})
    assert "MOE015" in run(capsys, "check", on, "--framework", "megatron-lm", "--gpus", "8", "--gpu", "h100")[1]
    off = write(tmp_path, {**base, "--disable-bias-linear": True})
    assert "MOE015" not in run(capsys, "check", off, "--framework", "megatron-lm", "--gpus", "8", "--gpu", "h100")[1]


def test_not_a_pair_is_a_usage_error(capsys):
    code, _, err = run(capsys, "check", "llama3_8b_pretrain_config", "--env", "NCCL_ALGO")
    assert code == 2
    assert "'NCCL_ALGO' is not NAME=VALUE" in err


def test_here_looks_at_checkpoint_folders(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "nemo_experiments" / "default" / "checkpoints"
    folder.mkdir(parents=True)
    words = ["check", "llama3_8b_sft_config", "--gpus", "8", "--gpu", "h100", "--here"]
    assert "CKP002" not in run(capsys, *words)[1]
    (folder / "latest_checkpointed_iteration.txt").write_text("10")
    out = run(capsys, *words)[1]
    assert "warn[CKP002]" in out
    assert "the run resumes from it" in out


def test_a_japanese_report_carries_the_same_facts(capsys):
    words = (
        "check",
        "qwen3_30b_a3b_pretrain_config",
        "model.expert_model_parallel_size=6",
        "rng.seed=42",
        "model.seq_length=32768",
    )
    words = (*words, "--gpus", "16", "--gpu", "h100", "--fix", "--all")
    english, japanese = run(capsys, *words), run(capsys, *words, "--lang", "ja")
    assert english[0] == japanese[0] == 1
    for said, plain in zip(japanese[1:], english[1:], strict=True):
        facts = [set(re.findall(r"[A-Z]{3}\d{3}|[\w.]+=[\w.]+|--[a-z]+|\b\d+\b", text)) for text in (said, plain)]
        assert facts[0] == facts[1]
        for line in said.splitlines()[1:]:
            assert re.search("[\u3040-\u9fff]", line), line
            assert re.search(r"(?<![\w./=-])[a-z]{2,}(?: [a-z]{2,}){2,}", line) is None, line


def test_japanese_findings_in_json(capsys):
    words = ("check", "llama3_8b_pretrain_config", "--gpus", "6", "--gpu", "h100", "--format", "json")
    english, japanese = (json.loads(run(capsys, *words, "--lang", lang)[1])["findings"] for lang in ("en", "ja"))
    said = ("message", "hint", "fixes")
    assert [{key: row[key] for key in row if key not in said} for row in english] == [
        {key: row[key] for key in row if key not in said} for row in japanese
    ]
    assert "の倍数ではない" in japanese[0]["message"]


def test_an_error_of_a_japanese_check_is_japanese(capsys):
    assert run(capsys, "check", "llama3_8x", "--lang", "ja")[2].startswith("エラー[unknown-recipe]: 未知のレシピ 'llama3_8x'")


def test_explain_shows_traps_and_codes(capsys):
    code, out, _ = run(capsys, "explain", "trap-sp")
    assert code == 0 and out.startswith("TRAP-SP: when sequence_parallel is on")
    code, out, _ = run(capsys, "explain", "TRAP-SEQ")
    assert code == 0 and "TRAP-SEQ: when" in out and "SEQ002:" in out
    code, out, _ = run(capsys, "explain", "unset-section", "--format", "json")
    assert code == 0 and json.loads(out)["meaning"].startswith("an override of a field")


@pytest.mark.parametrize(
    ("typed", "meant"), [("unset-sectoin", "unset-section"), ("TRAP-SEC", "TRAP-SEQ"), ("PAR0033", "PAR003")]
)
def test_explain_names_codes_that_were_probably_meant(capsys, typed, meant):
    code, _, err = run(capsys, "explain", typed)
    assert code == 2 and meant in err
