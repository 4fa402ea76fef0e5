import subprocess

import pytest

from autorecipe.launch.slurm import check_job, render_slurm
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
        "#SBATCH --signal=TERM@120",
    ):
        assert line in script.splitlines()


def test_names_are_forwarded_and_values_never_written(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "very-secret")
    script = render().script
    assert "#SBATCH --export=PATH,HOME,USER,LANG,HF_TOKEN" in script
    assert "--container-env=HF_TOKEN,MASTER_ADDR,MASTER_PORT,NCCL_X" in script
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
    assert '--node_rank="$SLURM_NODEID"' in script
    assert "rdzv" not in render(nodes=1).script


def test_the_script_is_valid_shell(tmp_path):
    path = tmp_path / "run.sbatch"
    for options in ({}, {"overrides": ["a.b='it''s'", "c=[x,y]", 'd="q"']}):
        path.write_text(render(**options).script)
        subprocess.run(["bash", "-n", str(path)], check=True)


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
