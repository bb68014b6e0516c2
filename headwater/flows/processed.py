"""Silver → gold by a process: a function that sees each key's rows in the order of their event time.

A row waits until every partition of Kafka, of all streams, has reached its time and the delay: no row that is
on time can then come before it (`headwater.flows.waiting`). So what the process sees depends on the rows
alone, not on how batches were cut or partitions read. `<table>__state` has each key's state and timer. Rows
that come too late go to `<table>_late`, those without an event time too.

The process is called in this process, one row at a time (`headwater.flows.calls`); all else is done with
Arrow and DuckDB. There a row of several streams has the columns of all, and says in `_stream` which is its.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from headwater.common import arrow, database, scratch, times
from headwater.common.diff import same
from headwater.common.scratch import quoted
from headwater.connectors.decode import SOURCE
from headwater.flows.calls import Calls
from headwater.flows.context import Context
from headwater.flows.earlier import Stream
from headwater.flows.waiting import WaitingFlow
from headwater.flows.work import Counts
from headwater.planner.event_time import LATENESS, WATERMARK
from headwater.project.definitions import Table
from headwater.project.process import DUE, STATE, STREAM, TIMER, TOUCHED
from headwater.storage.commit import Built, Part
from headwater.storage.identity import Identity
from headwater.storage.intent import Intent
from headwater.storage.names import late_name, state_name
from headwater.storage.places import KEYS
from headwater.storage.pruning import Reach, reaches, upto
from headwater.storage.scan import load, scan
from headwater.storage.target import GONE, Target

_AT_ONCE = 50_000  # rows that are due, at a time
_MOST = 500_000  # rows of before that are due in one batch, and timers
_PLACE = ", ".join(f'{SOURCE}."{part}"' for part in KEYS)


class ProcessFlow(WaitingFlow):
    """The flow of one table that a process feeds."""

    keeps = "Each key's state and timer"

    def __init__(self, context: Context, table: Table) -> None:
        super().__init__(context, table)
        assert table.process is not None and self._analysed.state is not None
        self._process, self._kept = table.process, self._analysed.state
        self._waits, self._most = dict.fromkeys(self._cursors, 0), _MOST
        self._columns = [name for name in self._late_columns.names if name not in (WATERMARK, LATENESS)]
        self._names = ", ".join(map(quoted, self._columns))
        self._time = self._chosen(quoted(str(stream.event_time)) for stream in self._process.streams)
        keys = zip(*(stream.keys for stream in self._process.streams), strict=True)
        self._keys = [self._chosen(map(quoted, columns)) for columns in keys]
        columns = {self._streams[each].name: cursor.columns.names for each, cursor in self._cursors.items()}
        self._calls = Calls(table, columns, self._analysed.stored, self._kept)
        self.committer = self._commits({state_name(self.name): self._change})
        self._state = self.committer.target(state_name(self.name))

    def _waiting(self) -> bool:
        return super()._waiting() or bool(self._state.files())

    def _due(self, until: int) -> pa.ChunkedArray:
        found, files = super()._due(until), list(self._state.near({DUE: _until(until)}))
        if not files:
            return found
        with scratch.connection() as connection:
            rows = scan(connection, pa.schema([self._kept.field(DUE)]), files)
            due = f"SELECT epoch_us({DUE}) AS due FROM {rows.sql} WHERE {DUE} IS NOT NULL"
            timers = database.table(connection, due, rows.parameters)
        return pa.chunked_array([*found.chunks, *pc.cast(timers["due"], pa.int64()).chunks], pa.int64())

    def _build(self, intent: Intent) -> Built:
        self._met, streams, parts = {}, self._there(self._files(intent)), dict[str, Part]()
        with scratch.connection() as connection:
            late = self._tell(connection, streams, intent)
            self._gather(connection, streams, intent)
            limit = self._parsed(intent.event_time).closed - self._delay
            self._load(connection, limit)
            made = self._call(connection, limit)
            changes = self._changes(connection)
        if len(late):
            parts[late_name(self.name)] = self.committer.target(late_name(self.name)).write(
                late, intent.batch
            )
        parts |= {state_name(self.name): changes, self.name: self._table.write(made, intent.batch)}
        return Built(
            parts, account=self._account(intent, Counts(taken=intent.rows), len(made), late=len(late))
        )

    def _chosen(self, expressions: Iterable[str]) -> str:
        """SQL: of expressions, one for each stream, the one that is for the stream of a row."""
        found = dict(zip((stream.name for stream in self._process.streams), expressions, strict=True))
        if len({*found.values()}) == 1:
            return next(iter(found.values()))
        cases = " ".join(f"WHEN '{name}' THEN {value}" for name, value in found.items())
        return f"CASE {STREAM} {cases} END"

    def _gather(
        self, connection: duckdb.DuckDBPyConnection, streams: Mapping[str, Stream], intent: Intent
    ) -> None:
        """Make the table `due`, of the rows whose time has come, in order: those of a key together."""
        parts = []
        for at, (each, over) in enumerate(self._spans(intent).items()):
            known, new = self._over(connection, each, streams[each], over)
            connection.register(f"known_{at}", known)
            name = self._streams[each].name
            of_stream = f"'{name}' AS {STREAM}, " if name else ""
            parts += [f"SELECT {of_stream}* FROM known_{at}", f"SELECT {of_stream}* {new}"]
        names = [stream.name for stream in self._process.streams]
        turn = f"list_position({names}, {STREAM}), " if self._process.is_named else ""
        order = f"{self._time}, {turn}{_PLACE}, {self._names}"  # so only equal rows are in any order
        connection.execute(
            f"CREATE TEMP TABLE due AS SELECT {self._names} FROM ({' UNION ALL BY NAME '.join(parts)}) "
            f"ORDER BY {', '.join(self._keys)}, {order}"
        )

    def _load(self, connection: duckdb.DuckDBPyConnection, limit: int) -> None:
        """Make the table `states`, of what is kept of the keys for which something comes, a timer too."""
        named = zip(self._keys, map(quoted, self._process.keys), strict=True)
        keys = ", ".join(f"{value} AS {name}" for value, name in named)
        connection.execute(f"CREATE TEMP TABLE keys AS SELECT DISTINCT {keys} FROM due")
        found = database.table(connection, "FROM keys")
        wanted = found.cast(pa.schema(map(self._kept.field, self._process.keys)))
        files = list(self._state.near(reaches(wanted, self._process.keys), {DUE: _until(limit)}))
        of_keys = (
            f"FROM there s WHERE epoch_us({DUE}) < {limit} "
            f"OR EXISTS (SELECT 1 FROM keys k WHERE {self._same('s', 'k')})"
        )
        load(connection, "states", self._kept, files, of_keys)

    def _call(self, connection: duckdb.DuckDBPyConnection, limit: int) -> pa.Table:
        """Call the process for all whose time has come; the rows that it gives, and what it then keeps in the
        table `kept`."""
        columns = ", ".join([*map(quoted, self._process.keys), STATE, TIMER, TOUCHED])
        held = database.table(connection, f"SELECT {columns} FROM states")
        due = connection.execute("FROM due").to_arrow_reader(_AT_ONCE)
        made, kept = self._calls(arrow.rows(held), due, times.of_microseconds(limit))
        connection.register("kept", kept)
        return made

    def _changes(self, connection: duckdb.DuckDBPyConnection) -> pa.Table:
        """What changes in the state: its columns, and whether a row goes."""
        found = database.table(
            connection,
            f"WITH n AS (SELECT *, {STATE} IS NULL AND {TIMER} IS NULL AS {GONE} FROM kept) "
            f"FROM n WHERE NOT {GONE} OR EXISTS (SELECT 1 FROM states s WHERE {self._same('s', 'n')})",
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
