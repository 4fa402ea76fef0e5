"""The command line of train.sh and training/setup_experiment.py: submit a training by recipe name.

Options about the submission are its own, all others are run_recipe.py's: they are read here too, so that a mistake shows before
the job waits in a queue, and reach it as they were typed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from autorecipe.api.launch import LaunchRequest, further_words, plan_local, plan_slurm, prepare_launch
from autorecipe.cli.programs.refused import Parser, aside
from autorecipe.cli.programs.submission import once_per_host, show_or_submit, split_sbatch_options
from autorecipe.cli.programs.training import parse_request
from autorecipe.errors import Problem, UsageError
from autorecipe.schema.launch import SlurmJob
from autorecipe.schema.recipe import Recipe, RecipeKind

VR200_MEMORY_CLOCK_MHZ = 4752
"""Memory clock that VR200 benchmark recipes are measured at.

Source: Megatron-Bridge scripts/training/setup_experiment.py (2026-08). Evidence: enforced-upstream.
"""

IDLE = (
    aside("--packager", "the job sees the code in the container or on the shared file system"),
    aside("--detach", "sbatch always detaches; use --wait to stay", takes_value=False),
    aside("--tail-logs", "read the log with `tail -f`, its path is printed", takes_value=False),
)
REFUSED = (
    aside("--container-runtime", "containers run through Pyxis here: leave it out"),
    aside("--enroot-root", "containers run through Pyxis here: leave it out"),
    aside("--family", "name the recipe with --recipe, or --model STEM and --mode; `autorecipe recipes list --family NAME`"),
)


def make_parser() -> Parser:
    """Return the parser of the submission's own options."""
    parser = Parser(
        prog="setup_experiment.py",
        description="Submit a training. Options that are not listed here go to run_recipe.py as they are typed.",
        idle=IDLE,
        refused=REFUSED,
    )
    image = os.environ.get("CONTAINER_IMAGE") or os.environ.get("MB_CONTAINER_IMAGE") or ""
    where = parser.add_argument_group("allocation")
    where.add_argument("--local", action="store_true", help="run here with torch.distributed.run instead of Slurm")
    where.add_argument("--nodes", type=int, default=1, help="hosts")
    where.add_argument(
        "--gpus-per-node", "--gpus_per_node", "--devices", type=int, dest="gpus_per_node", help="GPUs of each host"
    )
    where.add_argument("--gpu-type", help="GPU type, for the check")
    slurm = parser.add_argument_group("Slurm")
    slurm.add_argument("--account", default=os.environ.get("SLURM_ACCOUNT", ""), help="accounting group; default $SLURM_ACCOUNT")
    slurm.add_argument("--partition", default=os.environ.get("SLURM_PARTITION", ""), help="queue; default $SLURM_PARTITION")
    slurm.add_argument("--time", default="04:00:00", help="time limit")
    slurm.add_argument("--gres", default="", help="generic resources instead of GPUs per host")
    slurm.add_argument("--no-gpu-resource-request", action="store_true", help="ask for no GPUs: the cluster gives whole hosts")
    slurm.add_argument(
        "--additional-slurm-params",
        "--additional_slurm_params",
        default="",
        metavar="KEY=VALUE;...",
        help="further sbatch options, separated by semicolons",
    )
    slurm.add_argument("--container-image", default=image, help="image; default $CONTAINER_IMAGE")
    slurm.add_argument("--container-workdir", default="", help="folder in the container that holds scripts/training/")
    slurm.add_argument(
        "--mount", action="append", default=[], metavar="HOST[:CONTAINER]", help="container mount; may be repeated"
    )
    slurm.add_argument("--env", action="append", default=[], metavar="NAME", help="exported variable to pass on; may be repeated")
    slurm.add_argument("--offline", action="store_true", help="Hugging Face Hub offline (HF_HUB_OFFLINE=1)")
    slurm.add_argument("--srun-arg", action="append", default=[], metavar="ARG", help="option of srun, as --srun-arg=--mpi=pmix")
    slurm.add_argument("--no-requeue", action="store_true", help="do not start a preempted job again, nor one at its time limit")
    slurm.add_argument(
        "-lmc",
        "--peak-mem-clk",
        "--peak_mem_clk",
        type=int,
        dest="peak_mem_clk",
        metavar="MHZ",
        help=f"lock the GPU memory clock; {VR200_MEMORY_CLOCK_MHZ} for VR200 benchmark recipes, and -1 leaves it",
    )
    run = parser.add_argument_group("submission")
    run.add_argument("--experiment-name", default="", help="name of the job; default is the recipe")
    run.add_argument("--log-dir", default="logs", help="folder of script and log")
    run.add_argument(
        "--dry-run", "--submission-dry-run", action="store_true", dest="dry_run", help="show everything, submit nothing"
    )
    run.add_argument("--wait", "--no-detach", action="store_true", dest="wait", help="return when the job has ended")
    parser.add_asides()
    return parser


def run(arguments: Sequence[str]) -> int:
    """Render, and unless it is a dry run, submit; returns the exit code.

    Raises:
        UsageError: everything that is missing, unknown or refused.
        NegativeAnswer: the recipe does not lie on the allocation.
        EnvironmentProblem: no Slurm here.
    """
    parser = make_parser()
    given, rest = parser.parse_known_args(list(arguments))
    notes = parser.check_asides(given)
    if given.gpus_per_node is None:
        raise UsageError(Problem(code="usage", path="--gpus-per-node", message="is required", hint="add --gpus-per-node 8"))
    if given.offline and "HF_TOKEN" in given.env:
        raise UsageError(Problem(code="usage", path="--offline", message="excludes --env HF_TOKEN", hint="leave one of them out"))
    request, training = parse_request(rest, launcher=parser)
    prepared = prepare_launch(
        LaunchRequest(
            recipe=request.recipe,
            overrides=request.overrides,
            words=further_words(rest),
            dataset=request.dataset or "",
            mode=request.mode or "",
            nodes=given.nodes,
            gpus_per_node=given.gpus_per_node,
            gpu=given.gpu_type,
            name=given.experiment_name,
            python=sys.executable if given.local else "python",
            inherited=None if given.local else tuple(given.env),
        )
    )
    recipe = prepared.recipe
    script_path = f"{given.log_dir}/{given.experiment_name or recipe.name}.sbatch"
    if given.local:
        plan = plan_local(prepared)
    else:
        plan = plan_slurm(prepared, make_job(given, recipe), script_path=script_path, needs_site=True)
    return show_or_submit(
        plan,
        prepared,
        script_path=script_path,
        dry_run=given.dry_run,
        wait=given.wait,
        notes=(*notes, *training.notes),
    )


def make_job(given: argparse.Namespace, recipe: Recipe) -> SlurmJob:
    """Turn options into a submission."""
    clock = given.peak_mem_clk
    if clock is None and recipe.kind is RecipeKind.BENCHMARK and recipe.gpu_type == "vr200":
        clock = VR200_MEMORY_CLOCK_MHZ
    lock = (once_per_host(given.nodes, f"sudo nvidia-smi -lmc {clock},{clock}"),) if clock is not None and clock > 0 else ()
    return SlurmJob(
        account=given.account,
        partition=given.partition,
        time_limit=given.time,
        job_name=given.experiment_name or recipe.name,
        log_dir=given.log_dir,
        container_image=given.container_image,
        working_directory=given.container_workdir,
        mounts=tuple(given.mount),
        forwarded=tuple(given.env),
        srun_arguments=tuple(given.srun_arg),
        sbatch_options=split_sbatch_options(given.additional_slurm_params),
        gres=given.gres,
        requests_gpus=not given.no_gpu_resource_request,
        requeue=not given.no_requeue,
        variables={"HF_HUB_OFFLINE": "1"} if given.offline else {},
        setup=lock,
    )
