import json

import pytest

from autorecipe.api.launch import (
    LaunchRequest,
    further_words,
    plan_slurm,
    prepare_launch,
    start,
)
from autorecipe.api.selectors import select_benchmark, select_recipe
from autorecipe.cli.main import execute
from autorecipe.errors import NegativeAnswer, UsageError
from autorecipe.schema.launch import SlurmJob

BENCHMARK = "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config"


def prepare(recipe, **options):
    options.setdefault("environment", {})
    return prepare_launch(LaunchRequest(recipe=recipe, **options))


def test_hosts_and_gpus_come_from_the_recipe():
    prepared = prepare("llama3_70b_pretrain_config")
    assert (prepared.allocation.num_nodes, prepared.allocation.gpus_per_node) == (4, 8)
    assert "TP4 PP4 VP5 CP2 SP, DP=1, 512 micro batches" in prepared.messages[0]


def test_an_allocation_that_the_layout_does_not_fit_is_refused():
    with pytest.raises(NegativeAnswer, match="does not divide 8"):
        prepare("llama3_70b_pretrain_config", nodes=1, gpus_per_node=8)


def test_the_layout_is_read_from_the_resolved_configuration_and_not_from_a_name():
    overrides = ("model.expert_model_parallel_size=4", "model.pipeline_model_parallel_size=1")
    prepared = prepare("qwen3_30b_a3b_pretrain_config", nodes=1, gpus_per_node=8, overrides=overrides)
    assert "EP4" in prepared.messages[0]


def test_a_benchmark_on_another_count_says_what_it_trains_with():
    messages = prepare(BENCHMARK, nodes=4, gpus_per_node=8).messages
    (warning,) = [message for message in messages if message.startswith("warn")]
    assert "exactly 16 GPUs and gets 32" in warning and "1024 -> 2048" in warning
    kept = prepare(BENCHMARK, nodes=4, gpus_per_node=8, overrides=("train.global_batch_size=1024",)).messages
    assert any("kept at 1024" in message for message in kept)
    assert any("no canonical measurement" in message for message in kept)


def test_the_exact_count_of_a_benchmark_is_silent():
    assert not [message for message in prepare(BENCHMARK, nodes=2, gpus_per_node=8).messages if "warn" in message]


def test_a_shell_variable_that_replaces_the_recipes_is_told():
    prepared = prepare("llama3_8b_pretrain_config", environment={"NCCL_NVLS_ENABLE": "1"})
    assert any("NCCL_NVLS_ENABLE=1 of this shell replaces" in message for message in prepared.messages)


def test_everything_wrong_with_a_submission_is_said_at_once():
    prepared = prepare("llama3_8b_pretrain_config", nodes=1, gpus_per_node=8)
    job = SlurmJob(forwarded=("A=1",), mounts=(":x",), srun_arguments=("",), time_limit="soon")
    with pytest.raises(UsageError) as caught:
        plan_slurm(prepared, job, script_path="x", needs_site=True)
    assert len(caught.value.problems) == 7


def test_a_run_with_errors_is_not_started():
    prepared = prepare(
        "llama3_8b_pretrain_config", nodes=1, gpus_per_node=8, overrides=("model.num_query_groups=8", "train.micro_batch_size=3")
    )
    assert prepared.errors
    with pytest.raises(NegativeAnswer):
        start(plan_slurm(prepared, SlurmJob(), script_path="x"), prepared, script_path="x")


def test_what_a_request_says_itself_is_not_passed_on_twice():
    words = ["--recipe", "r", "--mode=sft", "--dataset", "squad", "-ms", "10", "a.b=1", "--step-func", "llm_step"]
    assert further_words(words) == ("-ms", "10", "a.b=1", "--step-func", "llm_step")


def test_a_job_sees_only_what_is_passed_on_to_it():
    given = {"environment": {"NCCL_NVLS_ENABLE": "1"}}
    assert not [text for text in prepare("llama3_8b_pretrain_config", inherited=(), **given).messages if "replaces" in text]
    assert [
        text
        for text in prepare("llama3_8b_pretrain_config", inherited=("NCCL_NVLS_ENABLE",), **given).messages
        if "replaces" in text
    ]


def test_unknown_names_are_refused_before_the_job_waits_and_all_at_once():
    with pytest.raises(UsageError) as caught:
        prepare("llama3_8b_sft_config", dataset="sqaud", mode="sftt", gpu="h1000")
    assert [problem.code for problem in caught.value.problems] == ["unknown-dataset", "unknown-mode", "unknown-gpu"]
    assert "did you mean 'squad'" in caught.value.problems[0].message


def test_a_job_name_that_promises_another_layout_is_told():
    findings = prepare(BENCHMARK, name="run_pp2_ep2_etp1").findings
    (found,) = [finding for finding in findings if finding.rule == "LCH007"]
    assert "pp=2 in the name, 1 in the configuration" in found.message


def test_what_a_site_may_get_wrong_is_told():
    prepared = prepare("llama3_8b_pretrain_config", nodes=1, gpus_per_node=8)
    job = SlurmJob(container_image="i", exclusive=False)
    told = plan_slurm(prepared, job, script_path="x").messages
    assert any("--container-workdir" in text for text in told) and any("cpus-per-task" in text for text in told)
    job = SlurmJob(container_image="i", working_directory="/w", exclusive=False, sbatch_options={"cpus-per-task": "64"})
    assert plan_slurm(prepared, job, script_path="x").messages == prepared.messages


def test_selectors_find_recipes():
    assert select_recipe(model="gpt_oss_20b", mode="lora") == "gpt_oss_20b_peft_config"
    exact = {"model": "qwen3_30b_a3b", "task": "pretrain", "gpu": "h100", "precision": "bf16"}
    assert select_benchmark(gpus=16, **exact) == (BENCHMARK, ())
    name, notes = select_benchmark(gpus=128, **exact)
    assert name == "qwen3_30b_a3b_pretrain_64gpu_h100_bf16_config" and "no recipe for exactly 128" in notes[0]
    with pytest.raises(UsageError, match="no benchmark recipe"):
        select_benchmark(gpus=8, **exact | {"gpu": "h200"})
    with pytest.raises(UsageError, match="models with a pretrain benchmark: qwen3_30b_a3b"):
        select_benchmark(gpus=8, **exact | {"model": "qwen3_30b_a3"})


def test_the_command_line_shows_and_does_not_start(capsys):
    assert execute(["launch", "local", "llama3_8b_pretrain_config", "--gpus-per-node", "8", "--dataset", "mock"]) == 0
    shown = capsys.readouterr()
    assert "--nproc_per_node=8 scripts/training/run_recipe.py" in shown.out.replace("\\\n    ", "")
    assert "DP=4" in shown.err


def test_the_command_line_renders_slurm_as_json(capsys):
    words = ["launch", "slurm", "llama3_70b_pretrain_config", "model.seq_length=8192", "--nodes", "4", "--format", "json"]
    assert execute(words) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["target"] == "slurm"
    assert plan["allocation"] == {"num_nodes": 4, "gpus_per_node": 8}
    assert "#SBATCH --nodes=4" in plan["script"]


def test_a_value_in_env_is_refused_on_the_command_line(capsys):
    assert execute(["launch", "slurm", "llama3_8b_pretrain_config", "--env", "HF_TOKEN=secret"]) == 2
    assert "secret" not in capsys.readouterr().err


def test_a_recipe_of_ones_own_is_started_by_its_file(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(
        "from autorecipe.api.recipes import derive\n\n\n"
        "def my_llama_config():\n"
        '    return derive("llama3_8b_pretrain_config", {"train.global_batch_size": 256})\n'
    )
    target = f"{path}:my_llama_config"
    assert execute(["launch", "local", target, "--nodes", "1", "--gpus-per-node", "8", "--dataset", "mock"]) == 0
    shown = capsys.readouterr()
    assert f"--recipe {target} --mode pretrain --dataset mock" in " ".join(shown.out.replace("\\\n", " ").split())
    assert "64 micro batches" in shown.err
