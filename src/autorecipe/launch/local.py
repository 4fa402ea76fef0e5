"""Launch on hosts that you log in to: `python -m torch.distributed.run`, on one host or on each of several."""

from __future__ import annotations

from autorecipe.launch.shell import Expression, quote_word, render_command
from autorecipe.launch.training import wrap_torchrun
from autorecipe.schema.launch import Allocation, LaunchPlan, Rendezvous, TrainingCommand


def render_local(
    command: TrainingCommand,
    allocation: Allocation,
    *,
    recipe: str,
    master_host: str = "",
    port: int = 29500,
    run_id: str = "autorecipe",
    python: str = "python",
) -> LaunchPlan:
    """Render a launch without a scheduler.

    Args:
        command: the training program.
        allocation: hosts and processes of each.
        recipe: recipe name, for the plan.
        master_host: first host, for several hosts; empty leaves `$MASTER_ADDR` to the shell.
        port: rendezvous port on the first host.
        run_id: keeps concurrent runs apart.
        python: interpreter.

    Returns:
        a plan whose `command` is that of the first host; `per_node` has one for each host when there are several.
    """
    assignments = [assign_default(name, value) for name, value in command.environment.items()]
    if allocation.num_nodes == 1:
        words = [*assignments, *wrap_torchrun(command, allocation, python=python)]
        return LaunchPlan(
            target="local",
            recipe=recipe,
            allocation=allocation,
            command=render_command(words),
            environment=command.environment,
        )
    endpoint: str = f"{master_host}:{port}" if master_host else Expression(f'"${{MASTER_ADDR:?first host}}:{port}"')
    per_node = tuple(
        render_command(
            [
                *assignments,
                *wrap_torchrun(
                    command,
                    allocation,
                    rendezvous=Rendezvous(endpoint=endpoint, node_rank=str(rank), run_id=run_id),
                    python=python,
                ),
            ]
        )
        for rank in range(allocation.num_nodes)
    )
    return LaunchPlan(
        target="local",
        recipe=recipe,
        allocation=allocation,
        command=per_node[0],
        per_node=per_node,
        environment=command.environment,
    )


def assign_default(name: str, value: str) -> Expression:
    """Return an assignment that lets the shell's own value win, as upstream does, such as `NAME="${NAME:-value}"`."""
    quoted = quote_word(value)
    if quoted == value:
        return Expression(f'{name}="${{{name}:-{value}}}"')
    # Without outer quotes the single quotes keep their meaning; an assignment is not split into words.
    return Expression(f"{name}=${{{name}:-{quoted}}}")
