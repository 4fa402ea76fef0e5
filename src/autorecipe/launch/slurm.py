"""Launch under Slurm: the text of an sbatch script.

One task per host starts `torch.distributed.run`, which starts one process per GPU and meets the other hosts on the first one.
With a container image, `srun` runs it through Pyxis. A preempted or failed job is started again and goes on from its checkpoint.
"""

from __future__ import annotations

import re

from autorecipe.errors import Problem
from autorecipe.launch.environment import ALWAYS_EXPORTED
from autorecipe.launch.local import assign_default
from autorecipe.launch.shell import Expression, quote_word, render_command
from autorecipe.launch.training import wrap_torchrun
from autorecipe.schema.launch import Allocation, LaunchPlan, Rendezvous, SlurmJob, TrainingCommand

_TIME = r"(?:\d+-)?\d{1,3}(?::\d{2}){0,2}"


def check_job(job: SlurmJob, *, needs_site: bool = False) -> list[Problem]:
    """Return what is wrong with a submission.

    Args:
        job: the submission.
        needs_site: whether account, partition and container image are required, as upstream's launcher does.
    """
    problems = []
    if any(not argument.strip() for argument in job.srun_arguments):
        problems.append(
            Problem(
                code="launch-srun-argument",
                path="--srun-arg",
                message="must not be empty",
                hint="write --srun-arg=--mpi=pmix, with the =",
            )
        )
    if not re.fullmatch(_TIME, job.time_limit):
        problems.append(
            Problem(
                code="launch-time-limit",
                path="--time",
                message=f"{job.time_limit!r} is not a Slurm time",
                hint="use HH:MM:SS or D-HH:MM:SS",
            )
        )
    if needs_site:
        for option, value in (
            ("--account", job.account),
            ("--partition", job.partition),
            ("--container-image", job.container_image),
        ):
            if not value:
                problems.append(
                    Problem(code="launch-site", path=option, message="is required for a Slurm job", hint=f"add {option} NAME")
                )
    return problems


def render_slurm(
    command: TrainingCommand, allocation: Allocation, job: SlurmJob, *, recipe: str, script_path: str, python: str = "python"
) -> LaunchPlan:
    """Render an sbatch script and the command that submits it.

    Args:
        command: the training program.
        allocation: hosts and processes of each.
        job: the submission.
        recipe: recipe name, for the plan.
        script_path: where the script will be written.
        python: interpreter on the hosts (or in the container).
    """
    log_path = f"{job.log_dir.rstrip('/') or '.'}/%x-%j.log"
    lines = ["#!/usr/bin/env bash", *(_directive(name, value) for name, value in _options(allocation, job, log_path).items()), ""]
    lines += ["set -euo pipefail", ""]
    if job.setup:
        lines += [*job.setup, ""]
    if command.environment:
        lines += ["# Carried by the recipe; a value that is already set stays.", *_exports(command), ""]
    several = allocation.num_nodes > 1
    if several:
        lines += [
            'MASTER_ADDR="${MASTER_ADDR:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}"',
            f'export MASTER_ADDR MASTER_PORT="${{MASTER_PORT:-{job.port}}}"',
            "",
        ]
    rendezvous = Rendezvous(
        endpoint=Expression('"$MASTER_ADDR:$MASTER_PORT"'),
        node_rank=Expression('"$SLURM_NODEID"'),
        run_id=Expression('"$SLURM_JOB_ID"'),
    )
    training = wrap_torchrun(command, allocation, rendezvous=rendezvous if several else None, python=python)
    inner = " ".join(quote_word(word) for word in training)
    # One shell per host expands $SLURM_NODEID there; `exec` lets Slurm's signals reach the launcher.
    words = [*_srun(allocation, job, command), "bash", "-c", f"exec {inner}"]
    lines += [render_command(words), ""]
    return LaunchPlan(
        target="slurm",
        recipe=recipe,
        allocation=allocation,
        command=render_command(["sbatch", script_path]),
        script="\n".join(lines),
        environment=command.environment,
        forwarded=job.forwarded,
        log_path=log_path,
    )


def _options(allocation: Allocation, job: SlurmJob, log_path: str) -> dict[str, str | None]:
    """Return #SBATCH options in order; None makes a bare flag."""
    options: dict[str, str | None] = {"job-name": job.job_name}
    if job.account:
        options["account"] = job.account
    if job.partition:
        options["partition"] = job.partition
    options |= {"nodes": str(allocation.num_nodes), "ntasks-per-node": "1"}
    if job.gres:
        options["gres"] = job.gres
    elif job.requests_gpus:
        options["gpus-per-node"] = str(allocation.gpus_per_node)
    if job.exclusive:
        options |= {"exclusive": None, "mem": "0"}
    options |= {"time": job.time_limit, "output": log_path, "open-mode": "append"}
    options["requeue" if job.requeue else "no-requeue"] = None
    if job.signal_seconds:
        options["signal"] = f"TERM@{job.signal_seconds}"
    options["export"] = ",".join((*ALWAYS_EXPORTED, *job.forwarded))
    for name, value in job.sbatch_options.items():
        options[name] = value or None
    return options


def _directive(name: str, value: str | None) -> str:
    return f"#SBATCH --{name}" + ("" if value is None else f"={quote_word(value)}")


def _exports(command: TrainingCommand) -> list[str]:
    return [f"export {assign_default(name, value)}" for name, value in command.environment.items()]


def _srun(allocation: Allocation, job: SlurmJob, command: TrainingCommand) -> list[str]:
    # --export=ALL: sbatch's --export list would otherwise hide what the script itself exports.
    words = ["srun", f"--nodes={allocation.num_nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=1", "--export=ALL"]
    if job.container_image:
        words.append(f"--container-image={job.container_image}")
        if job.mounts:
            words.append(f"--container-mounts={','.join(job.mounts)}")
        if job.working_directory:
            words.append(f"--container-workdir={job.working_directory}")
        rendezvous = ("MASTER_ADDR", "MASTER_PORT") if allocation.num_nodes > 1 else ()
        names = sorted({*job.forwarded, *command.environment, *rendezvous})
        if names:
            words.append(f"--container-env={','.join(names)}")
    elif job.working_directory:
        words.append(f"--chdir={job.working_directory}")
    return [*words, *job.srun_arguments]
