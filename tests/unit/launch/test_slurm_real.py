"""Jobs on a real Slurm, where it is installed (Debian: slurm-wlm and munge; scripts/dev/install_slurm.sh)."""

import importlib.util
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


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch.distributed.run needs torch")
def test_two_hosts_form_one_world(cluster, tmp_path, monkeypatch):
    for name, value in cluster.items():
        monkeypatch.setenv(name, value)
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


def test_a_failing_program_fails_the_job(cluster, tmp_path, monkeypatch):
    for name, value in cluster.items():
        monkeypatch.setenv(name, value)
    plan = render_slurm(
        build_training_command(recipe="r_config"),
        Allocation(num_nodes=1, gpus_per_node=2),
        job(tmp_path),
        recipe="r_config",
        script_path="run.sbatch",
        python="/nonexistent/python",
    )
    assert submit_slurm(plan, script_path=tmp_path / "run.sbatch", wait=True).exit_status != 0


def test_a_requeued_job_runs_again_into_the_same_log(cluster, tmp_path, monkeypatch):
    for name, value in cluster.items():
        monkeypatch.setenv(name, value)
    marker = tmp_path / "python"
    marker.write_text('#!/bin/sh\necho "start restart=${SLURM_RESTART_COUNT:-0}"\n[ -n "$SLURM_RESTART_COUNT" ] || sleep 60\n')
    marker.chmod(0o755)
    plan = render_slurm(
        build_training_command(recipe="r_config"),
        Allocation(num_nodes=1, gpus_per_node=1),
        job(tmp_path),
        recipe="r_config",
        script_path="run.sbatch",
        python=str(marker),
    )
    done = submit_slurm(plan, script_path=tmp_path / "run.sbatch")
    log = Path(done.log_path)
    wait_until(lambda: log.exists() and "restart=0" in log.read_text(), seconds=30)
    subprocess.run(["scontrol", "requeue", done.job_id], env=cluster, check=True)

    def started_again():
        # Slurm waits two minutes before it starts a requeued job; ask for it now, as long as it waits.
        words = ["scontrol", "update", f"JobId={done.job_id}", "StartTime=now"]
        subprocess.run(words, env=cluster, check=False, capture_output=True)
        return "restart=1" in log.read_text()

    wait_until(started_again, seconds=90)
    assert log.read_text().index("restart=0") < log.read_text().index("restart=1")
