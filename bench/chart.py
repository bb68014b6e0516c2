"""Figures against figures as a picture: lines on logarithmic axes, written as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import altair

from bench import lab
from headwater.project.paths import engine_folder

Lines = Mapping[str, Mapping[float, float]]  # {line → {x → y}}


def draw(name: str, lines: Lines, *, x: str, y: str) -> Path:
    """Write a picture, and say where.

    Args:
        name: the file's, without its ending.
        lines: in the order of the legend.
        x, y: what the axes show, with the unit.
    """
    points = [{x: at, y: value, "line": line} for line, ys in lines.items() for at, value in ys.items()]
    values = sorted({at for ys in lines.values() for at in ys})
    axis = altair.Axis(values=values, format="~s", grid=False)
    drawn = (
        altair.Chart(altair.Data(values=points), width=640, height=320)
        .mark_line(point=True)
        .encode(
            x=altair.X(f"{x}:Q", scale=altair.Scale(type="log"), axis=axis),
            y=altair.Y(f"{y}:Q", scale=altair.Scale(type="log"), axis=altair.Axis(format="~g")),
            color=altair.Color("line:N", sort=[*lines], title=None),
        )
        .configure(background="white")
    )
    path = engine_folder(lab.ROOT) / "bench" / f"{name}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.save(path)
    return path
