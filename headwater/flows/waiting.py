"""Rows that wait where they lie: in the tables of the streams that a flow reads, until their time has come.

Nothing is kept of them beside those tables. When event time has come from one point to another, the rows that
happened between the two, less the wait of their stream and the delay, wait no longer: of those that the batch
takes, and of those that were read before, which are found there by their times. Rows that came too late lie
there, too, and are told by `<table>_late`.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from headwater.common import database
from headwater.common.scratch import quoted
from headwater.connectors.decode import SOURCE
from headwater.flows.context import Context
from headwater.flows.earlier import EarlierFlow, Stream
from headwater.flows.late import Telling, tell
from headwater.flows.rows import read
from headwater.flows.timed import TimedFlow
from headwater.planner.event_time import NEVER
from headwater.project.definitions import Table
from headwater.project.process import STREAM
from headwater.storage import pruning, stored
from headwater.storage.intent import Intent
from headwater.storage.names import late_name
from headwater.storage.places import KEYS
from headwater.storage.pruning import Reach
from headwater.storage.scan import scan

_LITTLE = 1 << 20  # bytes of files whose rows are not counted
Span = tuple[int, int]  # from when on, and before when, in microseconds


class WaitingFlow(TimedFlow, EarlierFlow):
    """The flow of one table whose rows wait in the tables of its streams."""

    waits = True
    _waits: Mapping[str, int]  # how long a row of a stream waits, in microseconds, the delay aside
    _most: int  # rows of before whose wait a batch ends: they pass through this process

    def __init__(self, context: Context, table: Table) -> None:
        super().__init__(context, table)
        assert self._lateness is not None and self._analysed.late is not None
        self._delay, self._late_columns = self._lateness.delay, self._analysed.late
        self._is_behind = True  # whether there may be waits to end that are over by what has been read

    def _waiting(self) -> bool:
        time = self._event_time()
        return any(
            most + wait + self._delay >= time.closed
            for name, wait in self._waits.items()
            for partition, most in time.reached.items()
            if partition.startswith(self._streams[name].mark)
        )

    def step(self) -> bool:
        """Take one batch, or do what time alone has brought; whether there was either."""
        return super().step() or self._catch_up()

    def _catch_up(self) -> bool:
        """End more of the waits that are over by what has been read; whether there were more."""
        before = self._event_time()
        if self._is_behind:
            awaited = {*self._upstreams.known(), *before.reached} - {*before.idle}
            self._is_behind = self._close(before.low(awaited), {*before.idle})
        return self._is_behind

    def _as_far(self, closed: int) -> int:
        """As far as not too many rows wait no longer; then there is more to do."""
        before, near = self._event_time().closed, self._near(closed - self._delay)
        if closed <= before or sum(sum(files.values()) for files in near.values()) < _LITTLE:
            return closed
        due = self._due(closed - self._delay).sort()
        if len(due) <= self._most:
            return closed
        self._is_behind = True
        return min(closed, int(due[self._most].as_py()) + self._delay + 1)

    def _due(self, until: int) -> pa.ChunkedArray:
        closed = self._event_time().closed - self._delay
        found = [pa.chunked_array([], pa.int64())]
        for name, files in self._near(until).items():
            column = stored.schema(self._cursors[name].columns).field(self._time_of(name))
            times = pc.drop_null(stored.rows([*files], pa.schema([column]))[column.name])
            found.append(pc.add(times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), self._waits[name]))
        due = pa.chunked_array([chunk for each in found for chunk in each.chunks], pa.int64())
        return due.filter(pc.and_(pc.greater_equal(due, closed), pc.less_equal(due, until)))

    def _near(self, until: int) -> dict[str, dict[str, int]]:
        """{stream → {file of before → bytes}}, of those that may hold rows whose wait is over at a time, and
        was not before; microseconds, without the delay."""
        closed = self._event_time().closed - self._delay
        if until <= closed:
            return {}
        there = self._there(dict.fromkeys(self._cursors, ()))
        return {
            name: there[name].near({self._time_of(name): Reach(((closed - wait, until - wait),))})
            for name, wait in self._waits.items()
        }

    def _end(self) -> int:
        """All is over when the last row waits no longer."""
        last = max(self._event_time().reached.values(), default=NEVER)
        return last + max(self._waits.values()) + self._delay + 1

    def _spans(self, intent: Intent) -> dict[str, Span]:
        """{stream → when the rows happened whose wait is over with a batch}."""
        before, now = self._event_time().closed, self._parsed(intent.event_time).closed
        return {
            name: (before - self._delay - wait, now - self._delay - wait)
            for name, wait in self._waits.items()
        }

    def _tell(
        self, connection: duckdb.DuckDBPyConnection, streams: Mapping[str, Stream], intent: Intent
    ) -> pa.Table:
        """Make a table `fresh_<stream>` of the new rows of each stream that are on time; the others, as the
        late table has them."""
        before, may_be = self._event_time(), self._may_be_late(intent)
        found = [self._late_columns.empty_table()]
        for name, stream in streams.items():
            rows, of = read(stream.new, stream.columns), self._streams[name]
            connection.register("rows", rows)
            telling = Telling(quoted(self._time_of(name)), f"'{of.mark}'", self._delay, rows.schema.names)
            late = tell(connection, "rows", fresh(name), telling, before, may_be=may_be)
            if of.name:
                late = late.append_column(STREAM, pa.array([of.name] * len(late), pa.string()))
            found.append(late)
        names = self._late_columns.names
        return pa.concat_tables(found, promote_options="permissive").select(names).cast(self._late_columns)

    def _over(
        self, connection: duckdb.DuckDBPyConnection, name: str, stream: Stream, over: Span
    ) -> tuple[pa.Table, str]:
        """The rows of a stream that happened in a time: those of before; and SQL, of those that the batch
        takes, as `_tell` has made them."""
        columns, time = stored.schema(stream.columns), self._time_of(name)
        within = f"epoch_us({quoted(time)}) >= {over[0]} AND epoch_us({quoted(time)}) < {over[1]}"
        new = f"FROM {fresh(name)} WHERE {within}"
        if over[0] >= over[1]:
            return columns.empty_table(), new
        near = stream.near({time: Reach((over,))})
        self._met |= near
        rows = scan(connection, columns, near)
        found = database.table(connection, f"FROM {rows.sql} WHERE {within}", rows.parameters)
        return self._on_time(connection, name, found.cast(columns)), new

    def _on_time(self, connection: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> pa.Table:
        """Rows of before of a stream without those that came too late."""
        time, of = self._time_of(name), self._streams[name].name
        late = self.committer.target(late_name(self.name)).near(pruning.reaches(rows, [time]))
        if not len(rows) or not late:
            return rows
        connection.register("rows", rows)
        columns = [*(f'{SOURCE}."{part}"' for part in KEYS), quoted(time)]
        is_same = " AND ".join(f"late.{each} IS NOT DISTINCT FROM rows.{each}" for each in columns)
        told = [SOURCE, time, *([STREAM] if of else [])]
        known = scan(connection, pa.schema(map(self._late_columns.field, told)), late)
        mine = f" WHERE {STREAM} = '{of}'" if of else ""
        return database.table(
            connection,
            f"FROM rows ANTI JOIN (FROM {known.sql}{mine}) late ON {is_same}",
            known.parameters,
        ).cast(rows.schema)

    def _time_of(self, name: str) -> str:
        """The column of a stream that says when a row happened."""
        return str(self._streams[name].event_time)


def fresh(name: str) -> str:
    """SQL: what the new rows of a stream that are on time are called."""
    return quoted(f"fresh_{name}")
