"""Figures against figures as a picture: lines on logarithmic axes, written as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import altair

from bench import lab
from headwater.project.paths import engine_folder

Lines = Mapping[tuple[str, str], Mapping[float, float]]  # {(what, which of its figures) → {x → y}}


def draw(name: str, lines: Lines, *, x: str, y: str) -> Path:
    """Write a picture, and say where: a colour for each thing, and a dash for each of its figures.

    Args:
        name: the file's, without its ending.
        lines: in the order of the legend.
        x, y: what the axes show, with the unit.
    """
    points = [
        {x: at, y: value, "what": what, "figure": figure}
        for (what, figure), ys in lines.items()
        for at, value in ys.items()
    ]
    values = sorted({at for ys in lines.values() for at in ys})
    scale = altair.Scale(type="log", nice=False, padding=12)
    shown = {
        "x": altair.X(f"{x}:Q", scale=scale, axis=altair.Axis(values=values, format=".2~s", grid=False)),
        "y": altair.Y(f"{y}:Q", scale=altair.Scale(type="log"), axis=altair.Axis(format="~g")),
        "color": altair.Color("what:N", sort=[what for what, _ in lines], title=None),
    }
    if len({figure for _, figure in lines}) > 1:
        legend = altair.Legend(symbolType="stroke", symbolSize=400, symbolFillColor="transparent")
        shown["strokeDash"] = altair.StrokeDash(
            "figure:N", sort=[figure for _, figure in lines], title=None, legend=legend
        )
    drawn = altair.Chart(altair.Data(values=points), width=640, height=320).mark_line(point=True)
    path = engine_folder(lab.ROOT) / "bench" / f"{name}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.encode(**shown).configure(background="white").save(path)
    return path
