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


def whole_names(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """A table as lines of text, the header first; a row whose name leaves no room for the rest is two lines.

    Args:
        columns: the first is that of the names, which are never cut; the others go to the right.
        rows: a cell for each column.
        width: how many columns of characters there are.
    """
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)][1:]
    room = width - sum(each + 2 for each in widths)
    names = max((len(row[0]) for row in (columns, *rows) if len(row[0]) <= room), default=0)
    found = []
    for name, *cells in (columns, *rows):
        rest = "".join(f"  {cell:>{each}}" for cell, each in zip(cells, widths, strict=True))
        found.append(
            (f"{name:{names}}{rest}" if len(name) <= names else f"{name}\n{'':{names}}{rest}").rstrip()
        )
    return found


def width(out: TextIO) -> int:
    """How many characters a line may have."""
    console = Console(file=out)
    return console.width if console.is_terminal else WIDE


def fits(part: RenderableType, out: TextIO) -> bool:
    """Whether it can be printed without breaking lines; everything fits what is no terminal."""
    return Console(width=WIDE).measure(part).maximum <= width(out)


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
