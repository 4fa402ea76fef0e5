#!/usr/bin/env python3
"""Submit a training experiment: the launcher that Megatron Bridge users already type, on the same code as `autorecipe launch`.

    ./scripts/training/setup_experiment.py --nodes 1 --gpus-per-node 8 --account A --partition P --container-image IMAGE \
        --recipe llama3_8b_pretrain_config --mode pretrain --dataset mock --dry-run

Options of this launcher describe the submission. All other arguments go to scripts/training/run_recipe.py unchanged. Exit codes:
0 submitted (or shown), 1 the recipe does not lie on the allocation or a rule finds an error, 2 usage, 3 no Slurm here.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this checkout, not one that is installed

from autorecipe.api.launch import (
    LaunchRequest,
    plan_local,
    plan_slurm,
    prepare_launch,
    read_training_arguments,
    select_recipe,
    start,
)
from autorecipe.errors import AutorecipeError, Problem, UsageError
from autorecipe.schema.finding import Severity
from autorecipe.schema.launch import SlurmJob


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the submission's own options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    where = parser.add_argument_group("allocation")
    where.add_argument("--local", action="store_true", help="run here with torch.distributed.run instead of Slurm")
    where.add_argument("--nodes", type=int, default=1, help="hosts")
    where.add_argument(
        "--gpus-per-node", "--gpus_per_node", "--devices", type=int, dest="gpus_per_node", help="GPUs of each host"
    )
    where.add_argument("--gpu-type", help="GPU type, for the check")
    slurm = parser.add_argument_group("Slurm")
    slurm.add_argument("--account", default=os.environ.get("SLURM_ACCOUNT", ""))
    slurm.add_argument("--partition", default=os.environ.get("SLURM_PARTITION", ""))
    slurm.add_argument("--time", default="04:00:00", help="time limit")
    slurm.add_argument("--gres", default="", help="generic resources instead of GPUs per host")
    slurm.add_argument("--no-gpu-resource-request", action="store_true", help="ask for no GPUs: the cluster gives whole hosts")
    slurm.add_argument(
        "--additional-slurm-params", default="", metavar="KEY=VALUE;...", help="further sbatch options, separated by semicolons"
    )
    slurm.add_argument("--container-image", default=os.environ.get("CONTAINER_IMAGE", ""), help="image; default $CONTAINER_IMAGE")
    slurm.add_argument(
        "--mount", action="append", default=[], metavar="HOST[:CONTAINER]", help="container mount; may be repeated"
    )
    slurm.add_argument("--env", action="append", default=[], metavar="NAME", help="exported variable to pass on; may be repeated")
    slurm.add_argument("--srun-arg", action="append", default=[], metavar="ARG", help="option of srun, as --srun-arg=--mpi=pmix")
    slurm.add_argument("--no-requeue", action="store_true", help="do not start a preempted job again")
    slurm.add_argument(
        "-lmc", "--peak-mem-clk", "--peak_mem_clk", type=int, dest="peak_mem_clk", metavar="MHZ", help="lock the GPU memory clock"
    )
    run = parser.add_argument_group("submission")
    run.add_argument("--experiment-name", default="", help="name of the job; default is the recipe")
    run.add_argument("--log-dir", default="logs", help="folder of script and log")
    run.add_argument(
        "--dry-run", "--submission-dry-run", action="store_true", dest="dry_run", help="show everything, submit nothing"
    )
    run.add_argument("--packager", help="no effect here: the job sees the code in the container or on the shared file system")
    run.add_argument("--wait", action="store_true", help="return when the job has ended")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Render, and unless it is a dry run, submit; returns the exit code."""
    given, rest = make_parser().parse_known_args(list(arguments))
    found, overrides, options = read_training_arguments(rest)
    if given.gpus_per_node is None:
        raise UsageError(Problem(path="--gpus-per-node", message="is required", hint="add --gpus-per-node 8"))
    if ("recipe" in found) == ("model" in found):
        raise UsageError("give either --recipe or --model", hint="`autorecipe recipes list` names the recipes")
    if "model" in found and "mode" not in found:
        raise UsageError("--model needs --mode", hint="add --mode pretrain")
    recipe = found.get("recipe") or select_recipe(model=found["model"], mode=found["mode"])
    prepared = prepare_launch(
        LaunchRequest(
            recipe=recipe,
            overrides=overrides,
            options=options,
            dataset=found.get("dataset", ""),
            mode=found.get("mode", ""),
            nodes=given.nodes,
            gpus_per_node=given.gpus_per_node,
            gpu=given.gpu_type,
            python=sys.executable if given.local else "python",
        )
    )
    script_path = f"{given.log_dir}/{given.experiment_name or recipe}.sbatch"
    if given.local:
        plan = plan_local(prepared)
    else:
        plan = plan_slurm(prepared, make_job(given, recipe), script_path=script_path, needs_site=True)
    for message in prepared.messages:
        print(message, file=sys.stderr)
    for finding in prepared.findings:
        if finding.severity in (Severity.ERROR, Severity.WARN):
            print(f"{finding.severity.value}[{finding.rule}]: {finding.message}", file=sys.stderr)
    if given.dry_run:
        print(plan.script or plan.command)
        return 1 if prepared.errors else 0
    done = start(plan, prepared, script_path=script_path, wait=given.wait)
    if done.job_id:
        print(f"job {done.job_id}, log {done.log_path}")
    return done.exit_status


def make_job(given: argparse.Namespace, recipe: str) -> SlurmJob:
    """Turn options into a submission."""
    extra = [part.strip().lstrip("-") for part in given.additional_slurm_params.split(";") if part.strip()]
    setup = ()
    if given.peak_mem_clk is not None and given.peak_mem_clk > 0:
        clock = given.peak_mem_clk
        setup = (f'srun --nodes={given.nodes} --ntasks-per-node=1 bash -c "sudo nvidia-smi -lmc {clock},{clock}"',)
    return SlurmJob(
        account=given.account,
        partition=given.partition,
        time_limit=given.time,
        job_name=given.experiment_name or recipe,
        log_dir=given.log_dir,
        container_image=given.container_image,
        mounts=tuple(given.mount),
        forwarded=tuple(given.env),
        srun_arguments=tuple(given.srun_arg),
        sbatch_options=dict(part.partition("=")[::2] for part in extra),
        gres=given.gres,
        requests_gpus=not given.no_gpu_resource_request,
        requeue=not given.no_requeue,
        setup=setup,
    )


def main() -> int:
    """Run the command line."""
    try:
        return run(sys.argv[1:])
    except AutorecipeError as error:
        for problem in error.problems:
            print(problem.render(), file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
