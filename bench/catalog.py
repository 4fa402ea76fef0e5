"""How long the catalog takes to build, to open and list, and to show one recipe.

    python bench/catalog.py [--bridge WHEEL --core WHEEL] [--repeat 20]

The build row needs a wheel or checkout of Megatron Bridge. The other rows are medians in fresh processes (`process`) and inside
one (`call`). Wall and processor time are both printed, because a busy machine stretches the first; the ratio is processor time
to the limit.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from autorecipe.catalog.store import Catalog, open_catalog
from autorecipe.datafiles import DATA

RECIPE = "qwen3_30b_a3b_sft_8gpu_h100_bf16_config"
BUILD_LIMIT = 120.0
START_LIMIT = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bridge", type=Path)
    parser.add_argument("--core", type=Path)
    parser.add_argument("--repeat", type=int, default=20)
    arguments = parser.parse_args()
    directory = open_catalog().directory
    print(f"release {directory.name}, {size_of(directory) / 1e6:.1f} MB of {size_of(Path(DATA)) / 1e6:.1f} MB of data")
    print(f"{'what':36}{'wall s':>10}{'processor s':>13}{'limit s':>9}{'ratio':>8}")
    if arguments.bridge is None:
        print(f"{'build':36}not run: give --bridge and --core")
    else:
        row("build", build(arguments.bridge, arguments.core), BUILD_LIMIT)
    row("open and list, call", measure(lambda: Catalog(directory).summaries(), arguments.repeat), START_LIMIT)
    row("open and load one recipe, call", measure(lambda: Catalog(directory).load(RECIPE), arguments.repeat), START_LIMIT)
    row("open and read the schema, call", measure(lambda: Catalog(directory).schema(), arguments.repeat), START_LIMIT)
    few = max(3, arguments.repeat // 4)
    row("python -c pass, process", process(["-c", "pass"], few), START_LIMIT)
    row("autorecipe recipes list, process", process(["-m", "autorecipe", "recipes", "list"], few), START_LIMIT)
    row("autorecipe recipes show, process", process(["-m", "autorecipe", "recipes", "show", RECIPE], few), START_LIMIT)
    row("autorecipe recipes search, process", process(["-m", "autorecipe", "recipes", "search", "30b-a3b"], few), START_LIMIT)


def build(bridge: Path, core: Path | None) -> tuple[float, float]:
    """Return wall and processor seconds of one build, subprocesses included."""
    from autorecipe.catalog.build import BuildOptions, build_catalog

    with tempfile.TemporaryDirectory() as out:
        return measure(lambda: build_catalog(BuildOptions(bridge=bridge, core=core), Path(out)), 1)


def measure(function: Callable[[], object], repeat: int) -> tuple[float, float]:
    """Return medians of wall and processor seconds, children included."""
    walls, processors = [], []
    for _ in range(repeat):
        wall, processor = time.perf_counter(), processor_seconds()
        function()
        walls.append(time.perf_counter() - wall)
        processors.append(processor_seconds() - processor)
    return statistics.median(walls), statistics.median(processors)


def processor_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def process(arguments: list[str], repeat: int) -> tuple[float, float]:
    """Return medians of fresh processes."""
    return measure(lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True), repeat)


def row(what: str, seconds: tuple[float, float], limit: float) -> None:
    print(f"{what:36}{seconds[0]:10.4f}{seconds[1]:13.4f}{limit:9.1f}{seconds[1] / limit:8.2f}")


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
