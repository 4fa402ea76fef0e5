"""The side effects: starting a rendered launch. Rendering is the default everywhere; this runs only on request."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

from autorecipe.errors import EnvironmentProblem, NegativeAnswer, Problem
from autorecipe.record import dataclass
from autorecipe.schema.launch import LaunchPlan


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What came of starting a launch.

    Attributes:
        target: `local` or `slurm`.
        exit_status: of the training, or of sbatch.
        job_id: Slurm's id; empty for a local launch.
        log_path: where the log goes; empty for the terminal.
    """

    target: str
    exit_status: int
    job_id: str = ""
    log_path: str = ""


def submit_local(plan: LaunchPlan) -> Submission:
    """Run a launch on this host and wait for it; its output goes to this terminal.

    Raises:
        NegativeAnswer: the launch spans several hosts.
    """
    if plan.allocation.num_nodes > 1:
        raise NegativeAnswer(
            Problem(
                code="launch-hosts",
                path="--nodes",
                message=f"{plan.allocation.num_nodes} hosts cannot be started from one of them without a scheduler",
                hint="run the command shown for each host there, or use `autorecipe launch slurm`",
            )
        )
    completed = subprocess.run(["bash", "-c", plan.command], check=False)
    return Submission(target="local", exit_status=completed.returncode)


def submit_slurm(plan: LaunchPlan, *, script_path: Path, wait: bool = False) -> Submission:
    """Write the script and hand it to sbatch.

    Args:
        plan: rendered for Slurm.
        script_path: where the script is written; its folder is made.
        wait: whether to return only when the job has ended, with its exit status.

    Raises:
        EnvironmentProblem: there is no sbatch, or it refused.
    """
    if shutil.which("sbatch") is None:
        raise EnvironmentProblem(
            Problem(
                code="no-slurm",
                path="sbatch",
                message="this machine has no sbatch",
                hint="run it on a login node of the cluster; for the script alone leave out --submit (train.sh: add --dry-run)",
            )
        )
    script_path.parent.mkdir(parents=True, exist_ok=True)
    script_path.write_text(plan.script, encoding="utf-8")
    # Slurm does not make the folder of --output, and a job without it fails without a log.
    Path(plan.log_path).parent.mkdir(parents=True, exist_ok=True)
    words = ["sbatch", "--parsable", *(["--wait"] if wait else []), str(script_path)]
    completed = subprocess.run(words, check=False, capture_output=True, text=True)
    match = re.match(r"(\d+)", completed.stdout)
    if match is None:
        raise EnvironmentProblem(
            Problem(
                code="sbatch-refused",
                path=str(script_path),
                message=f"sbatch ended with {completed.returncode}: {completed.stderr.strip() or completed.stdout.strip()}",
                hint="`sinfo` shows the partitions, `sacctmgr show associations user=$USER` the accounts",
            )
        )
    job_name = re.search(r"^#SBATCH --job-name=(.+)$", plan.script, re.MULTILINE)
    log_path = plan.log_path.replace("%j", match[1]).replace("%x", shlex.split(job_name[1])[0] if job_name else "training")
    return Submission(target="slurm", exit_status=completed.returncode, job_id=match[1], log_path=log_path)
