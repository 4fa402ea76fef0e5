"""What the two launchers share: splitting site options, saying what the user must know, showing or submitting."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence

from autorecipe.api.launch import PreparedLaunch, start
from autorecipe.errors import AutorecipeError, Problem, UsageError
from autorecipe.schema.finding import Severity
from autorecipe.schema.launch import LaunchPlan


def run_program(run: Callable[[Sequence[str]], int]) -> int:
    """Run a program on this command line; its errors are printed and become the exit code."""
    try:
        return run(sys.argv[1:])
    except AutorecipeError as error:
        for problem in error.problems:
            print(problem.render(), file=sys.stderr)
        return error.exit_code


def show_or_submit(
    plan: LaunchPlan, prepared: PreparedLaunch, *, script_path: str, dry_run: bool, wait: bool, notes: Iterable[str] = ()
) -> int:
    """Say what the user must know, then show the launch or start it.

    Returns:
        the exit code: 1 where a rule finds an error.
    """
    for message in (*notes, *plan.messages):
        print(message, file=sys.stderr)
    for finding in prepared.findings:
        if finding.severity in (Severity.ERROR, Severity.WARN):
            hint = f"\nhint: {finding.hint}" if finding.hint and finding.severity is Severity.ERROR else ""
            print(f"{finding.severity.value}[{finding.rule}]: {finding.message}{hint}", file=sys.stderr)
    if dry_run:
        print(plan.script or "\n".join(plan.per_node) or plan.command)
        return 1 if prepared.errors else 0
    done = start(plan, prepared, script_path=script_path, wait=wait)
    if done.job_id:
        print(f"job {done.job_id}, log {done.log_path}")
    return done.exit_status


def split_sbatch_options(text: str) -> dict[str, str]:
    """Split `KEY=VALUE;FLAG`, as upstream does: at semicolons, else at spaces.

    Raises:
        UsageError: a part without a name.
    """
    parts = [part.strip().lstrip("-") for part in (text.split(";") if ";" in text else text.split()) if part.strip()]
    if any(part.startswith("=") for part in parts):
        raise UsageError(Problem(code="usage", path="--additional-slurm-params", message=f"{text!r} is not KEY=VALUE;KEY=VALUE"))
    return dict(part.partition("=")[::2] for part in parts)


def once_per_host(nodes: int, command: str) -> str:
    """Return the line that runs a command once on each host, before the training."""
    return f'srun --nodes={nodes} --ntasks-per-node=1 bash -c "{command}"'
