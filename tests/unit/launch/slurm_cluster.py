"""A Slurm cluster of two pretended hosts on this machine, for as long as a test runs. Needs slurmctld, slurmd and munged.

Everything lies in one folder: configuration, key, sockets, state, logs. The daemons stay in the foreground as children of the
test, which ends and reaps them; should the test itself be killed, the kernel ends them.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "scontrol", "sinfo")


def missing_programs():
    path = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()


@contextmanager
def run_cluster(folder: Path):
    """Start the daemons with everything they own inside a folder; stop them by their process ids."""
    control, first, second = free_ports(3)
    host = socket.gethostname().split(".")[0]
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    folder.chmod(0o755)
    config = folder / "slurm.conf"
    config.write_text(
        f"""ClusterName=pretended
SlurmctldHost={host}(127.0.0.1)
SlurmUser={os.environ.get("USER", "root") if os.getuid() else "root"}
SlurmdUser={os.environ.get("USER", "root") if os.getuid() else "root"}
SlurmctldPort={control}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs={os.cpu_count()} State=UNKNOWN
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs={os.cpu_count()} State=UNKNOWN
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
    )
    environment = dict(os.environ) | {
        "SLURM_CONF": str(config),
        "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin",
    }

    daemons = []

    def spawn(name, *words):
        with (folder / f"{name}.out").open("wb") as output:
            daemons.append(
                subprocess.Popen(words, env=environment, stdout=output, stderr=output, preexec_fn=_die_with_parent, cwd=folder)
            )

    socket_path = folder / "munge.sock"
    try:
        files = ("key-file", key), ("socket", socket_path), ("pid-file", "munged.pid"), ("log-file", "munged.log")
        options = [f"--{name}={folder / value}" for name, value in (*files, ("seed-file", "munge.seed"))]
        spawn("munged", "munged", "--foreground", "--force", *options)
        wait_until(socket_path.exists, seconds=30, daemons=daemons)
        spawn("slurmctld", "slurmctld", "-D", "-i")
        for node in ("node1", "node2"):
            spawn(node, "slurmd", "-D", "-N", node)
        wait_until(lambda: count_idle(environment) == 2, seconds=60, daemons=daemons)
        yield environment
    finally:
        end_jobs(environment)
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in reversed(daemons):
            try:
                daemon.wait(timeout=15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def end_jobs(environment):
    """Cancel what still runs and wait for it: a daemon that goes first leaves the processes of its jobs behind."""

    def running():
        shown = subprocess.run(["squeue", "-h", "-o", "%i"], env=environment, capture_output=True, text=True, check=False)
        return shown.stdout.split() if shown.returncode == 0 else []

    for number in running():
        subprocess.run(["scancel", "--full", number], env=environment, check=False, capture_output=True)
    wait_until(lambda: not running(), seconds=60)


def count_idle(environment):
    shown = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], env=environment, capture_output=True, text=True, check=False)
    return shown.stdout.split().count("idle")


def wait_until(condition, *, seconds, daemons=()):
    end = time.monotonic() + seconds
    while not condition():
        ended = [daemon.args for daemon in daemons if daemon.poll() is not None]
        if ended or time.monotonic() > end:
            raise TimeoutError(f"the pretended cluster did not get there; ended: {ended}")
        time.sleep(0.1)
