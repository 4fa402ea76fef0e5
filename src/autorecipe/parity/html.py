"""A comparison as one self-contained HTML page: no script, no outside file, readable in light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from autorecipe.record import replace
from autorecipe.schema.parity import LOSS, ParityReport, Point

_STYLE = """
:root{color-scheme:light dark;--a:#2364aa;--b:#d1495b;--line:#8886}
body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td,th{text-align:right;padding:.2rem .6rem;border-bottom:1px solid var(--line)}
td:first-child,th:first-child{text-align:left}
tr.off td{color:var(--b);font-weight:600}
figure{margin:1.2rem 0}svg{width:100%;height:auto;border:1px solid var(--line)}
.a{stroke:var(--a)}.b{stroke:var(--b)}.verdict{font-size:1.15rem;font-weight:600}
"""
_WIDTH, _HEIGHT, _MARGIN = 900, 260, 46
_MAX_ROWS = 200


def render_html(reports: Sequence[ParityReport]) -> str:
    """Render reports as an HTML page."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Loss parity</title>",
        f"<style>{_STYLE}</style></head><body><h1>Loss parity</h1>",
    ]
    for report in reports:
        parts.append(_render_report(report))
    parts.append("</body></html>\n")
    return "".join(parts)


def _render_report(report: ParityReport) -> str:
    names = f"{escape(Path(report.candidate).name)} against {escape(Path(report.reference).name)}"
    parts = [f"<h2>{names}</h2><p class='verdict'>{escape(report.verdict.value)}: {escape(report.summary)}</p>"]
    if report.divergence is not None:
        parts.append(
            f"<p><b>Cause:</b> {escape(report.divergence.cause)}</p><p><b>Next:</b> {escape(report.divergence.next_step)}</p>"
        )
    losses = next((entry for entry in report.series if entry.metric == LOSS), None)
    for entry in report.series:
        parts.append(_render_curve(entry.metric, "blue: reference, red: candidate", entry.points))
        if entry is losses:
            gaps = tuple(replace(p, reference=p.tolerance, candidate=abs(p.difference)) for p in entry.points)
            parts.append(_render_curve("lm loss difference", "blue: tolerance, red: difference", gaps))
    if losses is not None:
        parts.append(_render_table(losses.points))
    if report.fact_differences:
        rows = "".join(
            f"<tr><td>{escape(item.name)}</td><td>{escape(item.reference)}</td><td>{escape(item.candidate)}</td></tr>"
            for item in report.fact_differences
        )
        parts.append(f"<h3>Settings that the headers state differently</h3><table>{rows}</table>")
    if report.tolerance is not None:
        parts.append(
            f"<p>Tolerance: {escape(report.tolerance.precision.value)} ({escape(report.tolerance.precision_reason)}),"
            f" <code>{escape(report.tolerance.formula)}</code></p>"
        )
    parts.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in report.notes) + "</ul>")
    return "".join(parts)


def _render_table(points: Sequence[Point]) -> str:
    stride = max(1, math.ceil(len(points) / _MAX_ROWS))
    shown = [point for position, point in enumerate(points) if position % stride == 0 or not point.agrees][: 2 * _MAX_ROWS]
    rows = "".join(
        f"<tr class='{'on' if p.agrees else 'off'}'><td>{p.iteration}</td><td>{p.reference:.6f}</td><td>{p.candidate:.6f}</td>"
        f"<td>{p.difference:+.2e}</td><td>{p.tolerance:.2e}</td></tr>"
        for p in shown
    )
    head = "<tr><th>iteration</th><th>reference</th><th>candidate</th><th>difference</th><th>tolerance</th></tr>"
    return f"<table>{head}{rows}</table>"


def _thin(points: Sequence[Point]) -> Sequence[Point]:
    """Return what a curve of this width can show: of each column the lowest and the highest point of both sides."""
    if len(points) <= 4 * _WIDTH:
        return points
    kept: set[int] = {0, len(points) - 1}
    for column in range(_WIDTH):
        places = range(column * len(points) // _WIDTH, (column + 1) * len(points) // _WIDTH)
        for values in ({at: points[at].reference for at in places}, {at: points[at].candidate for at in places}):
            known = {at: value for at, value in values.items() if math.isfinite(value)}
            if known:
                kept |= {min(known, key=known.__getitem__), max(known, key=known.__getitem__)}
    return [points[place] for place in sorted(kept)]


def _render_curve(title: str, legend: str, points: Sequence[Point]) -> str:
    shown = _thin(points)
    values = [v for p in shown for v in (p.reference, p.candidate) if math.isfinite(v)]
    if not values:
        return ""
    low, high = min(values), max(values)
    span = high - low
    first, last = points[0].iteration, points[-1].iteration
    width = (last - first) or 1

    def path(side: Sequence[float]) -> str:
        spots = [
            f"{_MARGIN + (p.iteration - first) / width * (_WIDTH - 2 * _MARGIN):.1f},"
            f"{_HEIGHT - _MARGIN - ((value - low) / span if span else 0.5) * (_HEIGHT - 2 * _MARGIN):.1f}"
            for p, value in zip(shown, side, strict=True)
            if math.isfinite(value)
        ]
        return " ".join(spots)

    reference = path([p.reference for p in shown])
    candidate = path([p.candidate for p in shown])
    labels = (
        (
            f"<text x='4' y='{_MARGIN - 8}' font-size='12' fill='currentColor'>{high:.4g}</text>"
            f"<text x='4' y='{_HEIGHT - _MARGIN + 14}' font-size='12' fill='currentColor'>{low:.4g}</text>"
            if span
            else f"<text x='4' y='{_HEIGHT // 2 - 8}' font-size='12' fill='currentColor'>{high:.4g}</text>"
        )
        + f"<text x='{_MARGIN}' y='{_HEIGHT - 16}' font-size='12' fill='currentColor'>{first}</text>"
        f"<text x='{_WIDTH - _MARGIN}' y='{_HEIGHT - 16}' font-size='12' text-anchor='end' fill='currentColor'>{last}</text>"
    )
    return (
        f"<figure><figcaption>{escape(title)} ({legend})</figcaption>"
        f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' aria-label='{escape(title)}'>{labels}"
        f"<polyline class='a' fill='none' stroke-width='3' stroke-opacity='.6' points='{reference}'/>"
        f"<polyline class='b' fill='none' stroke-width='1.5' points='{candidate}'/></svg></figure>"
    )
