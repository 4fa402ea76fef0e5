"""Loss curves as PNG. matplotlib is imported only here, and only when a picture is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autorecipe.errors import EnvironmentProblem, Problem
from autorecipe.schema.parity import GRAD_NORM, LEARNING_RATE, LOSS, ParityReport

_PANELS = (LOSS, GRAD_NORM, LEARNING_RATE)


def draw_png(reports: list[ParityReport], path: Path) -> None:
    """Draw loss, difference against tolerance, gradient norm and learning rate of every pair.

    Raises:
        EnvironmentProblem: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise EnvironmentProblem(
            Problem(
                code="missing-package",
                message="drawing a PNG needs matplotlib",
                hint="pip install 'autorecipe[plot]', or use --html",
            )
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(11, 7), constrained_layout=True)
    panels: dict[str, Any] = {LOSS: axes[0][0], GRAD_NORM: axes[1][0], LEARNING_RATE: axes[1][1]}
    gap = axes[0][1]
    for metric, axis in panels.items():
        axis.set_title(metric)
        axis.set_xlabel("iteration")
    gap.set_title("lm loss difference and tolerance")
    gap.set_xlabel("iteration")
    gap.set_yscale("log")
    for position, report in enumerate(reports):
        _draw_report(report, panels, gap, color=f"C{position + 1}", draw_reference=position == 0)
    figure.suptitle("\n".join(f"{Path(report.candidate).name}: {report.summary}" for report in reports), fontsize=10)
    for axis in (*panels.values(), gap):
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_report(report: ParityReport, panels: dict[str, Any], gap: Any, *, color: str, draw_reference: bool) -> None:
    marker = "." if report.num_iterations <= 200 else ""
    for entry in report.series:
        numbers = [point.iteration for point in entry.points]
        axis = panels.get(entry.metric)
        if axis is not None:
            if draw_reference:
                axis.plot(
                    numbers, [p.reference for p in entry.points], color="C0", lw=2.5, alpha=0.6, label=Path(report.reference).name
                )
            axis.plot(
                numbers, [p.candidate for p in entry.points], color=color, lw=1, marker=marker, label=Path(report.candidate).name
            )
            if entry.first_divergence is not None:
                axis.axvline(entry.first_divergence, color=color, ls=":", lw=1)
        if entry.metric == LOSS:
            floor = min((p.tolerance for p in entry.points if p.tolerance > 0), default=1e-9) / 10
            gap.plot(
                numbers, [max(abs(p.difference), floor) for p in entry.points], color=color, marker=marker, label="difference"
            )
            gap.plot(numbers, [max(p.tolerance, floor) for p in entry.points], color=color, ls="--", lw=1, label="tolerance")
