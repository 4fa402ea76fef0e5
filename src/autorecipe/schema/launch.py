"""What is started, where, and the text that starts it."""

from __future__ import annotations

from collections.abc import Mapping

from autorecipe.record import dataclass, field


@dataclass(frozen=True, kw_only=True)
class TrainingCommand:
    """One training program with its arguments, before anything launches it.

    Attributes:
        script: path of the entry point, relative to the repository root.
        arguments: options and KEY=VALUE overrides.
        environment: variables that the recipe carries; they act only where the shell has not set them.
        runner: words before `python`, such as `("uv", "run")`; empty for none.
    """

    script: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    runner: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Hosts and processes.

    Attributes:
        num_nodes: hosts.
        gpus_per_node: processes of each host, one per GPU.
    """

    num_nodes: int
    gpus_per_node: int

    @property
    def world_size(self) -> int:
        """Processes in total."""
        return self.num_nodes * self.gpus_per_node


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """Where the processes of several hosts meet.

    Attributes:
        endpoint: `HOST:PORT` that every host reaches; may be a shell expression such as `$MASTER_ADDR:29500`.
        node_rank: index of this host, or a shell expression; empty where every host runs the same text. The c10d
            rendezvous orders hosts by name and takes no notice of it.
        run_id: name that keeps concurrent runs apart.
    """

    endpoint: str
    node_rank: str = ""
    run_id: str = "autorecipe"


@dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """A Slurm submission, apart from the training program.

    Attributes:
        account: accounting group; empty to leave it to the cluster.
        partition: queue; empty to leave it to the cluster.
        time_limit: `HH:MM:SS`.
        job_name: shown by squeue.
        log_dir: where stdout and stderr of the job go.
        container_image: image for Pyxis; empty to run on the host.
        mounts: `HOST:CONTAINER` pairs.
        forwarded: names of environment variables that the job inherits; values never appear in the script.
        srun_arguments: further options of `srun`, one per entry.
        sbatch_options: further `#SBATCH` options by name, without dashes; an empty value makes a bare flag.
        gres: generic resources instead of `--gpus-per-node`; empty for none.
        requests_gpus: whether GPUs are asked for at all (clusters that give whole nodes refuse the option).
        exclusive: whether the hosts are not shared.
        requeue: whether the job starts again after preemption, a node failure, or a save at its time limit.
        signal_seconds: seconds before the time limit at which the training gets SIGTERM to save, at most a quarter of the
            limit; 0 for none.
        variables: environment variables that the job sets, values as they are written into the script: no secrets.
        setup: shell lines before the training; the job's shell is no login shell and has no `module` unless a line sources it.
        port: rendezvous port on the first host; on hosts that are shared it follows from the job's number.
        working_directory: directory in which the training program's path is resolved.
    """

    account: str = ""
    partition: str = ""
    time_limit: str = "04:00:00"
    job_name: str = "training"
    log_dir: str = "logs"
    container_image: str = ""
    mounts: tuple[str, ...] = ()
    forwarded: tuple[str, ...] = ()
    srun_arguments: tuple[str, ...] = ()
    sbatch_options: Mapping[str, str] = field(default_factory=dict)
    gres: str = ""
    requests_gpus: bool = True
    exclusive: bool = True
    requeue: bool = True
    signal_seconds: int = 120
    variables: Mapping[str, str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    port: int = 29500
    working_directory: str = ""


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """A rendered launch.

    Attributes:
        target: `local` or `slurm`.
        recipe: recipe name.
        allocation: hosts and processes.
        command: the shell command to type (for Slurm: the submission).
        script: text of the sbatch script; empty for a local launch.
        per_node: the command of each host, for a local launch over several hosts.
        environment: variables that the launch sets.
        forwarded: names of variables that it passes on.
        log_path: where the log goes; empty for the terminal.
        messages: what the user must know before starting it.
    """

    target: str
    recipe: str
    allocation: Allocation
    command: str
    script: str = ""
    per_node: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    forwarded: tuple[str, ...] = ()
    log_path: str = ""
    messages: tuple[str, ...] = ()
