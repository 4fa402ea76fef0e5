"""Fit the coefficients of the time estimate to the public measurements, and cross-validate.

    python bench/time_fit.py --write      fits all rows, writes data/calibration/time.json
    python bench/time_fit.py --folds      leave one model out, leave one GPU type out

Method: damped Gauss-Newton on log(estimate / measured) with a Cauchy loss, one weight for each model, and each coefficient
drawn back to its prior (half a unit of log). Nothing is fitted per row, per model or per GPU.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import math
import pathlib
import statistics
from collections.abc import Sequence

import numpy as np

from autorecipe.catalog.hardware import load_gpus
from autorecipe.estimate.calibration import Measurement, load_throughput
from autorecipe.estimate.coefficients import Coefficients, load_coefficients
from autorecipe.estimate.memory import MemoryModel
from autorecipe.estimate.time import TimeModel

NAMES = [field.name for field in dataclasses.fields(Coefficients)]
PARTS = {
    name for name in NAMES if name.endswith("_hidden") or name in ("memory", "nvlink", "network", "optimizer", "graph_saving")
}
"""Coefficients that lie between 0 and 1; fitted as log odds, the others as logarithms."""


def vector_of(coefficients: Coefficients) -> np.ndarray:
    values = [getattr(coefficients, name) for name in NAMES]
    return np.array([math.log(v / (1 - v)) if name in PARTS else math.log(v) for name, v in zip(NAMES, values, strict=True)])


PRIOR = vector_of(Coefficients())


def _spread(name: str) -> float:
    """How far the fit may leave a prior before it costs as much as one row that is off by SCALE (units of log or log odds)."""
    if name.endswith("_fill"):
        return 0.3
    if name in PARTS:
        return 0.6
    if name in ("attention_2024", "attention_fp8", "scan_blackwell", "fused_grouped"):
        return 0.25
    if name.startswith(("gemm_h", "gemm_b", "gemm_a", "attention_f", "attention_b", "blackwell")):
        return 0.15
    return 0.8 if name.startswith("host_") else 0.5


SPREAD = np.array([_spread(name) for name in NAMES])
SCALE = 0.12
TARGET = pathlib.Path(__file__).resolve().parents[1] / "src/autorecipe/data/calibration/time.json"


class Problem:
    """Rows with their prepared memory models; residuals for any coefficients."""

    def __init__(self, rows: Sequence[Measurement]) -> None:
        self.rows = rows
        self.gpus = load_gpus()
        self.memory = [MemoryModel(row.shape, policy=row.policy) for row in rows]
        count = collections.Counter(row.model for row in rows)
        same = collections.Counter(_configuration(row) for row in rows)
        self.weights = np.array([1 / math.sqrt(math.sqrt(count[row.model]) * same[_configuration(row)]) for row in rows])

    def residuals(self, vector: np.ndarray) -> np.ndarray:
        """Return log(estimate / measured) of each row."""
        coefficients = make(vector)
        out = np.empty(len(self.rows))
        for index, row in enumerate(self.rows):
            model = TimeModel(
                row.shape, policy=row.policy, gpu=self.gpus[row.gpu], coefficients=coefficients, memory=self.memory[index]
            )
            out[index] = math.log(model.step_seconds(row.layout, row.batch, row.gpus) / row.step_seconds)
        return out


def _configuration(row: Measurement) -> tuple[object, ...]:
    return (row.model, row.gpu, row.policy.precision, row.layout, row.batch.micro_batch_size, row.batch.seq_length, row.task)


def make(vector: np.ndarray) -> Coefficients:
    values = {
        name: 1 / (1 + math.exp(-value)) if name in PARTS else math.exp(value) for name, value in zip(NAMES, vector, strict=True)
    }
    return Coefficients(**values)


def fit(problem: Problem, *, start: np.ndarray | None = None, steps: int = 12, verbose: bool = False) -> np.ndarray:
    x = PRIOR.copy() if start is None else start.copy()
    damping = 1e-2
    r = problem.residuals(x)

    def cost(r: np.ndarray, x: np.ndarray) -> float:
        robust = np.log1p((r / SCALE) ** 2)
        return float((problem.weights**2 * robust).sum() + (((x - PRIOR) / SPREAD) ** 2).sum() * 0.3)

    best = cost(r, x)
    for step in range(steps):
        jacobian = jacobian_at(problem, x, r)
        w = problem.weights**2 / (SCALE**2 + r**2)
        normal = jacobian.T @ (w[:, None] * jacobian) + np.diag(0.3 / SPREAD**2)
        gradient = jacobian.T @ (w * r) + 0.3 * (x - PRIOR) / SPREAD**2
        for _ in range(10):
            delta = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            trial = x + np.clip(delta, -0.5, 0.5)
            trial_r = problem.residuals(trial)
            value = cost(trial_r, trial)
            if value < best:
                gain, best, x, r, damping = best - value, value, trial, trial_r, damping / 3
                break
            damping *= 5
        else:
            break
        if verbose:
            a = np.abs(np.expm1(r))
            print(f"step {step}: cost {best:.2f}, median {np.median(a):.3f}, p90 {np.quantile(a, 0.9):.3f}", flush=True)
        if gain < 1e-3 * best:
            break
    return x


def usable(rows: Sequence[Measurement]) -> list[Measurement]:
    """Unflagged rows of Megatron runs that their publisher calls performance evidence."""
    return [row for row in rows if row.is_megatron and not row.flag and row.group != "functional"]


def summary(r: Sequence[float]) -> str:
    a = sorted(abs(math.expm1(value)) for value in r)
    bias = math.expm1(statistics.median(r))
    return (
        f"n={len(a):4d}  median {statistics.median(a):6.1%}  p90 {a[min(len(a) - 1, int(0.9 * len(a)))]:6.1%}  bias {bias:+6.1%}"
    )


def jacobian_at(problem: Problem, x: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Return the derivatives of the residuals by forward differences."""
    out = np.empty((len(r), len(x)))
    for k in range(len(x)):
        moved = x.copy()
        moved[k] += 0.02
        out[:, k] = (problem.residuals(moved) - r) / 0.02
    return out


def folds(rows: Sequence[Measurement], key: str, full: np.ndarray, *, verbose: bool = True) -> dict[str, float]:
    """Return residuals by row id, each from a fit that never saw the row's group.

    Each fold starts at the full fit and is solved on its linearization there (reweighted six times); the held-out residuals
    are then evaluated with the full model.
    """
    problem = Problem(rows)
    r0 = problem.residuals(full)
    jacobian = jacobian_at(problem, full, r0)
    groups = np.array([getattr(row, key) for row in rows])
    out: dict[str, float] = {}
    for group in sorted(set(groups)):
        keep = groups != group
        delta = np.zeros(len(full))
        for _ in range(6):
            r = r0[keep] + jacobian[keep] @ delta
            w = problem.weights[keep] ** 2 / (SCALE**2 + r**2)
            normal = jacobian[keep].T @ (w[:, None] * jacobian[keep]) + np.diag(0.3 / SPREAD**2)
            gradient = jacobian[keep].T @ (w * r) + 0.3 * (full + delta - PRIOR) / SPREAD**2
            delta = np.clip(delta - np.linalg.solve(normal, gradient), -0.7, 0.7)
        held = [row for row, kept in zip(rows, keep, strict=True) if not kept]
        found = Problem(held).residuals(full + delta)
        if verbose:
            print(f"  without {group:28s} {summary(list(found))}", flush=True)
        out.update({row.id: float(value) for row, value in zip(held, found, strict=True)})
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--folds", action="store_true")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--resume", action="store_true", help="start from the shipped coefficients")
    options = parser.parse_args()
    rows = usable(load_throughput())
    problem = Problem(rows)
    print("priors   ", summary(list(problem.residuals(PRIOR))))
    start = vector_of(load_coefficients()) if options.resume else None
    x = fit(problem, start=start, steps=options.steps, verbose=True)
    r = problem.residuals(x)
    print("all rows ", summary(list(r)))
    coefficients = make(x)
    for name in NAMES:
        print(f"  {name:28s} {getattr(coefficients, name):12.6g}   prior {getattr(Coefficients(), name):g}")
    if options.write:
        values = {name: float(f"{getattr(coefficients, name):.5g}") for name in NAMES}
        text = json.dumps({"rows": len(rows), "method": "see bench/time_fit.py", "coefficients": values}, indent=1)
        TARGET.write_text(text + "\n", encoding="utf-8")
    if options.folds:
        for key in ("model", "gpu"):
            print(f"leave one {key} out")
            print(" ", summary(list(folds(rows, key, x).values())))


if __name__ == "__main__":
    main()
