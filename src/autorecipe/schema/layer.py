"""The layers of change: what a configuration field can do to a training run."""

from __future__ import annotations

import enum


class Layer(enum.StrEnum):
    """What moving a field means.

    CONVERGENCE: a new experiment. EXECUTION: the same effective updates, rounding may drift, must be verified.
    FINGERPRINT: micro batch size and accumulation, allowed only with the global batch, its members and order, normalisation
    and token budget fixed. BENCHMARK_ONLY: proves nothing about convergence. IO: where and how often things are written.
    """

    CONVERGENCE = "convergence"
    EXECUTION = "execution"
    FINGERPRINT = "fingerprint"
    BENCHMARK_ONLY = "benchmark_only"
    IO = "io"
