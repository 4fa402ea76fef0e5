"""Comparing, designing and running parity experiments: the use cases behind `autorecipe parity`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autorecipe.errors import AutorecipeError, Problem, UsageError
from autorecipe.parity.compare import CompareOptions, apply_settings, choose_precision, compare_logs
from autorecipe.parity.repeats import find_strangers
from autorecipe.parity.source import load_logs
from autorecipe.record import replace
from autorecipe.schema.change import Change
from autorecipe.schema.parity import FactDifference, ParityReport, TrainingLog, Verdict


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
        UsageError: a log is missing or holds no iteration, or a repeat is no further run of its side.
        EnvironmentProblem: a package for a log's form is missing.
    """
    logs = load_logs([*paths, *reference_repeats, *candidate_repeats])
    sides = logs[: len(paths)]
    again = logs[len(paths) : len(paths) + len(reference_repeats)]
    other = logs[len(paths) + len(reference_repeats) :]
    options = options or CompareOptions()
    groups = ((paths[0], sides[0], reference_repeats, again), (paths[-1], sides[-1], candidate_repeats, other))
    problems = [*_given_twice([*paths, *reference_repeats, *candidate_repeats], reference_repeats, candidate_repeats)]
    for group in groups:
        problems += _strangers(*group, options=options)
    if problems:
        raise UsageError(problems)
    reports = []
    for path, candidate in zip(paths[1:], sides[1:], strict=True):
        report = compare_logs(sides[0], candidate, reference_repeats=again, candidate_repeats=other, options=options)
        if use_settings and report.verdict is not Verdict.NOT_COMPARABLE and sides[0].facts and candidate.facts:
            report = _compare_settings(report, paths[0], path)
        reports.append(report)
    return tuple(reports)


def _given_twice(every: Sequence[Path], *repeats: Sequence[Path]) -> list[Problem]:
    """Return a problem for each repeat that is a log given before: it measures nothing."""
    known = [path.resolve() for path in every]
    hint = "give the log of a run of its own"
    return [
        Problem(code="bad-repeat", path=str(path), message="is given twice: a repeat is a run of its own", hint=hint)
        for path in {path for group in repeats for path in group}
        if known.count(path.resolve()) > 1
    ]


def _strangers(
    path: Path, side: TrainingLog, repeats: Sequence[Path], logs: Sequence[TrainingLog], *, options: CompareOptions
) -> list[Problem]:
    """Return a problem for each repeat that is no further run of its side, by its numbers or by what the headers state."""
    found = dict(find_strangers(side, logs, precision=choose_precision(side, side, options.precision)[0]))
    for repeat, log in zip(repeats, logs, strict=True):
        if log.name not in found and side.facts and log.facts:
            names = ", ".join(item.path for item in _differences(path, repeat) or ())
            if names:
                found[log.name] = f"its header states other settings: {names}"
    hint = "repeat the very same command, seed included; compare other seeds as candidates"
    return [
        Problem(code="bad-repeat", path=name, message=f"is no further run of {path.name}: {reason}", hint=hint)
        for name, reason in found.items()
    ]


def _differences(one: Path, other: Path) -> tuple[Change, ...] | None:
    """Return what differs in effect between the settings of two headers, or None where they do not say enough."""
    from autorecipe.api.parity_design import find_effective_differences

    try:
        return find_effective_differences(str(one), str(other))
    except AutorecipeError:
        return None


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
