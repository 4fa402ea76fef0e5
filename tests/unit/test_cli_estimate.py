import json

from autorecipe.cli.main import execute


def test_memory_prints_a_verdict_and_its_own_error(capsys):
    assert execute(["estimate", "memory", "llama3_8b_pretrain_config", "--gpus", "16", "--gpu", "b200"]) == 0
    out = capsys.readouterr().out
    assert "verdict: FITS" in out
    assert "own error on" in out
    assert "not modelled:" in out


def test_memory_that_does_not_fit_is_exit_one(capsys):
    command = ["estimate", "memory", "--model", "meta-llama/Meta-Llama-3-70B", "--gpus", "8", "--gpu", "h100", "--format", "json"]
    assert execute(command) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["verdict"] == "OOM"
    assert result["stages"][0]["weights_bytes"] > 100e9


def test_time_prints_the_breakdown_and_the_budget(capsys):
    command = ["estimate", "time", "llama3_70b_pretrain_64gpu_h100_bf16_config", "--tokens", "1e12", "--price", "2.5"]
    assert execute([*command, "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["time"]["mfu_precision"] == "bf16"
    assert result["budget"]["cost"] > 0
    low, high = result["time"]["interval_seconds"]
    assert low < result["time"]["step_seconds"] < high


def test_what_is_missing_is_said_at_once(capsys):
    assert execute(["estimate", "memory", "--model", "Qwen/Qwen3-8B"]) == 2
    err = capsys.readouterr().err
    assert "--gpus" in err
    assert "--gpu" in err


def test_a_layout_that_does_not_divide_the_gpus_is_refused_with_a_count_that_works(capsys):
    assert execute(["estimate", "time", "llama3_8b_pretrain_config", "--gpus", "7", "--gpu", "h100"]) == 2
    assert "use --gpus 8" in capsys.readouterr().err


def test_a_local_config_is_read(tmp_path, capsys):
    config = {
        "model_type": "qwen3",
        "num_hidden_layers": 28,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert execute(["estimate", "memory", "--model", str(tmp_path), "--gpus", "1", "--gpu", "h100", "--format", "json"]) == 0
    stage = json.loads(capsys.readouterr().out)["stages"][0]
    assert stage["parameters"] == 596_049_920


def test_a_file_that_is_no_model_is_an_error(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    assert execute(["estimate", "memory", "--model", str(tmp_path), "--gpus", "1", "--gpu", "h100"]) == 2
    assert "num_hidden_layers" in capsys.readouterr().err
