"""Render or start a launch: joins configuration, rules and the launchers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from autorecipe.api.mode import MODES, choose_mode
from autorecipe.catalog.hardware import find_gpu, load_gpus
from autorecipe.catalog.naming import is_own_recipe
from autorecipe.catalog.store import open_catalog
from autorecipe.config.datasets import load_dataset_presets
from autorecipe.config.resolve import resolve_config
from autorecipe.config.views import view_batch, view_layout
from autorecipe.errors import NegativeAnswer, Problem, UsageError, unknown_name
from autorecipe.launch.arithmetic import check_allocation, scale_weakly, share_allocation
from autorecipe.launch.environment import merge_environment, parse_forwarded, parse_mounts, shadowed
from autorecipe.launch.local import render_local
from autorecipe.launch.slurm import check_job, render_slurm
from autorecipe.launch.submission import Submission, submit_local, submit_slurm
from autorecipe.launch.training import build_training_command, carried_environment
from autorecipe.record import dataclass, field, replace
from autorecipe.rules.check import check_config
from autorecipe.schema.batch import Batch
from autorecipe.schema.finding import Finding, Severity
from autorecipe.schema.hardware import Cluster, Gpu
from autorecipe.schema.launch import Allocation, LaunchPlan, SlurmJob, TrainingCommand
from autorecipe.schema.preset import ANY_MODE, TEXT_PRETRAINING
from autorecipe.schema.recipe import Recipe, RecipeKind
from autorecipe.schema.run import RunConfig

USUAL_HOST = 8
"""GPUs of a host where neither the recipe nor the user says."""


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """What to launch.

    Attributes:
        recipe: recipe name.
        overrides: KEY=VALUE texts, flags of the training program turned into such.
        words: what is passed on to the training program instead of `overrides`, as typed; None passes these.
        dataset: dataset preset; empty keeps the recipe's own.
        mode: `--mode` of the training program; empty lets the name decide.
        nodes: hosts; None derives them from the recipe's GPU count.
        gpus_per_node: GPUs of each host; None takes the recipe's, at most 8.
        gpu: GPU type; None takes the recipe's.
        name: of the job, whose claims about the layout are checked; empty where it has none.
        release: Bridge release.
        runner: words before `python`, such as `("uv", "run")`.
        python: interpreter.
        environment: of the submitting shell.
        inherited: names of variables that the processes get from it; None for all, as on this host.
    """

    recipe: str
    overrides: tuple[str, ...] = ()
    words: tuple[str, ...] | None = None
    dataset: str = ""
    mode: str = ""
    nodes: int | None = None
    gpus_per_node: int | None = None
    gpu: str | None = None
    name: str = ""
    release: str | None = None
    runner: tuple[str, ...] = ()
    python: str = "python"
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    inherited: tuple[str, ...] | None = None

    @property
    def reaching(self) -> Mapping[str, str]:
        """Variables of the submitting shell that reach the processes."""
        if self.inherited is None:
            return self.environment
        return {name: self.environment[name] for name in self.inherited if name in self.environment}


@dataclass(frozen=True, kw_only=True)
class PreparedLaunch:
    """A launch that was resolved and checked, before it is rendered.

    Attributes:
        request: as given.
        recipe: the recipe.
        config: as it would run.
        allocation: hosts and processes.
        command: the training program.
        findings: what the rules say, errors first.
        messages: what the user must know.
    """

    request: LaunchRequest
    recipe: Recipe
    config: RunConfig
    allocation: Allocation
    command: TrainingCommand
    findings: tuple[Finding, ...]
    messages: tuple[str, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that stop the run."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)


def prepare_launch(request: LaunchRequest) -> PreparedLaunch:
    """Resolve, check the arithmetic of hosts and GPUs, and ask the rules.

    Raises:
        UsageError: an unknown recipe, dataset, mode, GPU type or override.
        NegativeAnswer: the layout does not lie on the allocation.
    """
    catalog = open_catalog(request.release)
    recipe = catalog.load(request.recipe)
    _check_names(request)
    allocation = _allocate(request, recipe)
    config = resolve_config(
        recipe,
        catalog.schema(),
        request.overrides,
        world_size=allocation.world_size,
        mode=request.mode,
        dataset=request.dataset or None,
    )
    layout = view_layout(config)
    problems = check_allocation(layout, allocation, recipe=recipe.name)
    if problems:
        raise NegativeAnswer(problems)
    carried = carried_environment(config)
    batch = _batch(config)
    messages = [*_describe_shares(config, allocation, batch), *_benchmark_messages(recipe, request, allocation, config)]
    for name, (ours, theirs) in shadowed(carried, request.reaching).items():
        messages.append(f"{name}={theirs} of this shell replaces the recipe's {name}={ours}")
    cluster = _cluster(request, recipe, allocation)
    environment = dict(request.reaching) | merge_environment(carried, request.reaching)
    given: dict[str, object] = {"processes": allocation.world_size}
    said = {"dataset": request.dataset, "mode": request.mode, "experiment_name": request.name}
    given |= {name: value for name, value in said.items() if value}
    findings = check_config(config, cluster, environment=environment, given=given, verify=False)
    is_own = is_own_recipe(request.recipe)  # the name of a function says no mode
    command = build_training_command(
        recipe=request.recipe if is_own else recipe.name,
        dataset=request.dataset,
        mode=request.mode or (choose_mode(config, request.recipe, None).mode if is_own else ""),
        overrides=request.overrides if request.words is None else request.words,
        environment=carried,
        runner=request.runner,
    )
    return PreparedLaunch(
        request=request,
        recipe=recipe,
        config=config,
        allocation=allocation,
        command=command,
        findings=findings,
        messages=tuple(messages),
    )


def _check_names(request: LaunchRequest) -> None:
    legal = {
        "dataset": [*TEXT_PRETRAINING, *ANY_MODE, *load_dataset_presets()],
        "mode": [*MODES, "peft"],
    }
    given = {"dataset": request.dataset, "mode": request.mode}
    problems = [
        unknown_name(kind, name, legal[kind], hint=f"there are {', '.join(legal[kind])}")
        for kind, name in given.items()
        if name and name not in legal[kind]
    ]
    try:
        _gpu(request)
    except UsageError as error:
        problems += error.problems
    if problems:
        raise UsageError(problems)


def _gpu(request: LaunchRequest, recipe: Recipe | None = None) -> Gpu | None:
    if request.gpu:
        return find_gpu(request.gpu)
    return load_gpus().get(recipe.gpu_type) if recipe is not None and recipe.gpu_type else None


def plan_local(prepared: PreparedLaunch, *, master_host: str = "", port: int = 29500) -> LaunchPlan:
    """Render a launch on hosts that one logs in to."""
    plan = render_local(
        prepared.command,
        prepared.allocation,
        recipe=prepared.recipe.name,
        master_host=master_host,
        port=port,
        run_id=prepared.recipe.name,
        python=prepared.request.python,
    )
    return replace(plan, messages=prepared.messages)


def plan_slurm(prepared: PreparedLaunch, job: SlurmJob, *, script_path: str, needs_site: bool = False) -> LaunchPlan:
    """Render a Slurm submission.

    Args:
        prepared: the launch.
        job: account, partition, container and the like; mounts and forwarded names as typed.
        script_path: where the script will be written.
        needs_site: whether account, partition and image are required.

    Raises:
        UsageError: naming everything that Slurm or the site would refuse.
    """
    forwarded, problems = parse_forwarded(job.forwarded, prepared.request.environment)
    mounts, more = parse_mounts(job.mounts)
    problems = [*problems, *more, *check_job(job, needs_site=needs_site)]
    if problems:
        raise UsageError(problems)
    job = replace(job, forwarded=forwarded, mounts=mounts)
    plan = render_slurm(
        prepared.command,
        prepared.allocation,
        job,
        recipe=prepared.recipe.name,
        script_path=script_path,
        python=prepared.request.python,
    )
    return replace(plan, messages=(*prepared.messages, *_site_messages(job, prepared.command)))


def _site_messages(job: SlurmJob, command: TrainingCommand) -> list[str]:
    messages = []
    if job.container_image and not job.working_directory and not command.script.startswith("/"):
        messages.append(
            f"{command.script} is looked up in the image's own working folder; --container-workdir FOLDER names another"
        )
    if not job.exclusive and "cpus-per-task" not in job.sbatch_options:
        messages.append("hosts are shared and no cores are asked for: many clusters then give one; sbatch option cpus-per-task=N")
    return messages


def start(plan: LaunchPlan, prepared: PreparedLaunch, *, script_path: str = "", wait: bool = False) -> Submission:
    """Start a rendered launch, unless the rules found an error.

    Raises:
        NegativeAnswer: a rule found an error.
        EnvironmentProblem: there is no Slurm here.
    """
    if prepared.errors:
        raise NegativeAnswer(
            [
                Problem(code=finding.rule, path=", ".join(finding.paths), message=finding.message, hint=finding.hint)
                for finding in prepared.errors
            ]
        )
    if plan.target == "slurm":
        return submit_slurm(plan, script_path=Path(script_path), wait=wait)
    return submit_local(plan)


def _allocate(request: LaunchRequest, recipe: Recipe) -> Allocation:
    count = recipe.gpus
    per_node = request.gpus_per_node
    if per_node is None:
        total = count if count and request.nodes is None else None
        per_node = min(total, USUAL_HOST) if total else USUAL_HOST
        gpu = _gpu(request, recipe)
        per_node = min(per_node, gpu.gpus_per_node) if gpu else per_node
    nodes = request.nodes
    if nodes is None:
        nodes = -(-count // per_node) if count and request.gpus_per_node is None else 1
    return Allocation(num_nodes=nodes, gpus_per_node=per_node)


def _cluster(request: LaunchRequest, recipe: Recipe, allocation: Allocation) -> Cluster | None:
    gpu = _gpu(request, recipe)
    if gpu is None:
        return None
    return Cluster(gpu=gpu, num_gpus=allocation.world_size, gpus_per_node=allocation.gpus_per_node)


def _batch(config: RunConfig) -> Batch | None:
    try:
        return view_batch(config)
    except UsageError:
        return None


def _describe_shares(config: RunConfig, allocation: Allocation, batch: Batch | None) -> list[str]:
    """Say what the layout makes of the allocation, computed from the resolved configuration."""
    layout = view_layout(config)
    shares = share_allocation(layout, batch, allocation.world_size)
    text = (
        f"{allocation.num_nodes} x {allocation.gpus_per_node} = {shares.world_size} GPUs: {layout.render()}, "
        f"DP={shares.data_parallel_size}"
    )
    if layout.ep > 1:
        text += f", expert DP={shares.expert_data_parallel_size}"
    if shares.num_microbatches is not None:
        text += f", {shares.num_microbatches} micro batches a step"
    return [text]


def _benchmark_messages(recipe: Recipe, request: LaunchRequest, allocation: Allocation, config: RunConfig) -> list[str]:
    if recipe.kind is not RecipeKind.BENCHMARK:
        return []
    messages = []
    if request.overrides:
        messages.append("benchmark recipe with overrides: no canonical measurement, say so beside the number")
    batch = recipe.fields.get("train.global_batch_size")
    given = any(text.lstrip("+").startswith("train.global_batch_size=") for text in request.overrides)
    if recipe.gpus and recipe.gpus != allocation.world_size and given:
        messages.append(
            f"warn[BR-BENCH-02]: the recipe is written for exactly {recipe.gpus} GPUs and gets {allocation.world_size}; "
            f"train.global_batch_size is kept at {config.get('train.global_batch_size')} as given"
        )
    elif recipe.gpus and recipe.gpus != allocation.world_size and isinstance(batch, int):
        scaled = scale_weakly(canonical_gpus=recipe.gpus, requested_gpus=allocation.world_size, global_batch_size=batch)
        messages.append(
            f"warn[BR-BENCH-02]: the recipe is written for exactly {recipe.gpus} GPUs and gets {allocation.world_size}: "
            f"train.global_batch_size {batch} -> {scaled.effective_global_batch_size} (weak scaling, another convergence "
            f"contract, no canonical measurement). train.global_batch_size={batch} keeps it"
        )
    return messages


def further_words(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the training program's arguments without those that a `LaunchRequest` says itself: recipe, mode, dataset."""
    said = ("--recipe", "--model", "--mode", "--dataset")
    kept: list[str] = []
    skip = False
    for word in arguments:
        name, equals, _ = word.partition("=")
        if skip:
            skip = False
        elif name in said:
            skip = not equals
        else:
            kept.append(word)
    return tuple(kept)
