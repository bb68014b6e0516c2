"""Tables of text for people: fitted to a terminal, unbroken lines with all that there is elsewhere.

A terminal that is too narrow takes from the widest column first. What does not fit a cell any more ends in …;
prose goes on in the next line. Names of columns break at spaces only. Where not even these fit side by side,
columns that can be done without are left out, which is said below; else each row is shown by itself, a line
for each column (as psql does with `\\x auto`), and nothing is cut.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

WIDE = 100_000  # columns; no line is broken
NARROW = 8  # columns that a value keeps at least
WORD = 24  # columns that the longest word of a line of prose keeps at most
_GAP = 2  # between two columns


class Listing(Table):
    """A table with a rule under its header. Texts are taken as they are: they have no markup.

    Args:
        columns: their names.
        right: the places of those that go to the right: numbers, which are never cut.
        whole: the places of others that are never cut, as names that one types.
        prose: the places of those that are wrapped.
        spare: the places of those that are left out where there is no room: empty ones, then one by one.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        right: Sequence[int] = (),
        whole: Sequence[int] = (),
        prose: Sequence[int] = (),
        spare: Sequence[int] = (),
    ) -> None:
        super().__init__(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        self._names, self._whole, self._prose, self._spare = columns, {*right, *whole}, {*prose}, spare
        for at, name in enumerate(columns):
            justify = "right" if at in right else "left"
            wraps = at in self._prose
            how = "fold" if wraps else "ellipsis"
            self.add_column(Text(name), justify=justify, overflow=how, no_wrap=not wraps)  # type: ignore[arg-type]

    def row(self, *cells: RenderableType) -> None:
        """Add a row."""
        self.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))

    def fits(self, out: TextIO) -> bool:
        """Whether all of it has room side by side where it is shown."""
        console = Console(file=out)
        return not console.is_terminal or (self._widths(console.width) is not None and not self.cuts(out))

    def cuts(self, out: TextIO) -> bool:
        """Whether values are cut where it is shown."""
        console = Console(file=out)
        widths = self._widths(console.width) if console.is_terminal else None
        return widths is not None and any(
            width < self._sizes(at)[1] and at not in self._prose for at, width in widths.items()
        )

    def fitted(self, console: Console, width: int) -> RenderableType:
        """What is shown of it in lines of so many columns."""
        widths = self._widths(width)
        if widths is None:
            return self._records()
        shown = copy(self)
        shown.columns = [replace(self.columns[at], _index=to) for to, at in enumerate(widths)]
        for column, (at, each) in zip(shown.columns, widths.items(), strict=True):
            name, column.width = self._names[at], each
            if len(name) > each:
                column.header = Text("\n").join(Text(name).wrap(console, each))
        out = [name for at, name in enumerate(self._names) if at not in widths and not self._is_empty(at)]
        note = f"\nfor {' and '.join(out)} there is no room here: make the window wider, or use --json"
        return Group(shown, Text(note, style="dim")) if out else shown

    def _widths(self, width: int) -> dict[int, int] | None:
        """How wide each column is that is shown; None where they don't fit side by side."""
        shown = list(range(len(self.columns)))
        empty = [at for at in self._spare if self._is_empty(at)]
        for without in (None, *empty, *(at for at in self._spare if at not in empty)):
            shown = [at for at in shown if at != without]
            if found := self._fit(shown, width):
                return found
        return None

    def _fit(self, shown: Sequence[int], width: int) -> dict[int, int] | None:
        sizes = {at: self._sizes(at) for at in shown}
        room = width - _GAP * (len(sizes) - 1)
        for most in range(max(room, 0), 0, -1):
            found = {at: max(least, min(whole, most)) for at, (least, whole) in sizes.items()}
            if sum(found.values()) <= room:
                return found
        return None

    def _is_empty(self, at: int) -> bool:
        return not any(map(str, self.columns[at].cells))

    def _sizes(self, at: int) -> tuple[int, int]:
        """How wide a column is at least, and with all that is in it."""
        name, cells = self._names[at], [_size(cell) for cell in self.columns[at].cells]
        heading = max(map(cell_len, name.split()), default=0)
        word, widest = (max(sizes, default=0) for sizes in zip(*cells, strict=True)) if cells else (0, 0)
        least = widest if at in self._whole else min(word, WORD) if at in self._prose else min(widest, NARROW)
        return max(heading, least), max(cell_len(name), widest)

    def _records(self) -> RenderableType:
        """Each row by itself, a line for each column."""
        record = Table.grid(padding=(0, 3, 0, 0))
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            for name, cell in zip(self._names, cells, strict=True):
                record.add_row(Text(name.strip(), style="bold"), cell)
            record.add_row()
        return record


def width(out: TextIO) -> int:
    """How many characters a line may have."""
    console = Console(file=out)
    return console.width if console.is_terminal else WIDE


def _size(cell: RenderableType) -> tuple[int, int]:
    """How wide the longest word of a cell is, and its longest line."""
    if isinstance(cell, Text):
        words, lines = cell.plain.split(), cell.plain.split("\n")
        return max(map(cell_len, words), default=0), max(map(cell_len, lines))
    found = Measurement.get(Console(), Console().options, cell)
    return found.minimum, found.maximum


def show(parts: Sequence[RenderableType], out: TextIO) -> None:
    """Print the parts, one below the other."""
    console = Console(file=out, highlight=False)
    if console.is_terminal:
        for part in parts:
            console.print(part.fitted(console, console.width) if isinstance(part, Listing) else part)
        return
    text = io.StringIO()
    wide = Console(file=text, highlight=False, width=WIDE)
    for part in parts:
        wide.print(part.fitted(wide, WIDE) if isinstance(part, Listing) else part)
    out.write("".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines()))
