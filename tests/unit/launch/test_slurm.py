import os
import shutil
import subprocess
from pathlib import Path

import pytest

from autorecipe.launch.slurm import check_job, notice_seconds, render_slurm, time_limit_seconds
from autorecipe.launch.training import build_training_command
from autorecipe.schema.launch import Allocation, SlurmJob

JOB = SlurmJob(
    account="acct",
    partition="batch",
    job_name="llama3",
    container_image="nvcr.io#nvidia/nemo:26.08",
    mounts=("/data:/data",),
    forwarded=("HF_TOKEN",),
    srun_arguments=("--mpi=pmix", "--container-writable"),
)


def render(job=JOB, nodes=2, gpus=8, **options):
    command = build_training_command(recipe="r_config", dataset="mock", environment={"NCCL_X": "1"}, **options)
    return render_slurm(
        command, Allocation(num_nodes=nodes, gpus_per_node=gpus), job, recipe="r_config", script_path="run.sbatch"
    )


def test_the_script_asks_for_the_allocation():
    script = render().script
    for line in (
        "#SBATCH --account=acct",
        "#SBATCH --partition=batch",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --gpus-per-node=8",
        "#SBATCH --output=logs/%x-%j.log",
        "#SBATCH --requeue",
        "#SBATCH --open-mode=append",
        "#SBATCH --signal=B:TERM@120",
    ):
        assert line in script.splitlines()


def test_names_are_forwarded_and_values_never_written(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "very-secret")
    script = render().script
    assert "#SBATCH --export=PATH,HOME,USER,LANG,HF_TOKEN" in script
    assert "--container-env=HF_TOKEN,MASTER_ADDR,MASTER_PORT,NCCL_X,TORCH_ELASTIC_SHUTDOWN_TIMEOUT" in script
    assert "very-secret" not in script


def test_the_script_reaches_the_step_with_what_it_exports():
    script = render().script
    assert 'export NCCL_X="${NCCL_X:-1}"' in script
    assert "--export=ALL" in script


def test_every_srun_argument_is_passed_on_as_one_word():
    script = render(JOB.__class__(srun_arguments=("--mpi=pmix", "--comment=two words"))).script
    assert "--mpi=pmix" in script
    assert "'--comment=two words'" in script


def test_hosts_meet_on_the_first_one_of_the_job():
    script = render().script
    assert 'scontrol show hostnames "$SLURM_JOB_NODELIST"' in script
    assert '--rdzv_endpoint="$MASTER_ADDR:$MASTER_PORT"' in script
    assert "rdzv" not in render(nodes=1).script


ODD = {"overrides": ["a.b='it''s'", "c=[x,y]", 'd="q"', "e=$HOME `id` \\"]}
SCRIPTS = [
    (JOB, {}),
    (JOB, ODD),
    (SlurmJob(requeue=False, exclusive=False), ODD),
    (SlurmJob(job_name="a name", log_dir="log dir", signal_seconds=0, variables={"A": "it's $5"}), {"nodes": 1}),
    (SlurmJob(mounts=("/a b:/c",), container_image="i", working_directory="/w d", setup=("module load cuda",)), {"nodes": 1}),
]


@pytest.mark.parametrize(("job", "options"), SCRIPTS)
def test_the_script_is_valid_shell(job, options, tmp_path):
    path = tmp_path / "run.sbatch"
    path.write_text(render(job, **options).script)
    subprocess.run(["bash", "-n", str(path)], check=True)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="no shellcheck here")
def test_a_linter_has_nothing_to_say_of_any_script(tmp_path):
    paths = []
    for number, (job, options) in enumerate(SCRIPTS):
        paths.append(tmp_path / f"{number}.sbatch")
        paths[-1].write_text(render(job, **options).script)
    paths += (Path(__file__).parents[3] / "scripts").rglob("*.sh")
    done = subprocess.run(["shellcheck", "--severity=warning", *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_words_reach_the_program_as_they_were_typed(tmp_path):
    """Run the script with pretended srun and Slurm commands, and look at what arrives."""
    for name, text in {
        "srun": 'while [ "$1" != bash ]; do shift; done; exec "$@"',
        "python": "printf '%s\\n' \"$@\"",
        "scontrol": "echo host1",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    path = tmp_path / "run.sbatch"
    path.write_text(render(**ODD).script)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "host[1-2]"}
    done = subprocess.run(["bash", str(path)], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-len(ODD["overrides"]) :] == ODD["overrides"]
    assert "--rdzv_endpoint=host1:29500" in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("5:30", 330),
        ("1:00:00", 3600),
        ("2-12", 216000),
        ("1-00:30", 88200),
        ("1-00:00:01", 86401),
        ("soon", None),
        ("UNLIMITED", 0),
    ],
)
def test_times_are_read_as_slurm_reads_them(text, seconds):
    assert time_limit_seconds(text) == seconds


def test_jobs_that_share_a_host_do_not_meet_at_one_port():
    assert "--standalone" in render(SlurmJob(exclusive=False), nodes=1).script
    assert 'MASTER_PORT="${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 20000))}"' in render(SlurmJob(exclusive=False)).script
    assert "--standalone" not in render(nodes=1).script and "MASTER_PORT:-29500" in render().script


@pytest.mark.parametrize(("limit", "seconds"), [("04:00:00", 120), ("00:05:00", 75), ("1", 15)])
def test_a_short_job_does_not_start_with_the_notice_of_its_end(limit, seconds):
    job = SlurmJob(time_limit=limit)
    assert notice_seconds(job) == seconds
    assert f"#SBATCH --signal=B:TERM@{seconds}" in render(job).script.splitlines()
    assert f'export TORCH_ELASTIC_SHUTDOWN_TIMEOUT="${{TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-{seconds}}}"' in render(job).script


def test_a_job_that_may_not_start_again_hands_the_signal_to_the_training_alone():
    script = render(SlurmJob(requeue=False)).script
    assert "#SBATCH --signal=TERM@120" in script.splitlines()
    assert "trap" not in script and "scontrol requeue" not in script


def test_whole_node_clusters_are_not_asked_for_gpus():
    assert "gpus-per-node" not in render(SlurmJob(requests_gpus=False)).script
    script = render(SlurmJob(gres="gpu:h100:8")).script
    assert "#SBATCH --gres=gpu:h100:8" in script and "gpus-per-node=8\n" not in script


def test_site_options_are_passed_on():
    script = render(SlurmJob(sbatch_options={"segment": "4", "contiguous": ""}, requeue=False)).script
    assert "#SBATCH --segment=4" in script.splitlines()
    assert "#SBATCH --contiguous" in script.splitlines()
    assert "#SBATCH --no-requeue" in script.splitlines()


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (SlurmJob(srun_arguments=("",)), "launch-srun-argument"),
        (SlurmJob(time_limit="soon"), "launch-time-limit"),
        (SlurmJob(account="x\n#SBATCH --nodes=9"), "launch-site-option"),
        (SlurmJob(sbatch_options={"": "x"}), "launch-site-option"),
        (SlurmJob(sbatch_options={"qos": "a\nb"}), "launch-site-option"),
    ],
)
def test_what_slurm_would_refuse_is_refused_before(job, code):
    assert code in [problem.code for problem in check_job(job)]


def test_a_site_needs_account_partition_and_image():
    assert [problem.path for problem in check_job(SlurmJob(), needs_site=True)] == [
        "--account",
        "--partition",
        "--container-image",
    ]
    assert check_job(JOB, needs_site=True) == []
