"""The training program and its arguments: `scripts/training/run_recipe.py --recipe NAME --dataset PRESET KEY=VALUE ...`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autorecipe.launch.shell import Expression
from autorecipe.schema.launch import Allocation, Rendezvous, TrainingCommand
from autorecipe.schema.run import RunConfig
from autorecipe.schema.value import FieldValue

RUN_RECIPE = "scripts/training/run_recipe.py"
TRAIN_SH = "./scripts/training/train.sh"
SETUP_EXPERIMENT = "scripts/performance/setup_experiment.py"
UV_RUN = ("uv", "run")


def build_training_command(
    *,
    recipe: str,
    dataset: str = "",
    mode: str = "",
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    runner: Sequence[str] = (),
) -> TrainingCommand:
    """Assemble the training program's command line.

    Args:
        recipe: exported recipe name.
        dataset: value of `--dataset`; empty keeps the recipe's own data.
        mode: value of `--mode`; empty lets the recipe's name decide.
        overrides: KEY=VALUE texts, and further options of the program, as typed.
        environment: variables that the recipe carries.
        runner: words before `python`.
    """
    arguments = ["--recipe", recipe]
    if mode:
        arguments += ["--mode", mode]
    if dataset:
        arguments += ["--dataset", dataset]
    return TrainingCommand(
        script=RUN_RECIPE,
        arguments=(*arguments, *overrides),
        environment=dict(environment or {}),
        runner=tuple(runner),
    )


def wrap_torchrun(
    command: TrainingCommand,
    allocation: Allocation,
    *,
    rendezvous: Rendezvous | None = None,
    python: str = "python",
    standalone: bool = False,
) -> tuple[str, ...]:
    """Wrap a training program in `python -m torch.distributed.run`.

    Args:
        command: the training program.
        allocation: hosts and processes of each.
        rendezvous: needed for more than one host.
        python: interpreter; a path, or a name on PATH.
        standalone: whether one host takes a free port, because others may run there.

    Returns:
        words of the command, one process launcher per host.

    Raises:
        ValueError: several hosts without a rendezvous.
    """
    words = [*command.runner, python, "-m", "torch.distributed.run"]
    if allocation.num_nodes > 1:
        if rendezvous is None:
            raise ValueError("several hosts need a rendezvous")
        words.append(f"--nnodes={allocation.num_nodes}")
        if rendezvous.node_rank:
            words.append(_option("--node_rank", rendezvous.node_rank))
        words.append("--rdzv_backend=c10d")
        words += [_option("--rdzv_endpoint", rendezvous.endpoint), _option("--rdzv_id", rendezvous.run_id)]
    elif standalone:
        words.append("--standalone")
    words.append(f"--nproc_per_node={allocation.gpus_per_node}")
    return (*words, command.script, *command.arguments)


def _option(name: str, value: str) -> str:
    text = f"{name}={value}"
    return Expression(text) if isinstance(value, Expression) else text


def render_override(path: str, value: FieldValue) -> str:
    """Render one override in the KEY=VALUE grammar."""
    from autorecipe.config.grammar import render_value

    return f"{path}={render_value(value)}"


def carried_environment(config: RunConfig) -> dict[str, str]:
    """Return the environment variables that a recipe carries, as text.

    Upstream sets each only where the process does not have it already.
    Source: Megatron-Bridge src/megatron/bridge/training/config.py:1989 (os.environ.setdefault). Evidence: enforced-upstream.
    """
    prefix = "env_vars."
    carried = {}
    for path, value in config.values.items():
        name = path.removeprefix(prefix)
        if path.startswith(prefix) and value is not None and not name.startswith("_"):
            carried[name] = ("1" if value else "0") if isinstance(value, bool) else str(value)
    return dict(sorted(carried.items()))
