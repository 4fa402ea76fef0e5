"""`autorecipe launch`: the text that starts a recipe, on this host or under Slurm; `--submit` acts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autorecipe.cli.output import GPU_COUNT, format_option

if TYPE_CHECKING:
    from autorecipe.api.launch import LaunchRequest, PreparedLaunch
    from autorecipe.schema.launch import LaunchPlan

Function = TypeVar("Function", bound=Callable[..., Any])


def launch_options(function: Function) -> Function:
    """Add what both targets share."""
    options = (
        click.argument("recipe"),
        click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]..."),
        click.option("--nodes", type=GPU_COUNT, help="Hosts.  [default: from the recipe's GPU count]"),
        click.option("--gpus-per-node", type=GPU_COUNT, help="GPUs of each host.  [default: the recipe's, at most 8]"),
        click.option("--gpu", help="GPU type, for the check.  [default: the recipe's]"),
        click.option("--dataset", default="", help="Dataset preset, such as mock or squad.  [default: the recipe's own]"),
        click.option("--mode", default="", help="Mode of the training program, such as dora.  [default: by the recipe's name]"),
        click.option("--bridge", "release", metavar="RELEASE", help="Megatron Bridge release.  [default: newest]"),
        click.option("--python", default="python", show_default=True, help="Interpreter of the training program."),
        click.option("--uv/--no-uv", default=False, help="Start it through `uv run`."),
        click.option(
            "--port",
            type=click.IntRange(min=1, max=65535),
            default=29500,
            show_default=True,
            help="Rendezvous port on the first host.",
        ),
        click.option("--submit", is_flag=True, help="Start it. Without this the launch is only shown."),
        format_option,
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.group()
def launch() -> None:
    """Show, or start, the launch of a recipe. Nothing runs without --submit."""


@launch.command()
@launch_options
@click.option("--master-host", default="", help="First host, for several.  [default: $MASTER_ADDR of each host's shell]")
def local(*, output_format: str, submit: bool, master_host: str, port: int, **given: Any) -> int:
    """Launch RECIPE with torch.distributed.run, here or on each of several hosts.

    \b
    autorecipe launch local llama3_8b_pretrain_config --gpus-per-node 8 --dataset mock
    autorecipe launch local llama3_70b_pretrain_config --nodes 4 --master-host node01
    """
    from autorecipe.api.launch import plan_local, prepare_launch, start

    prepared = prepare_launch(_request(given))
    plan = plan_local(prepared, master_host=master_host, port=port)
    _tell(prepared, plan.messages)
    if submit:
        return start(plan, prepared).exit_status
    _show(plan, output_format)
    return 1 if prepared.errors else 0


@launch.command()
@launch_options
@click.option("--account", default="", envvar="SLURM_ACCOUNT", help="Accounting group.")
@click.option("--partition", default="", envvar="SLURM_PARTITION", help="Queue.")
@click.option("--time", "time_limit", default="04:00:00", show_default=True, help="Time limit.")
@click.option("--job-name", default="", help="Name in the queue.  [default: the recipe]")
@click.option("--log-dir", default="logs", show_default=True, help="Folder of the log.")
@click.option("--container-image", default="", envvar="CONTAINER_IMAGE", help="Image for Pyxis; empty runs on the host.")
@click.option("--container-workdir", "working_directory", default="", help="Folder that holds scripts/training/.")
@click.option("--mount", "mounts", multiple=True, metavar="HOST[:CONTAINER]", help="Container mount; may be repeated.")
@click.option("--env", "forwarded", multiple=True, metavar="NAME", help="Exported variable to pass on; may be repeated.")
@click.option("--srun-arg", "srun_arguments", multiple=True, metavar="ARG", help="Option of srun, as --srun-arg=--mpi=pmix.")
@click.option("--sbatch-arg", "sbatch_arguments", multiple=True, metavar="NAME[=VALUE]", help="Option of sbatch, without dashes.")
@click.option("--gres", default="", help="Generic resources instead of --gpus-per-node of Slurm.")
@click.option("--no-gpu-resource-request", "whole_hosts", is_flag=True, help="Ask for no GPUs: the cluster gives whole hosts.")
@click.option("--exclusive/--no-exclusive", default=True, show_default=True, help="Whether hosts are not shared.")
@click.option("--requeue/--no-requeue", default=True, show_default=True, help="Whether a preempted job starts again.")
@click.option("--setup", multiple=True, metavar="LINE", help="Shell line before the training, such as 'source PATH/activate'.")
@click.option("--script", "script_path", default="", help="Where --submit writes the script.  [default: LOG_DIR/RECIPE.sbatch]")
@click.option("--wait", is_flag=True, help="With --submit: return when the job has ended.")
def slurm(*, output_format: str, submit: bool, script_path: str, wait: bool, **given: Any) -> int:
    """Launch RECIPE as a Slurm job.

    \b
    autorecipe launch slurm llama3_70b_pretrain_config --nodes 4 --gpus-per-node 8 \\
        --account ACCOUNT --partition PARTITION --container-image IMAGE --mount /data --env HF_TOKEN
    """
    from autorecipe.api.launch import plan_slurm, prepare_launch, start

    prepared = prepare_launch(_request(given, inherited=tuple(given["forwarded"])))
    script_path = script_path or f"{given['log_dir'].rstrip('/')}/{prepared.recipe.name}.sbatch"
    plan = plan_slurm(prepared, _job(given, prepared), script_path=script_path)
    _tell(prepared, plan.messages)
    if not submit:
        _show(plan, output_format, script_path=script_path)
        return 1 if prepared.errors else 0
    done = start(plan, prepared, script_path=script_path, wait=wait)
    if output_format == "json":
        _emit(done)
    else:
        click.echo(f"job {done.job_id}, log {done.log_path}")
    return done.exit_status


def _request(given: dict[str, Any], *, inherited: tuple[str, ...] | None = None) -> LaunchRequest:
    from autorecipe.api.launch import LaunchRequest

    return LaunchRequest(
        recipe=given["recipe"],
        overrides=tuple(given["overrides"]),
        dataset=given["dataset"],
        mode=given["mode"],
        nodes=given["nodes"],
        gpus_per_node=given["gpus_per_node"],
        gpu=given["gpu"],
        release=given["release"],
        runner=("uv", "run") if given["uv"] else (),
        python=given["python"],
        name=given.get("job_name", ""),
        inherited=inherited,
    )


def _job(given: dict[str, Any], prepared: PreparedLaunch) -> Any:
    from autorecipe.schema.launch import SlurmJob

    sbatch = dict(text.lstrip("-").partition("=")[::2] for text in given["sbatch_arguments"])
    return SlurmJob(
        account=given["account"],
        partition=given["partition"],
        time_limit=given["time_limit"],
        job_name=given["job_name"] or prepared.recipe.name,
        log_dir=given["log_dir"],
        container_image=given["container_image"],
        mounts=tuple(given["mounts"]),
        forwarded=tuple(given["forwarded"]),
        srun_arguments=tuple(given["srun_arguments"]),
        sbatch_options=sbatch,
        gres=given["gres"],
        requests_gpus=not given["whole_hosts"],
        exclusive=given["exclusive"],
        requeue=given["requeue"],
        setup=tuple(given["setup"]),
        port=given["port"],
        working_directory=given["working_directory"],
    )


def _tell(prepared: PreparedLaunch, messages: tuple[str, ...]) -> None:
    """Say on stderr what the user must know, findings included."""
    from autorecipe.schema.finding import Severity

    for message in messages:
        click.echo(message if message.startswith("warn") else f"note: {message}", err=True)
    for finding in prepared.findings:
        if finding.severity in (Severity.ERROR, Severity.WARN):
            click.echo(f"{finding.severity.value}[{finding.rule}]: {finding.message}", err=True)
            if finding.hint:
                click.echo(f"hint: {finding.hint}", err=True)


def _show(plan: LaunchPlan, output_format: str, *, script_path: str = "") -> None:
    if output_format == "json":
        _emit(plan)
        return
    if plan.script:
        click.echo(plan.script, nl=False)
        click.echo(f"add --submit, or save this as {script_path}, make the folder of the log, and: {plan.command}", err=True)
        return
    for rank, command in enumerate(plan.per_node):
        click.echo(f"# host {rank}")
        click.echo(command)
    if not plan.per_node:
        click.echo(plan.command)


def _emit(value: Any) -> None:
    import json

    from autorecipe.schema.value import to_jsonable

    click.echo(json.dumps(to_jsonable(value), ensure_ascii=False, indent=2))
