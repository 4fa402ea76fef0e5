"""Start-up cost: the time of commands against `python -c pass` on the same machine.

    python bench/startup.py [--repeat 7]

The ratio is what counts; wall times depend on what else the machine does, so the CPU ratio (user + system) stands beside it.
Compiled bytecode is kept between runs, as in an installed package, whatever the calling shell says about writing it.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time

AUTORECIPE = (sys.executable, "-m", "autorecipe")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
COMMANDS = (
    ("python -c pass", (sys.executable, "-c", "pass")),
    ("python -c 'import click'", (sys.executable, "-c", "import click")),
    ("autorecipe --help", (*AUTORECIPE, "--help")),
    ("autorecipe recommend --help", (*AUTORECIPE, "recommend", "--help")),
    ("autorecipe recommend ...", (*AUTORECIPE, "recommend", "Llama 3 8B", "--gpus", "8", "--gpu", "h100", "--goal", "pretrain")),
    ("autorecipe recommend --first-run", (*AUTORECIPE, "recommend", "--first-run")),
)


def measure(words: tuple[str, ...]) -> tuple[float, float]:
    """Return the (wall, CPU) seconds of one run of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT, check=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_all(repeat: int) -> list[tuple[str, float, float]]:
    """Return (name, wall, CPU) of every command, the least disturbed of several rounds; a round runs each command once."""
    rounds = [[measure(words) for _, words in COMMANDS] for _ in range(repeat + 1)][1:]  # the first writes the bytecode
    best = [(min(run[0] for run in runs), min(run[1] for run in runs)) for runs in zip(*rounds, strict=True)]
    return [(name, *row) for (name, _), row in zip(COMMANDS, best, strict=True)]


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=7)
    repeat = parser.parse_args().repeat
    rows = measure_all(repeat)
    base_wall, base_cpu = rows[0][1:]
    print(f"{'command':<34} {'wall ms':>8} {'CPU ms':>8} {'wall ratio':>11} {'CPU ratio':>10}   (best of {repeat})")
    for name, wall, cpu in rows:
        print(f"{name:<34} {1000 * wall:8.1f} {1000 * cpu:8.1f} {wall / base_wall:11.1f} {cpu / base_cpu:10.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
