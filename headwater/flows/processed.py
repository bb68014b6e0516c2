"""Silver → gold by a process: a function that sees each key's rows in the order of their event time.

A row waits in `<table>__state` until every partition of Kafka, of all streams, has reached its time and the
delay: no row that is on time can then come before it. So what the process sees depends on the rows alone, not
on how batches were cut or partitions read. Beside the rows that wait stand each key's state and timer. Rows
that come too late go to `<table>_late`, those without an event time too.

The process is called in this process, one row at a time (`headwater.flows.calls`); all else is done with
Arrow and DuckDB. There a row of several streams has the columns of all, and says in `_stream` which is its.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from headwater.common import arrow, database, scratch, times
from headwater.common.diff import same
from headwater.common.scratch import quoted
from headwater.connectors.decode import SOURCE
from headwater.flows.calls import Calls
from headwater.flows.context import Context
from headwater.flows.late import Telling, tell
from headwater.flows.rows import read
from headwater.flows.timed import TimedFlow
from headwater.flows.work import Counts
from headwater.planner.event_time import NEVER, EventTime
from headwater.project.definitions import Table
from headwater.project.process import DUE, STATE, STREAM, TIMER, TOUCHED, WAITING
from headwater.storage.commit import Built, Part
from headwater.storage.identity import Identity
from headwater.storage.intent import Intent
from headwater.storage.names import late_name, state_name
from headwater.storage.places import KEYS
from headwater.storage.pruning import Reach, reaches, upto
from headwater.storage.scan import load, scan
from headwater.storage.target import GONE, Target

_AT_ONCE = 50_000  # rows that are due, at a time
_PLACE = ", ".join(f'{SOURCE}."{part}"' for part in KEYS)


class ProcessFlow(TimedFlow):
    """The flow of one table that a process feeds."""

    waits = True
    keeps = "Each key's state, and rows that wait,"

    def __init__(self, context: Context, table: Table) -> None:
        super().__init__(context, table)
        assert table.process is not None and self._analysed.state is not None and self._lateness is not None
        self._process = table.process
        self._delay = self._lateness.delay
        self._kept = self._analysed.state
        self._columns = [field.name for field in self._kept.field(WAITING).type.value_type]
        self._names = ", ".join(map(quoted, self._columns))
        self._time = self._chosen(quoted(str(stream.event_time)) for stream in self._process.streams)
        keys = zip(*(stream.keys for stream in self._process.streams), strict=True)
        self._keys = [self._chosen(map(quoted, columns)) for columns in keys]
        kept = pa.schema([field for field in self._kept if field.name != WAITING])
        columns = {self._streams[each].name: cursor.columns.names for each, cursor in self._cursors.items()}
        self._calls = Calls(table, columns, self._analysed.stored, kept)
        self.committer = self._commits({state_name(self.name): self._change})
        self._state = self.committer.target(state_name(self.name))

    def _waiting(self) -> bool:
        return bool(self._state.files())

    def _due(self, until: int) -> pa.ChunkedArray:
        files = list(self._state.near({DUE: _until(until)}))
        if not files:
            return pa.chunked_array([], pa.int64())
        with scratch.connection() as connection:
            rows = scan(connection, pa.schema([self._kept.field(DUE)]), files)
            due = f"SELECT epoch_us({DUE}) AS due FROM {rows.sql} WHERE {DUE} IS NOT NULL"
            found = database.table(connection, due, rows.parameters)
        return pc.cast(found["due"], pa.int64())

    def _end(self) -> int:
        """All rows are over; timers that lie behind the last of them are not."""
        return max(self._event_time().reached.values(), default=NEVER) + self._delay + 1

    def _build(self, intent: Intent) -> Built:
        before, now = self._event_time(), EventTime.parse(intent.event_time)
        limit = now.closed - self._delay
        with scratch.connection() as connection:
            self._load(connection, intent)
            parts, late = self._tell(connection, before, intent)
            self._gather(connection, limit)
            made = self._call(connection, limit)
            changes = self._changes(connection)
        written = self._table.write(made, intent.batch)
        return Built(
            {**parts, state_name(self.name): changes, self.name: written},
            account=self._account(intent, Counts(taken=intent.rows), len(made), late=late),
        )

    def _chosen(self, expressions: Iterable[str]) -> str:
        """SQL: of expressions, one for each stream, the one that is for the stream of a row."""
        found = dict(zip((stream.name for stream in self._process.streams), expressions, strict=True))
        if len({*found.values()}) == 1:
            return next(iter(found.values()))
        cases = " ".join(f"WHEN '{name}' THEN {value}" for name, value in found.items())
        return f"CASE {STREAM} {cases} END"

    def _load(self, connection: duckdb.DuckDBPyConnection, intent: Intent) -> None:
        """Make the view `batch` of the rows that a batch reads."""
        parts = []
        for at, (each, files) in enumerate(self._files(intent).items()):
            connection.register(f"batch{at}", read(files, self._cursors[each].columns))
            name = self._streams[each].name
            of_stream = f"'{name}' AS {STREAM}, " if name else ""
            parts.append(f"SELECT {of_stream}* FROM batch{at}")
        connection.execute(f"CREATE TEMP VIEW batch AS {' UNION ALL BY NAME '.join(parts)}")

    def _tell(
        self, connection: duckdb.DuckDBPyConnection, before: EventTime, intent: Intent
    ) -> tuple[dict[str, Part], int]:
        """Make the table `fresh` of the rows that are on time; the late table's part, if it gets any; and how
        many rows are late."""
        mark = self._chosen(f"'{stream.mark}'" for stream in self._process.streams)
        telling = Telling(self._time, mark, self._delay, self._columns)
        found = tell(connection, "batch", "fresh", telling, before, may_be=self._may_be_late(intent))
        if not len(found):
            return {}, 0
        assert self._analysed.late is not None
        name = late_name(self.name)
        written = self.committer.target(name).write(found.cast(self._analysed.late), intent.batch)
        return {name: written}, len(found)

    def _gather(self, connection: duckdb.DuckDBPyConnection, limit: int) -> None:
        """Make the tables `states`, of what is kept of the keys that something comes for; `due`, of the rows
        whose time has come, in order; and `later`, of the others, a list for each key."""
        named = zip(self._keys, map(quoted, self._process.keys), strict=True)
        keys = ", ".join(f"{value} AS {name}" for value, name in named)
        connection.execute(f"CREATE TEMP TABLE keys AS SELECT DISTINCT {keys} FROM fresh")
        fresh = database.table(connection, "FROM keys")
        wanted = fresh.cast(pa.schema(map(self._kept.field, self._process.keys)))
        files = list(self._state.near(reaches(wanted, self._process.keys), {DUE: _until(limit)}))
        of_keys = (
            f"FROM there s WHERE epoch_us({DUE}) < {limit} "
            f"OR EXISTS (SELECT 1 FROM keys k WHERE {self._same('s', 'k')})"
        )
        load(connection, "states", self._kept, files, of_keys)
        names = [stream.name for stream in self._process.streams]
        turn = f"list_position({names}, {STREAM}), " if self._process.is_named else ""
        order = f"{self._time}, {turn}{_PLACE}, {self._names}"  # so only equal rows are in any order
        waiting = (
            f"(SELECT {self._names} FROM fresh UNION ALL "
            f"SELECT {self._names} FROM (SELECT unnest({WAITING}, max_depth := 2) FROM states))"
        )
        connection.execute(
            f"CREATE TEMP TABLE due AS SELECT {self._names} FROM {waiting} "
            f"WHERE epoch_us({self._time}) < {limit} ORDER BY {', '.join(self._keys)}, {order}"
        )
        row = ", ".join(f"{quoted(name)} := {quoted(name)}" for name in self._columns)
        by = ", ".join(str(at + 1) for at in range(len(self._keys)))
        connection.execute(
            f"CREATE TEMP TABLE later AS SELECT {keys}, min({self._time}) AS {DUE}, "
            f"list(struct_pack({row}) ORDER BY {order}) AS {WAITING} "
            f"FROM {waiting} WHERE epoch_us({self._time}) >= {limit} GROUP BY {by}"
        )

    def _call(self, connection: duckdb.DuckDBPyConnection, limit: int) -> pa.Table:
        """Call the process for all whose time has come; the rows that it gives, and what it then keeps in the
        table `kept`."""
        columns = ", ".join([*map(quoted, self._process.keys), STATE, TIMER, TOUCHED])
        held = database.table(connection, f"SELECT {columns} FROM states")
        due = connection.execute("FROM due").to_arrow_reader(_AT_ONCE)
        upto = times.EPOCH + timedelta(microseconds=max(limit, 0))
        made, kept = self._calls(arrow.rows(held), due, upto)
        connection.register("kept", kept)
        return made

    def _changes(self, connection: duckdb.DuckDBPyConnection) -> pa.Table:
        """What changes in the state: its columns, and whether a row goes."""
        keys = ", ".join(map(quoted, self._process.keys))
        once = ", ".join(f"any_value({name}) AS {name}" for name in (STATE, TIMER, TOUCHED, WAITING))
        found = database.table(
            connection,
            f"WITH n AS (SELECT {keys}, {once}, min({DUE}) AS {DUE} FROM "
            f"(SELECT * FROM kept UNION ALL BY NAME SELECT * FROM later) GROUP BY {keys}), "
            f"gone AS (SELECT *, {STATE} IS NULL AND {TIMER} IS NULL AND {WAITING} IS NULL AS {GONE} FROM n) "
            f"SELECT * FROM gone n WHERE NOT {GONE} "
            f"OR EXISTS (SELECT 1 FROM states s WHERE {self._same('s', 'n')})",
        )
        wanted = self._kept.append(pa.field(GONE, pa.bool_()))
        return found.select(wanted.names).cast(wanted)

    def _same(self, one: str, other: str) -> str:
        """SQL: whether rows of two tables are of the same key."""
        return same(one, other, map(quoted, self._process.keys))

    def _change(self, table: Target, rows: pa.Table, identity: Identity) -> int:
        return table.change(rows, self._process.keys, identity)


def _until(time: int) -> Reach:
    """Times up to one in microseconds since the epoch."""
    return upto(pa.scalar(time, pa.timestamp("us", "UTC")))
