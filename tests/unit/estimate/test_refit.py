"""The way from published rows to shipped coefficients can be gone again (`bench/calibration_rows.py`, `bench/time_fit.py`)."""

import sys
from pathlib import Path

import pytest

from autorecipe.estimate.calibration import load_throughput
from autorecipe.estimate.coefficients import Coefficients, load_coefficients

BENCH = Path(__file__).resolve().parents[3] / "bench"
numpy = pytest.importorskip("numpy")


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import calibration_rows
    import time_fit

    yield calibration_rows, time_fit
    for name in ("calibration_rows", "time_fit"):
        sys.modules.pop(name)


def test_what_rules_derive_is_what_ships(bench):
    rows, _ = bench
    shipped = rows.load_rows()
    for row in shipped:
        bare = {**row, "policy": {name: value for name, value in row["policy"].items() if name not in rows.DERIVED}}
        assert rows.derive(bare) == row, row["id"]
    assert sum("fused_experts" in row["policy"] for row in shipped) > 20
    assert sum(row["policy"].get("software_year", rows.THIS_YEAR) < rows.THIS_YEAR for row in shipped) > 200


def test_software_years_follow_versions(bench):
    rows, _ = bench
    versions = {"container 25.02": 2025, "24.09": 2024, "pytorch:23.10": 2023, "26.06": 2026, "2021 paper": 2021, "": 2026}
    for version, year in versions.items():
        assert rows.software_year({"version": version, "source": "Megatron-Bridge docs"}) == year, version


def _drift(time_fit, *, start, steps):
    """Refit, and return the largest change of a coefficient against the shipped ones, with its name."""
    found = time_fit.make(time_fit.fit(time_fit.Problem(time_fit.usable(load_throughput())), start=start, steps=steps))
    shipped = load_coefficients()
    return max((abs(getattr(found, name) / getattr(shipped, name) - 1), name) for name in time_fit.NAMES)


def test_a_fit_that_starts_at_the_shipped_coefficients_stays_there(bench):
    _, time_fit = bench
    change, name = _drift(time_fit, start=time_fit.vector_of(load_coefficients()), steps=1)
    assert change < 0.02, name


@pytest.mark.slow
def test_a_fit_from_the_priors_ends_at_the_shipped_coefficients(bench):
    _, time_fit = bench
    assert abs(load_coefficients().grouped / Coefficients().grouped - 1) > 0.1
    change, name = _drift(time_fit, start=None, steps=30)
    assert change < 0.03, name
