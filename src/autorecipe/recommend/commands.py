"""The shell commands of an answer: the entry point that starts the run, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from autorecipe.launch.shell import render_command
from autorecipe.launch.training import (
    RUN_RECIPE,
    SETUP_EXPERIMENT,
    TRAIN_SH,
    UV_RUN,
    build_training_command,
    render_override,
    wrap_torchrun,
)
from autorecipe.record import dataclass
from autorecipe.schema.launch import Allocation
from autorecipe.schema.preset import PRESETS
from autorecipe.schema.recipe import Mode, RecipeKind
from autorecipe.schema.recommendation import Candidate, LabelledOverride, Sizing

SITE = ("--account", "ACCOUNT", "--partition", "PARTITION", "--container-image", "IMAGE")


@dataclass(frozen=True, kw_only=True)
class EntryPoint:
    """A command and the script that it starts."""

    command: str
    script: str


def render_entry_point(
    *,
    pick: Candidate,
    sizing: Sizing,
    dataset: str,
    adapter: str | None,
    overrides: Sequence[LabelledOverride],
) -> EntryPoint:
    """Render the command that starts a recipe.

    One host: `python -m torch.distributed.run` with run_recipe.py. Several hosts, and benchmark recipes by exact name: train.sh.
    """
    texts = [render_override(change.path, change.value) for change in overrides]
    preset = PRESETS.get(dataset)
    if preset is not None and preset.path_override:
        texts.append(preset.path_override)
    mode = "dora" if adapter == "dora" else ""
    if pick.kind is RecipeKind.LIBRARY and sizing.num_nodes == 1:
        command = build_training_command(recipe=pick.name, dataset=dataset, mode=mode, overrides=texts, runner=UV_RUN)
        words = wrap_torchrun(command, Allocation(num_nodes=1, gpus_per_node=sizing.gpus_per_node))
        return EntryPoint(command=render_command(words), script=RUN_RECIPE)
    words = (
        TRAIN_SH,
        *("--nodes", str(sizing.num_nodes), "--gpus-per-node", str(sizing.gpus_per_node)),
        *SITE,
        *("--recipe", pick.name),
        *("--mode", mode or _mode_word(pick.mode)),
        *(("--dataset", dataset) if dataset else ()),
        *texts,
    )
    return EntryPoint(command=render_command(words), script=TRAIN_SH.removeprefix("./"))


def render_selector(*, family: str, model: str, task: str, gpus: int, gpu: str, precision: str) -> str:
    """Render the selector launcher, for sizes and data that exact names do not have."""
    words = (
        *UV_RUN,
        "python",
        SETUP_EXPERIMENT,
        *("--model_family_name", family, "--model_recipe_name", model, "--task", task),
        *("--num_gpus", str(gpus), "--gpu", gpu, "--compute_dtype", precision),
        *("--account", "ACCOUNT", "--partition", "PARTITION", "--container_image", "IMAGE"),
    )
    return render_command(words)


def list_next_steps(
    *, pick: Candidate, sizing: Sizing, dataset: str, mode: str, overrides: Sequence[LabelledOverride]
) -> tuple[str, ...]:
    """Return commands to go on with, each on one line: check, launch, plan; `mode` is `dora` or empty."""
    texts = [render_override(change.path, change.value) for change in overrides]
    gpus = ["--gpus", str(sizing.num_gpus), "--gpu", sizing.gpu]
    data = [*(("--dataset", dataset) if dataset else ()), *(("--mode", mode) if mode else ())]
    where = ["--nodes", str(sizing.num_nodes), "--gpus-per-node", str(sizing.gpus_per_node)]
    target = "local" if sizing.num_nodes == 1 else "slurm"
    steps = [
        ["autorecipe", "check", pick.name, *texts, *gpus, *data],
        ["autorecipe", "launch", target, pick.name, *texts, *where, *data],
    ]
    if pick.kind is RecipeKind.LIBRARY:
        steps.append(["autorecipe", "plan", pick.name, *gpus])
    return tuple(shlex.join(words) for words in steps)


def _mode_word(mode: Mode | None) -> str:
    return {Mode.PRETRAIN: "pretrain", Mode.SFT: "sft", Mode.PEFT: "lora", None: "pretrain"}[mode]
