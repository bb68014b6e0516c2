"""Tables of text for people: fitted to a terminal, unbroken lines without padding elsewhere."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TextIO

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

WIDE = 100_000  # columns; no line is broken


def table(columns: Sequence[str], *, right: Sequence[int] = ()) -> Table:
    """An empty table with a rule under its header; the columns at the places `right` go to the right."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for at, name in enumerate(columns):
        made.add_column(name, justify="right" if at in right else "left", overflow="fold")
    return made


def fits(part: RenderableType, out: TextIO) -> bool:
    """Whether it can be printed without breaking lines; everything fits what is no terminal."""
    console = Console(file=out)
    return not console.is_terminal or Console(width=WIDE).measure(part).maximum <= console.width


def show(parts: Sequence[RenderableType], out: TextIO) -> None:
    """Print the parts, one below the other."""
    console = Console(file=out, highlight=False)
    if console.is_terminal:
        for part in parts:
            console.print(part)
        return
    text = io.StringIO()
    wide = Console(file=text, highlight=False, width=WIDE)
    for part in parts:
        wide.print(part)
    out.write("".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines()))
