"""A process: a function that sees the rows of each key in the order of their event time, and keeps a state.

It says what no aggregate can: patterns over rows, alarms when a row does not come, corrections of one row by
the next. It needs no stream to be tried: see `headwater.project.drive`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from headwater.common import times
from headwater.errors import FlowError, Where

Row = Mapping[str, Any]
Function = Callable[..., Iterable[Row] | None]
# Columns of the table that keeps what is known of each key: its state, its timer, the event time of its last
# row or timer, and when its timer, or the end of its state, is due.
STATE, TIMER, TOUCHED, DUE = "_state", "_timer", "_touched", "_due"
STREAM = "_stream"  # of a row that is due or late, where there are several: the stream that it is of


@dataclass(frozen=True)
class Stream:
    """One of the streams that a table reads row by row.

    Attributes:
        event_time: its column that says when a row happened.
        keys: of a process, its columns whose rows belong together.
        name: what a process over several streams calls it; "": the table reads no other.
    """

    event_time: str | None
    keys: tuple[str, ...] = ()
    name: str = ""

    @property
    def mark(self) -> str:
        """What its partitions of Kafka are told from those of the other streams by."""
        return f"{self.name}:" if self.name else ""


@dataclass(frozen=True)
class Process:
    """What a table's process is.

    Attributes:
        function: called with each row of a key, or None where the key's timer has come, and the `Keyed`; over
            several streams also with the name of the row's, or None; gives the rows that go to the table.
        streams: those that it reads, in the order in which rows of the same time come.
        columns: of the table, as Spark DDL.
        state: of a key, as Spark DDL.
        ttl: how long after the last row or timer of a key its state is kept, where no timer is set.
    """

    function: Function
    streams: tuple[Stream, ...]
    columns: str
    state: str
    ttl: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """What its keys are called: as by the first stream."""
        return self.streams[0].keys

    @property
    def is_named(self) -> bool:
        """Whether its streams have names, as those have that may be several."""
        return bool(self.streams[0].name)

    @property
    def call(self) -> Callable[[Row | None, Keyed, str | None], Iterable[Row] | None]:
        """Gives the rows that the function gives for a row of a stream, or for a timer."""
        function = self.function
        return function if self.is_named else lambda row, keyed, _: function(row, keyed)


@dataclass
class Keyed:
    """One key, as a process sees it.

    Attributes:
        key: {column → value}.
        now: the event time of the row, or the time of the timer (UTC).
        state: what the process keeps of the key, {column → value}: set it as a whole; None: nothing.
        timer: when the process is called without a row; set by `wake`.
        by_timer: whether it is called so now.
    """

    key: Mapping[str, Any]
    now: datetime = times.EPOCH
    state: dict[str, Any] | None = None
    timer: datetime | None = None
    by_timer: bool = field(default=False, compare=False, repr=False)

    def wake(self, at: datetime) -> None:
        """Set the key's timer, in place of one that is set: the process is called, with None for a row, when
        event time has come there. One at `now` comes after the rows of that time.

        Raises:
            ValueError: it lies before `now`; or at `now`, and a timer has come, which would come for ever.
        """
        if at < self.now or (self.by_timer and at == self.now):
            where = "after" if self.by_timer else "at or after"
            raise ValueError(f"a timer at {at.isoformat()} would not lie {where} {self.now.isoformat()}")
        self.timer = at

    def forget(self) -> None:
        """Keep nothing of the key: neither its state nor its timer."""
        self.state = self.timer = None


def advance(
    process: Process,
    keyed: Keyed,
    rows: Iterable[tuple[datetime, str, Row]],
    upto: datetime,
    ttl: timedelta | None,
) -> Iterator[Row]:
    """Call the process with one key's rows and timers that lie before a time; the rows that it gives.

    Args:
        process: what is called.
        keyed: the key as it was left; changed.
        rows: event time, stream and row, in order, all before `upto`. A timer comes after the rows of its
            time.
        upto: the time.
        ttl: that of the process.
    """
    call = process.call
    for at, stream, row in rows:
        if keyed.timer is not None or ttl is not None:
            yield from _elapse(process, keyed, at, ttl)
        keyed.now, keyed.by_timer = at, False
        made = call(row, keyed, stream)
        if made is not None:
            yield from made
    yield from _elapse(process, keyed, upto, ttl)


def expires(keyed: Keyed, ttl: timedelta | None) -> datetime | None:
    """When the state of a key ends, if nothing comes."""
    if ttl is None or keyed.state is None or keyed.timer is not None:
        return None
    return keyed.now + ttl


def _elapse(process: Process, keyed: Keyed, upto: datetime, ttl: timedelta | None) -> Iterator[Row]:
    """Let time come to just before `upto`."""
    while keyed.timer is not None and keyed.timer < upto:
        keyed.now, keyed.timer, keyed.by_timer = keyed.timer, None, True
        yield from process.call(None, keyed, None) or ()
    end = expires(keyed, ttl)
    if end is not None and end < upto:
        keyed.state = None


def unknown_columns(rows: Iterable[Row], columns: Sequence[str], where: Where) -> None:
    """Check that rows have no other columns than these.

    Raises:
        FlowError: one has.
    """
    known = set(columns)
    for row in rows:
        if not known.issuperset(row):
            extra = ", ".join(sorted(set(row) - known))
            raise FlowError(
                f"{where} gives a column {extra}",
                code="PROCESS_ROW_INVALID",
                where=where,
                hint=f"it declares {', '.join(columns)}",
            )
