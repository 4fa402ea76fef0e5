"""Print how far off the estimators are, on traces of the real model and on public measurements.

    python bench/estimators.py             the tables (a minute or two)
    python bench/estimators.py --rows      every row of them
    python bench/estimators.py --write     also writes data/calibration/errors.json, which the commands print

Memory: closed form against the traced model (tests/golden/estimate/traces.jsonl, made by bench/traces.py), and against
published peaks by
class. Time: each row's error from a fit that never saw the row's model (and, second table, its GPU type).
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import pathlib
import statistics
from collections.abc import Iterable, Mapping

from autorecipe.estimate.calibration import Measurement, load_memory, load_throughput, memory_class, time_class
from autorecipe.estimate.coefficients import load_coefficients
from autorecipe.estimate.inputs import read_inputs
from autorecipe.estimate.memory import MemoryModel
from autorecipe.schema.estimate import LayerImplementation
from autorecipe.schema.run import RunConfig
from layouts import LAYOUTS
from time_fit import folds, usable, vector_of

ROOT = pathlib.Path(__file__).resolve().parents[1]
TRACES = ROOT / "tests/golden/estimate/traces.jsonl"
ERRORS = ROOT / "src/autorecipe/data/calibration/errors.json"
PARTS = ("weights", "gradients", "optimizer", "activations")


def statistics_of(errors: Iterable[float]) -> dict[str, float]:
    signed = list(errors)
    size = sorted(abs(error) for error in signed)
    return {
        "rows": len(size),
        "median_pct": round(100 * statistics.median(size), 1),
        "p90_pct": round(100 * size[min(len(size) - 1, int(0.9 * len(size)))], 1),
        "bias_pct": round(100 * statistics.median(signed), 1),
    }


def line(name: str, errors: Iterable[float]) -> str:
    s = statistics_of(errors)
    sizes = f"median {s['median_pct']:5.1f}%   p90 {s['p90_pct']:5.1f}%   bias {s['bias_pct']:+6.1f}%"
    return f"{name:44s} {s['rows']:5.0f} rows   {sizes}"


def memory_against_traces(*, show_rows: bool) -> None:
    known = {row["name"]: row for row in map(json.loads, TRACES.read_text(encoding="utf-8").splitlines())}
    by_group: dict[str, list[float]] = collections.defaultdict(list)
    for layout in LAYOUTS:
        if layout.name not in known:
            continue
        traced = known[layout.name]
        inputs = read_inputs(RunConfig(values=layout.values), layers=LayerImplementation.LOCAL, on_gpu=False)
        model = MemoryModel(inputs.shape, policy=inputs.policy)
        stage = model.estimate(layout=inputs.layout, batch=inputs.batch, world_size=layout.gpus)[layout.stage]
        peak = sum(traced[f"{part}_bytes"] for part in PARTS)
        error = stage.peak_bytes / peak - 1
        by_group[layout.group].append(error)
        if show_rows:
            above = stage.activations_bytes + stage.logits_bytes + stage.transient_bytes
            part = above / traced["activations_bytes"] - 1
            print(f"  {layout.name:36s} {peak / 2**30:8.2f} GiB {error:+6.1%}   activations {part:+6.1%}")
    print("memory: closed form against the traced model (error of the peak)")
    for group, errors in by_group.items():
        print(" ", line(group, errors), f"  largest {max(map(abs, errors)):.1%}")
    print(" ", line("all", [error for errors in by_group.values() for error in errors]))


def memory_errors() -> dict[str, float]:
    """Return signed errors of published peaks by row id."""
    out = {}
    for row in load_memory():
        stages = MemoryModel(row.shape, policy=row.policy).estimate(layout=row.layout, batch=row.batch, world_size=row.gpus)
        stage = stages[-1] if row.peak_rank == "last" else max(stages, key=lambda stage: stage.peak_bytes)
        out[row.id] = stage.peak_bytes / row.peak_bytes - 1
    return out


def memory_against_measurements(*, show_rows: bool) -> dict[str, list[float]]:
    errors = memory_errors()
    rows = load_memory()
    by_group: dict[tuple[str, bool], list[float]] = collections.defaultdict(list)
    for row in rows:
        by_group[(row.group, bool(row.flag))].append(errors[row.id])
        if show_rows:
            where = f"{row.model[:50]:50s} {row.gpu:6s} {row.layout.render():30s}"
            print(f"  {row.id:10s} {where} {errors[row.id]:+6.1%} {row.flag[:40]}")
    print("memory: closed form against published peaks of allocated bytes (nothing fitted but one constant of 100 MiB)")
    for (group, flagged), values in sorted(by_group.items()):
        print(" ", line(group + (" (flagged)" if flagged else ""), values))
    classes: dict[str, list[float]] = collections.defaultdict(list)
    for row in rows:
        if not row.flag and row.is_megatron:
            classes[memory_class(row.shape, row.policy)].append(errors[row.id])
    return classes


def time_errors(rows: list[Measurement], key: str) -> Mapping[str, float]:
    """Return signed errors by row id from fits without the row's group."""
    return {name: math.expm1(value) for name, value in folds(rows, key, vector_of(load_coefficients()), verbose=False).items()}


def time_against_measurements(*, show_rows: bool) -> dict[str, list[float]]:
    rows = usable(load_throughput())
    classes: dict[str, list[float]] = collections.defaultdict(list)
    for key in ("model", "gpu"):
        errors = time_errors(rows, key)
        print(f"time: step time, leave one {key} out ({len(rows)} unflagged Megatron rows)")
        print(" ", line("all", errors.values()))
        groups: dict[str, list[float]] = collections.defaultdict(list)
        for row in rows:
            groups[getattr(row, key)].append(errors[row.id])
            if key == "model":
                classes[time_class(row.shape, row.policy)].append(errors[row.id])
            if show_rows and key == "model":
                print(
                    f"  {row.id:8s} {row.model:24s} {row.gpu:6s} {row.gpus:5d} {row.layout.render():34s} {errors[row.id]:+6.1%}"
                )
        for name, values in sorted(groups.items()):
            print("   ", line(name, values))
    print("time: by class, leave one model out")
    for name, values in sorted(classes.items()):
        print(" ", line(name, values))
    return classes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--write", action="store_true", help="write data/calibration/errors.json")
    options = parser.parse_args()
    memory_against_traces(show_rows=options.rows)
    memory = memory_against_measurements(show_rows=options.rows)
    time = time_against_measurements(show_rows=options.rows)
    if options.write:
        published = {
            "memory": {
                name: {"configuration": name, "method": "published peaks, none of them fitted", **statistics_of(values)}
                for name, values in sorted(memory.items())
            },
            "time": {
                name: {"configuration": name, "method": "leave one model out", **statistics_of(values)}
                for name, values in sorted(time.items())
            },
        }
        ERRORS.write_text(json.dumps(published, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
