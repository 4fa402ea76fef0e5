"""Jobs on a real Slurm, where it is installed (Debian: slurm-wlm and munge; scripts/dev/install_slurm.sh)."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_cluster import missing_programs, run_cluster, wait_until

from autorecipe.launch.slurm import render_slurm
from autorecipe.launch.submission import submit_slurm
from autorecipe.launch.training import build_training_command
from autorecipe.schema.launch import Allocation, SlurmJob, TrainingCommand

pytestmark = [
    pytest.mark.skipif(bool(missing_programs()), reason=f"no Slurm here: {', '.join(missing_programs())} missing"),
    pytest.mark.xdist_group("slurm"),
]

WORKER = """
import os
names = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "CARRIED", "FORWARDED", "HIDDEN")
print("worker", *(f"{name}={os.environ.get(name)}" for name in names), flush=True)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with run_cluster(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


def job(folder, **options):
    return SlurmJob(
        time_limit="00:05:00",
        job_name="pretended",
        log_dir=str(folder / "logs"),
        requests_gpus=False,
        exclusive=False,
        setup=("export MASTER_ADDR=127.0.0.1",),
        working_directory=str(folder),
        **options,
    )


def pretend_python(folder, text):
    """Give an interpreter that runs these shell lines instead of torch.distributed.run."""
    path = folder / "python"
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return str(path)


def submit(folder, python, *, nodes=1, **options):
    plan = render_slurm(
        build_training_command(recipe="r_config", overrides=["a.b='x y'"], environment={"CARRIED": "by the recipe"}),
        Allocation(num_nodes=nodes, gpus_per_node=1),
        job(folder, **options),
        recipe="r_config",
        script_path="run.sbatch",
        python=python,
    )
    return submit_slurm(plan, script_path=folder / "run.sbatch")


def shown(number, cluster):
    words = ["scontrol", "show", "job", number]
    text = subprocess.run(words, env=cluster, capture_output=True, text=True, check=True).stdout
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def wait_for(number, cluster, *, state):
    """Wait for the end of a job; `sbatch --wait` looks every ten seconds only."""
    wait_until(lambda: shown(number, cluster)["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"), seconds=60)
    assert shown(number, cluster)["JobState"] == state


@pytest.fixture
def here(cluster, tmp_path, monkeypatch):
    """Give a folder, in a shell that reaches the cluster."""
    for name, value in cluster.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def test_one_task_a_host_gets_its_words_and_variables(here, cluster, monkeypatch):
    monkeypatch.setenv("FORWARDED", "secret value")
    monkeypatch.setenv("HIDDEN", "not asked for")
    python = pretend_python(here, 'printf "%s|" "$SLURM_NODEID" "$CARRIED" "$FORWARDED" "$SET" "${HIDDEN-}" "$@"; echo')
    done = submit(here, python, nodes=2, forwarded=("FORWARDED",), variables={"SET": "by the job"})
    wait_for(done.job_id, cluster, state="COMPLETED")
    log = Path(done.log_path).read_text()
    port = 20000 + int(done.job_id)
    words = f"-m|torch.distributed.run|--nnodes=2|--rdzv_backend=c10d|--rdzv_endpoint=127.0.0.1:{port}|--rdzv_id={done.job_id}"
    words += "|--nproc_per_node=1|scripts/training/run_recipe.py|--recipe|r_config|a.b='x y'|"
    values = "|by the recipe|secret value|by the job||"
    assert sorted(line for line in log.splitlines() if "|" in line) == [f"{node}{values}{words}" for node in (0, 1)]
    assert "secret value" not in (here / "run.sbatch").read_text()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch.distributed.run needs torch")
def test_two_hosts_form_one_world(here, tmp_path, monkeypatch):
    monkeypatch.setenv("FORWARDED", "secret value")
    monkeypatch.setenv("HIDDEN", "not asked for")
    (tmp_path / "worker.py").write_text(WORKER)
    command = TrainingCommand(script="worker.py", arguments=("a.b=[1,2]",), environment={"CARRIED": "by the recipe"})
    plan = render_slurm(
        command,
        Allocation(num_nodes=2, gpus_per_node=1),
        job(tmp_path, forwarded=("FORWARDED",)),
        recipe="pretended",
        script_path="run.sbatch",
        python=sys.executable,
    )
    done = submit_slurm(plan, script_path=tmp_path / "run.sbatch", wait=True)
    log = Path(done.log_path).read_text()
    lines = sorted(line.split("worker ")[1] for line in log.splitlines() if "worker RANK" in line)
    carried = "LOCAL_WORLD_SIZE=1 CARRIED=by the recipe FORWARDED=secret value HIDDEN=None"
    assert lines == [f"RANK={rank} WORLD_SIZE=2 {carried}" for rank in (0, 1)], log
    assert done.exit_status == 0
    assert "secret value" not in (tmp_path / "run.sbatch").read_text()


def test_a_failing_program_fails_the_job_and_stays_ended(here, cluster):
    done = submit(here, pretend_python(here, "exit 3"))
    wait_for(done.job_id, cluster, state="FAILED")
    assert shown(done.job_id, cluster)["ExitCode"] == "3:0"


def reach_the_limit(number, cluster, *, until, seconds=60):
    """Send what Slurm sends before the time limit, SIGTERM to the batch shell alone, and wait for what the next start does."""
    subprocess.run(["scancel", "--batch", "--signal=TERM", number], env=cluster, check=True)

    def started_again():
        # Slurm waits two minutes before it starts a requeued job; ask for it now, as long as it waits.
        words = ["scontrol", "update", f"JobId={number}", "StartTime=now"]
        subprocess.run(words, env=cluster, check=False, capture_output=True)
        return until()

    wait_until(started_again, seconds=seconds)


SAVES_WHEN_TOLD = """
trap 'echo saved; exit 143' TERM
echo "start restart=${SLURM_RESTART_COUNT:-0}"
[ -n "${SLURM_RESTART_COUNT-}" ] && exit 0
for _ in $(seq 600); do sleep 0.1; done
"""


def test_at_its_time_limit_a_job_saves_and_starts_again(here, cluster):
    done = submit(here, pretend_python(here, SAVES_WHEN_TOLD))
    log = Path(done.log_path)
    wait_until(lambda: log.exists() and "restart=0" in log.read_text(), seconds=30)
    reach_the_limit(done.job_id, cluster, until=lambda: "restart=1" in log.read_text())
    text = log.read_text()
    assert text.index("restart=0") < text.index("saved") < text.index("restart=1")
    wait_for(done.job_id, cluster, state="COMPLETED")


def test_a_cancelled_job_saves_and_stays_cancelled(here, cluster):
    done = submit(here, pretend_python(here, SAVES_WHEN_TOLD))
    log = Path(done.log_path)
    wait_until(lambda: log.exists() and "restart=0" in log.read_text(), seconds=30)
    subprocess.run(["scancel", "--full", done.job_id], env=cluster, check=True)
    wait_until(lambda: "saved" in log.read_text(), seconds=30)
    wait_for(done.job_id, cluster, state="CANCELLED")
    assert "restart=1" not in log.read_text()


PATIENCE = 400  # seconds; importing torch four times takes minutes where others work, too
TINY = """
model.num_layers=2 model.hidden_size=64 model.num_attention_heads=4 model.ffn_hidden_size=128
model.seq_length=64 dataset.seq_length=64 train.train_iters=100000 train.global_batch_size=4 train.micro_batch_size=2
validation.eval_iters=0 scheduler.lr_warmup_iters=1 scheduler.lr_decay_iters=100000 logger.log_interval=1
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("megatron.core") is None, reason="training needs Megatron-Core")
def test_a_training_saves_at_its_time_limit_and_resumes(here, cluster):
    plan = render_slurm(
        TrainingCommand(
            script=str(Path(__file__).parents[3] / "scripts" / "training" / "run_recipe.py"),
            arguments=("--recipe", "vanilla_gpt_pretrain_config", "--dataset", "mock", *TINY.split()),
        ),
        Allocation(num_nodes=2, gpus_per_node=1),
        job(here),
        recipe="vanilla_gpt_pretrain_config",
        script_path="run.sbatch",
        python=sys.executable,
    )
    done = submit_slurm(plan, script_path=here / "run.sbatch")
    log = Path(done.log_path)
    wait_until(lambda: log.exists() and " 3/  100000" in log.read_text(), seconds=PATIENCE)
    reach_the_limit(done.job_id, cluster, until=lambda: "RESUMING from" in log.read_text(), seconds=PATIENCE)
    saved = int(re.findall(r"saved iteration (\d+)", log.read_text())[0])
    wait_until(lambda: f" {saved + 1}/  100000" in log.read_text(), seconds=PATIENCE)
    subprocess.run(["scancel", "--full", done.job_id], env=cluster, check=True)
    steps = [int(number) for number in re.findall(r"iteration +(\d+)/", log.read_text())]
    assert steps == list(range(1, len(steps) + 1))  # nothing lost, nothing twice
