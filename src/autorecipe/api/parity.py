"""Comparing, designing and running parity experiments: the use cases behind `autorecipe parity`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autorecipe.errors import AutorecipeError
from autorecipe.parity.compare import CompareOptions, apply_settings, compare_logs
from autorecipe.parity.source import load_logs
from autorecipe.record import replace
from autorecipe.schema.parity import FactDifference, ParityReport, Verdict


def compare_log_files(
    paths: Sequence[Path],
    *,
    reference_repeats: Sequence[Path] = (),
    candidate_repeats: Sequence[Path] = (),
    options: CompareOptions | None = None,
    use_settings: bool = True,
) -> tuple[ParityReport, ...]:
    """Compare every further log with the first one.

    Args:
        paths: the reference, then one candidate or more.
        reference_repeats: further runs of the reference's configuration.
        candidate_repeats: further runs of the candidate's configuration; needs exactly one candidate.
        options: how to compare.
        use_settings: whether settings that the logs' headers state count as well.

    Raises:
        UsageError: a log is missing or holds no iteration.
        EnvironmentProblem: a package for a log's form is missing.
    """
    logs = load_logs([*paths, *reference_repeats, *candidate_repeats])
    sides = logs[: len(paths)]
    again = logs[len(paths) : len(paths) + len(reference_repeats)]
    other = logs[len(paths) + len(reference_repeats) :]
    reports = []
    for path, candidate in zip(paths[1:], sides[1:], strict=True):
        report = compare_logs(sides[0], candidate, reference_repeats=again, candidate_repeats=other, options=options)
        if use_settings and report.verdict is not Verdict.NOT_COMPARABLE and sides[0].facts and candidate.facts:
            report = _compare_settings(report, paths[0], path)
        reports.append(report)
    return tuple(reports)


def _compare_settings(report: ParityReport, reference: Path, candidate: Path) -> ParityReport:
    """Resolve what both headers say and compare its effect; leave the report alone where a header does not say enough."""
    from autorecipe.api.parity_design import find_effective_differences

    try:
        changes = find_effective_differences(str(reference), str(candidate))
    except AutorecipeError as error:
        note = f"settings were not compared: {error.problems[0].message}"
        return replace(report, notes=(*report.notes, note))
    found = [
        FactDifference(name=item.path, reference=str(item.before), candidate=str(item.after), layer="convergence")
        for item in changes
    ]
    return apply_settings(report, found)


def write_plots(reports: Sequence[ParityReport], *, png: Path | None = None, html: Path | None = None) -> list[Path]:
    """Write the requested pictures of a comparison and return their paths.

    Raises:
        EnvironmentProblem: a PNG is wanted and matplotlib is not installed.
    """
    written = []
    if png is not None:
        from autorecipe.parity.plot import draw_png

        png.parent.mkdir(parents=True, exist_ok=True)
        draw_png(list(reports), png)
        written.append(png)
    if html is not None:
        from autorecipe.parity.html import render_html

        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(render_html(reports), encoding="utf-8")
        written.append(html)
    return written
