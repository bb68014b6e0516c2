"""Part of a table to be computed again: its windows in a span of time, from the files that have rows of them.

A row of an aggregate by windows of time follows from the rows of its input whose time lies in its window, and
from nothing else, as long as it is corrected whenever rows come: which of them are late depends on all. Files
that have no row of the span, by their statistics, are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from headwater.common import times
from headwater.common.scratch import quoted
from headwater.errors import ProjectError
from headwater.planner.analysis import Analysed
from headwater.project.definitions import Table
from headwater.storage import stats


@dataclass(frozen=True)
class Window:
    """A span of time.

    Attributes:
        begin, end: windows that lie between are meant (UTC).
        text: as it was written.
    """

    begin: datetime
    end: datetime
    text: str

    @classmethod
    def parse(cls, text: str) -> Window:
        """A span as ISO 8601 writes it, `2026-01-31T06:00/2026-01-31T07:00`; UTC unless a zone is named.

        Raises:
            ProjectError: it is none.
        """
        begin, _, end = text.partition("/")
        try:
            found = cls(times.parse(begin), times.parse(end), text)
        except ValueError:
            found = None
        if found is None or found.begin >= found.end:
            raise ProjectError(
                f"--window {text} is no span between two times",
                code="TIME_INVALID",
                hint="write two times, 2026-01-31T06:00/2026-01-31T07:00",
            )
        return found

    def of(self, table: Table, analysed: Analysed) -> Part:
        """The part of a table that has these windows.

        Raises:
            ProjectError: a part of this table can't be computed alone.
        """
        aggregate = analysed.aggregate
        ends = {output.window: output.name for output in aggregate.outputs} if aggregate else {}
        if aggregate is None or aggregate.window != "time" or table.event_time is None:
            why = "has no windows of time"
        elif table.emit == "final" or table.allowed_lateness:
            why = "leaves late rows out, and which these are depends on all that it has read"
        elif not {"start", "end"} <= ends.keys():
            why = "has no columns with both ends of its windows"
        else:
            return Part(self, table.event_time, ends["start"], ends["end"])
        raise ProjectError(
            f"{table.where} {why}",
            code="WINDOWS_NOT_COMPARABLE",
            where=table.where,
            hint="compare all of it: leave --window away",
        )


@dataclass(frozen=True)
class Part:
    """Windows of one table.

    Attributes:
        window: which.
        time: the column of the input that says which window a row is in.
        start, end: the table's columns with the ends of its windows.
    """

    window: Window
    time: str
    start: str
    end: str

    def where(self) -> str:
        """Which rows of the table are meant, in DuckDB's SQL."""
        begin, end = (at.isoformat() for at in (self.window.begin, self.window.end))
        return f"{quoted(self.start)} >= TIMESTAMPTZ '{begin}' AND {quoted(self.end)} <= TIMESTAMPTZ '{end}'"

    def wants(self, file: Path) -> bool:
        """Whether a file of the input may have rows of these windows."""
        span = stats.span(file, self.time)
        return span is None or (span[0] < self.window.end and span[1] >= self.window.begin)
