import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SITE = ["--account", "A", "--partition", "P", "--container-image", "IMAGE"]
BENCHMARK = "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config"


def call(*words, **variables):
    environment = {"PATH": os.environ["PATH"], "PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "src"), **variables}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    done.stdout = done.stdout.replace(" \\\n    ", " ")  # one line a command
    return done


def test_the_documented_benchmark_command_is_rendered():
    done = call(
        "./scripts/training/train.sh",
        *("--nodes", "2", "--gpus-per-node", "8", *SITE, "--recipe", BENCHMARK, "--mode", "pretrain", "--dry-run"),
    )
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --nodes=2" in done.stdout
    assert f"--recipe {BENCHMARK} --mode pretrain" in done.stdout


def test_further_arguments_reach_the_training_program_as_typed():
    done = call(
        "./scripts/training/train.sh",
        *("--nodes", "1", "--gpus_per_node", "8", *SITE, "--srun-arg=--mpi=pmix", "--srun-arg=--container-writable"),
        *("--mount", "/data", "--env", "HF_TOKEN", "--recipe", "llama3_8b_pretrain_config", "--dataset", "mock"),
        *("-ms", "10", "model.cuda_graph_scope=[attn,moe]", "--submission-dry-run"),
        HF_TOKEN="hidden",
    )
    assert done.returncode == 0, done.stderr
    assert "--mpi=pmix --container-writable" in done.stdout
    assert "-ms 10" in done.stdout and "model.cuda_graph_scope=[attn,moe]" in done.stdout
    assert "hidden" not in done.stdout + done.stderr


def test_a_model_and_a_mode_select_a_recipe():
    done = call(
        "./scripts/training/train.sh",
        *("--nodes", "1", "--gpus-per-node", "8", *SITE, "--model", "gpt_oss_20b", "--mode", "sft", "--dry-run"),
    )
    assert "--recipe gpt_oss_20b_sft_config" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--recipe", BENCHMARK], 2, "--gpus-per-node"),
        (["--gpus-per-node", "8", "--recipe", BENCHMARK, "--env", "X=1", *SITE], 1, "does not divide 8"),
        (["--nodes", "2", "--gpus-per-node", "8", "--recipe", BENCHMARK, "--env", "X=1", *SITE], 2, "NAME only"),
        (["--nodes", "2", "--gpus-per-node", "8", "--recipe", BENCHMARK], 2, "--account"),
        (["--gpus-per-node", "8"], 2, "--recipe or --model"),
    ],
)
def test_what_is_missing_or_wrong_is_said(words, code, text):
    done = call("./scripts/training/train.sh", *words, "--dry-run")
    assert (done.returncode, text in done.stderr) == (code, True), done.stderr


def test_selectors_take_the_exact_benchmark():
    done = call(
        sys.executable,
        "scripts/performance/setup_experiment.py",
        *(
            "-m",
            "qwen",
            "-mr",
            "qwen3_30b_a3b",
            "--task",
            "pretrain",
            "-ng",
            "16",
            "-g",
            "h100",
            "-c",
            "bf16",
            "-a",
            "A",
            "--dryrun",
        ),
    )
    assert done.returncode == 0, done.stderr
    assert f"--recipe {BENCHMARK}" in done.stdout and "#SBATCH --nodes=2" in done.stdout
    assert "canonical" not in done.stderr


def test_selectors_resize_and_say_so():
    done = call(
        sys.executable,
        "scripts/performance/setup_experiment.py",
        *("-m", "qwen", "-mr", "qwen3_30b_a3b", "-ng", "128", "-g", "h100", "-ep", "8", "--detach", "true", "--dryrun"),
    )
    assert done.returncode == 0, done.stderr
    assert "model.expert_model_parallel_size=8" in done.stdout
    for text in ("no recipe for exactly 128", "4096 -> 8192", "no canonical measurement", "--detach has no effect"):
        assert text in done.stderr


def test_profiling_options_act_or_say_that_they_do_not():
    done = call(
        sys.executable,
        "scripts/performance/setup_experiment.py",
        *("-m", "qwen", "-mr", "qwen3_30b_a3b", "-ng", "16", "-g", "h100", "-en", "--profiling_start_step", "5"),
        *(
            "--profiling_stop_step",
            "7",
            "--profiling_ranks",
            "0,8",
            "--nsys_trace",
            "cuda",
            "--dump_env",
            "-pyp",
            "True",
            "--dryrun",
        ),
    )
    assert done.returncode in (0, 1), done.stderr
    text = done.stdout
    for override in (
        "use_nsys_profiler=true",
        "profile_step_start=5",
        "profile_step_end=7",
        "profile_ranks=",
        "use_pytorch_profiler=true",
    ):
        assert f"profiling.{override}" in text
    for name in ("--nsys_trace has no effect", "--dump_env has no effect", "not started under nsys"):
        assert name in done.stderr


def test_secrets_are_refused_by_name():
    done = call(
        sys.executable,
        "scripts/performance/setup_experiment.py",
        *("-m", "qwen", "-mr", "qwen3_30b_a3b", "-ng", "16", "-g", "h100", "-E", "HF_TOKEN=abc", "--dryrun"),
    )
    assert done.returncode == 2 and "abc" not in done.stdout + done.stderr
