"""Launch under Slurm: the text of an sbatch script.

One task per host starts `torch.distributed.run`, which starts one process per GPU and meets the other hosts on the first one.
With a container image, `srun` runs it through Pyxis. A job that is preempted, loses a host or reaches its time limit is started
again and goes on from its checkpoint; one that fails or is cancelled is not. Start reading at `render_slurm`.
"""

from __future__ import annotations

import re

from autorecipe.errors import Problem
from autorecipe.launch.environment import ALWAYS_EXPORTED
from autorecipe.launch.local import assign_default
from autorecipe.launch.shell import Expression, quote_word, render_command
from autorecipe.launch.training import wrap_torchrun
from autorecipe.schema.launch import Allocation, LaunchPlan, Rendezvous, SlurmJob, TrainingCommand

_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<clock>\d{1,4}(?::\d{2}){0,2})")
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
SHUTDOWN_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
"""Seconds that `torch.distributed.run` gives its processes after SIGTERM; 30 by default, too few to save a large model.

Source: torch/distributed/run.py, --shutdown-timeout (2.13). Evidence: enforced-upstream.
"""


def check_job(job: SlurmJob, *, needs_site: bool = False) -> list[Problem]:
    """Return what is wrong with a submission.

    Args:
        job: the submission.
        needs_site: whether account, partition and container image are required, as upstream's launcher does.
    """
    problems = [
        Problem(code="launch-site-option", path=option, message=f"{value!r} is no option of sbatch", hint=hint)
        for option, value, hint in _unusable(job)
    ]
    if any(not argument.strip() for argument in job.srun_arguments):
        problems.append(
            Problem(
                code="launch-srun-argument",
                path="--srun-arg",
                message="must not be empty",
                hint="write --srun-arg=--mpi=pmix, with the =",
            )
        )
    if time_limit_seconds(job.time_limit) is None:
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


def _unusable(job: SlurmJob) -> list[tuple[str, str, str]]:
    """Return values that would not be one option of one `#SBATCH` line: (option, value, what to do)."""
    texts = {
        "--account": job.account,
        "--partition": job.partition,
        "--job-name": job.job_name,
        "--log-dir": job.log_dir,
        "--gres": job.gres,
        **{f"--{name}": value for name, value in job.sbatch_options.items()},
    }
    broken = [(option, value, "write it in one line") for option, value in texts.items() if not value.isprintable()]
    names = [name for name in job.sbatch_options if not _OPTION.fullmatch(name)]
    return [*broken, *(("--sbatch-arg", name, "write NAME or NAME=VALUE, such as qos=high") for name in names)]


def time_limit_seconds(text: str) -> int | None:
    """Return a Slurm time as seconds, 0 for no limit, or None where it is none: M, M:SS, H:MM:SS, D-H, D-H:MM, D-H:MM:SS."""
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return 0
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    parts = [int(part) for part in match["clock"].split(":")]
    if match["days"] is None and len(parts) < 3:
        parts.insert(0, 0)  # minutes come first where there are no days
    hours, minutes, seconds = (*parts, 0, 0)[:3]
    return ((int(match["days"] or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def notice_seconds(job: SlurmJob) -> int:
    """Return how long before the time limit the training is told to save; a short job does not start with it."""
    limit = time_limit_seconds(job.time_limit)
    return min(job.signal_seconds, limit // 4) if limit is not None else job.signal_seconds


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
    lines += ["set -eo pipefail", ""]
    if job.setup:
        lines += [*job.setup, ""]
    lines += _exports(command, job)
    several = allocation.num_nodes > 1
    if several:
        lines += [
            'MASTER_ADDR="${MASTER_ADDR:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}"',
            f'export MASTER_ADDR MASTER_PORT="${{MASTER_PORT:-{_port(job)}}}"',
            "",
        ]
    rendezvous = Rendezvous(
        endpoint=Expression('"$MASTER_ADDR:$MASTER_PORT"'),
        run_id=Expression('"$SLURM_JOB_ID"'),
    )
    training = wrap_torchrun(
        command, allocation, rendezvous=rendezvous if several else None, python=python, standalone=not job.exclusive
    )
    # The shell finds the interpreter where it runs: in the container, if there is one. `exec` lets signals reach it.
    step = render_command([*_srun(allocation, job, command), "bash", "-c", 'exec "$0" "$@"', *training])
    lines += [*(_resume_at_limit(step, job) if job.requeue and notice_seconds(job) else [step]), ""]
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


def _port(job: SlurmJob) -> str:
    """Return the rendezvous port: on shared hosts one of the job's own."""
    return str(job.port) if job.exclusive else "$((20000 + SLURM_JOB_ID % 20000))"


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
    if seconds := notice_seconds(job):
        # B: only the batch shell, which passes it on and then knows why the training ended.
        options["signal"] = f"{'B:' if job.requeue else ''}TERM@{seconds}"
    options["export"] = ",".join((*ALWAYS_EXPORTED, *job.forwarded))
    for name, value in job.sbatch_options.items():
        options[name] = value or None
    return options


def _directive(name: str, value: str | None) -> str:
    return f"#SBATCH --{name}" + ("" if value is None else f"={quote_word(value)}")


def _exports(command: TrainingCommand, job: SlurmJob) -> list[str]:
    lines = []
    if command.environment:
        defaults = [f"export {assign_default(name, value)}" for name, value in command.environment.items()]
        lines += ["# Carried by the recipe; a value that is already set stays.", *defaults, ""]
    if job.variables:
        lines += [*(f"export {name}={quote_word(value)}" for name, value in job.variables.items()), ""]
    if seconds := notice_seconds(job):
        lines += [f"export {assign_default(SHUTDOWN_VARIABLE, str(seconds))}", ""]
    return lines


def _resume_at_limit(step: str, job: SlurmJob) -> list[str]:
    """Return the step with what follows SIGTERM: the training saves, and the job goes back into the queue.

    A cancelled or preempted job is no longer RUNNING here: the first stays cancelled, Slurm itself requeues the second.
    """
    return [
        f"# {notice_seconds(job)} s before the time limit: the training saves, and the job starts again from there.",
        "stopping=",
        "trap 'stopping=1; scancel --signal=TERM \"$SLURM_JOB_ID\"' TERM",
        f"{step} &",
        "step=$!",
        "status=0",
        'wait "$step" || status=$?',
        'while kill -0 "$step" 2>/dev/null; do  # a signal ends a wait early',
        "    status=0",
        '    wait "$step" || status=$?',
        "done",
        'if [ -n "$stopping" ] && [ "$status" -ne 0 ] && [ "$(squeue -h -j "$SLURM_JOB_ID" -o %T)" = RUNNING ]; then',
        '    scontrol requeue "$SLURM_JOB_ID"',
        "fi",
        'exit "$status"',
    ]


def _srun(allocation: Allocation, job: SlurmJob, command: TrainingCommand) -> list[str]:
    # --export=ALL: sbatch's --export list would otherwise hide what the script itself exports.
    # --cpu-bind=none: the one task of a host starts a process per GPU, which must not share the cores of one task.
    words = ["srun", f"--nodes={allocation.num_nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=1", "--cpu-bind=none"]
    words.append("--export=ALL")
    if job.container_image:
        words.append(f"--container-image={job.container_image}")
        if job.mounts:
            words.append(f"--container-mounts={','.join(job.mounts)}")
        if job.working_directory:
            words.append(f"--container-workdir={job.working_directory}")
        rendezvous = ("MASTER_ADDR", "MASTER_PORT") if allocation.num_nodes > 1 else ()
        shutdown = (SHUTDOWN_VARIABLE,) if notice_seconds(job) else ()
        names = sorted({*job.forwarded, *command.environment, *job.variables, *rendezvous, *shutdown})
        if names:
            words.append(f"--container-env={','.join(names)}")
    elif job.working_directory:
        words.append(f"--chdir={job.working_directory}")
    return [*words, *job.srun_arguments]
