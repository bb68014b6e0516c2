"""Completeness against delay, drawn as SVG by hand: one file that opens without a network.

The upright axis counts nines (90 %, 99 %, 99.9 %, …), because what matters is how few rows are lost: on a
straight one all delays worth choosing would lie on the upper edge.
"""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

from headwater.common import durations
from headwater.errors import QueryError
from headwater.query.lateness.measured import Choice, Measured, View

NINES = 5  # as many as are told apart: 99.999 %; nothing lost is one more
LABELS = ("90%", "99%", "99.9%", "99.99%", "99.999%", "100%")
_COLOURS = ("#2563eb", "#c2410c", "#15803d", "#7e22ce", "#0e7490", "#a16207")
_LEFT, _TOP, _STEP, _NINE = 70, 64, 56, 52  # px


def height(completeness: float) -> float:
    """How many nines: 0.99 is 2, at most `NINES`; 1 is one more."""
    if completeness >= 1:
        return NINES + 1
    return min(NINES, max(0.0, -math.log10(1 - completeness)))


def title(view: View) -> str:
    """What a view is about, in a few words."""
    tables = ", ".join(view.tables)
    if view.window is None:
        return "row by row" + (f", as for {tables}" if tables else "")
    every = "" if view.window.slide == view.window.size else f" every {durations.text(view.window.slide)}"
    return f"{tables}{': ' if tables else ''}windows of {durations.text(view.window.size)}{every}"


def write(found: Measured, path: Path) -> None:
    """Write the chart to a file: .svg, or .html around the same drawing.

    Raises:
        QueryError: another ending, or the file can't be written.
    """
    if path.suffix not in (".svg", ".html"):
        raise QueryError(
            f"--chart {path} is no SVG and no HTML file",
            code="CHART_NOT_WRITABLE",
            file=path,
            hint="write a file that ends in .svg or .html",
        )
    drawing = svg(found)
    if path.suffix == ".html":
        name = escape(found.table)
        drawing = (
            f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Lateness of {name}</title>\n'
            f"<body>\n{drawing}</body>\n</html>\n"
        )
    try:
        path.write_text(drawing, encoding="utf-8")
    except OSError as e:
        raise QueryError(
            f"--chart {path}: {e.strerror}", code="CHART_NOT_WRITABLE", file=path, hint="choose another file"
        ) from None


def svg(found: Measured) -> str:
    """The chart as one SVG element; each point says its figures when the pointer rests on it."""
    delays = [choice.delay for choice in found.views[0].choices]
    width, bottom = _LEFT + _STEP * len(delays) + 20, _TOP + _NINE * (NINES + 1)
    below = bottom + 56 + 20 * len(found.views)
    rows = f"{found.all.rows:,} rows by {found.event_time}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {below}" width="{width}" '
        f'height="{below}" font-family="sans-serif" font-size="12" fill="#1f2937">',
        f'<rect width="{width}" height="{below}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="22" font-size="16">Completeness of {escape(found.table)} against '
        f'watermark delay</text><text x="{_LEFT}" y="42" fill="#6b7280">{escape(rows)}</text>',
    ]
    for at, label in enumerate(LABELS, 1):
        y = bottom - _NINE * at
        parts.append(f'<line x1="{_LEFT}" y1="{y}" x2="{width - 20}" y2="{y}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{label}</text>')
    parts.append(f'<line x1="{_LEFT}" y1="{bottom}" x2="{width - 20}" y2="{bottom}" stroke="#9ca3af"/>')
    for at, delay in enumerate(delays):
        x = _x(at)
        parts.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{durations.text(delay)}</text>')
        if any(view.choices[at].declared_by for view in found.views):
            parts.append(
                f'<line x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom}" stroke="#9ca3af" stroke-dasharray="4 4"/>'
                f'<text x="{x}" y="{bottom + 34}" text-anchor="middle" fill="#6b7280">declared</text>'
            )
    for at, view in enumerate(found.views):
        parts += _line(view, _COLOURS[at % len(_COLOURS)], bottom, bottom + 56 + 20 * at)
    return "\n".join([*parts, "</svg>\n"])


def _line(view: View, colour: str, bottom: int, legend: int) -> list[str]:
    points = [(_x(at), bottom - _NINE * height(c.completeness), c) for at, c in enumerate(view.choices)]
    path = " ".join(f"{x},{y:.1f}" for x, y, _ in points)
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(
            f'<circle cx="{x}" cy="{y:.1f}" r="4" fill="{colour}"><title>{_says(choice)}</title></circle>'
            for x, y, choice in points
        ),
        f'<rect x="{_LEFT}" y="{legend - 9}" width="10" height="10" fill="{colour}"/>'
        f'<text x="{_LEFT + 16}" y="{legend}">{escape(title(view))}</text>',
    ]


def _says(choice: Choice) -> str:
    return (
        f"delay {durations.text(choice.delay)}: {choice.late:,} rows too late, {choice.completeness:.4%} kept"
    )


def _x(at: int) -> int:
    return _LEFT + _STEP * at + _STEP // 2
