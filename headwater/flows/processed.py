"""Silver → gold by a process: a function that sees each key's rows in the order of their event time.

A row waits in `<table>__state` until every partition of Kafka has reached its time and the delay: no row that
is on time can then come before it. So what the process sees depends on the rows alone, not on how batches
were cut or partitions read. Beside the rows that wait stand each key's state and timer. Rows that come too
late go to `<table>_late`, those without an event time too.

The process is called in this process, one row at a time; all else is done with Arrow and DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from headwater.common import scratch, times
from headwater.common.diff import same
from headwater.common.scratch import quoted
from headwater.connectors.decode import SOURCE
from headwater.errors import FlowError
from headwater.errors.causes import describe
from headwater.flows.context import Context
from headwater.flows.rows import read
from headwater.flows.timed import TimedFlow
from headwater.flows.work import Counts
from headwater.planner.event_time import LATENESS, NEVER, WATERMARK, EventTime
from headwater.project.definitions import Table
from headwater.project.process import (
    DUE,
    STATE,
    TIMER,
    TOUCHED,
    WAITING,
    Keyed,
    Row,
    advance,
    expires,
    unknown_columns,
)
from headwater.project.watermarks import microseconds
from headwater.storage.commit import Built, Part
from headwater.storage.identity import Identity
from headwater.storage.intent import Intent
from headwater.storage.names import late_name, state_name
from headwater.storage.places import KEYS
from headwater.storage.pruning import Reach, reaches, upto
from headwater.storage.target import GONE, Target

_AT_ONCE = 50_000  # rows that are Python's at a time
_PLACE = ", ".join(f'{SOURCE}."{part}"' for part in KEYS)


class ProcessFlow(TimedFlow):
    """The flow of one table that a process feeds."""

    waits = True
    keeps = "Each key's state, and rows that wait,"

    def __init__(self, context: Context, table: Table) -> None:
        super().__init__(context, table)
        assert table.process is not None and self._analysed.state is not None and self._lateness is not None
        self._process = table.process
        ttl = self._process.ttl
        self._ttl = timedelta(microseconds=microseconds(ttl, table)) if ttl else None
        self._delay = self._lateness.delay
        self._time = quoted(self._lateness.column)
        self._keys = ", ".join(map(quoted, self._process.keys))
        self._kept = self._analysed.state
        self._columns = self._applied.columns.fieldNames()
        self._where = table.where
        self.committer = self._commits({state_name(self.name): self._change})
        self._state = self.committer.target(state_name(self.name))

    def _waiting(self) -> bool:
        return bool(self._state.files())

    def _due(self, until: int) -> pa.ChunkedArray:
        files = self._state.near({DUE: _until(until)})
        if not files:
            return pa.chunked_array([], pa.int64())
        with scratch.connection() as connection:
            found = connection.execute(
                f"SELECT epoch_us({DUE}) AS due FROM read_parquet($files, hive_partitioning = false) "
                f"WHERE {DUE} IS NOT NULL",
                {"files": files},
            ).to_arrow_table()
        return pc.cast(found["due"], pa.int64())

    def _end(self) -> int:
        """All rows are over; timers that lie behind the last of them are not."""
        return max(self._event_time().reached.values(), default=NEVER) + self._delay + 1

    def _build(self, intent: Intent) -> Built:
        before, now = self._event_time(), EventTime.parse(intent.event_time)
        limit = now.closed - self._delay
        with scratch.connection() as connection:
            connection.register("batch", read(intent.files, self._applied.columns))
            parts, late = self._tell(connection, before, intent)
            self._gather(connection, limit)
            made = self._call(connection, times.EPOCH + timedelta(microseconds=max(limit, 0)))
            changes = self._changes(connection)
        written = self._table.write(made, intent.batch)
        return Built(
            {**parts, state_name(self.name): changes, self.name: written},
            account=self._account(intent, Counts(taken=intent.rows), len(made), late=late),
        )

    def _tell(
        self, connection: duckdb.DuckDBPyConnection, before: EventTime, intent: Intent
    ) -> tuple[dict[str, Part], int]:
        """Make the table `fresh` of the rows that are on time; the late table's part, if it gets any; and how
        many rows are late."""
        late = f"{self._time} IS NULL"
        reached = str(before.closed)
        if self._may_be_late(intent):
            known = [{"name": name, "most": most} for name, most in before.reached.items()]
            kinds = pa.schema([("name", pa.string()), ("most", pa.int64())])
            connection.register("known", pa.Table.from_pylist(known, kinds))
            partition = " || '/' || ".join(f'{SOURCE}."{part}"' for part in ("cluster", "topic", "partition"))
            reached = (
                f"greatest({before.closed}, (SELECT most FROM known WHERE name = {partition}), "
                f'max(epoch_us({self._time})) OVER (PARTITION BY {partition} ORDER BY {SOURCE}."offset" '
                "GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))"  # not the others of the same record
            )
            late += f" OR _reached > epoch_us({self._time}) + {self._delay}"
        connection.execute(f"CREATE TEMP TABLE told AS SELECT *, {reached} AS _reached FROM batch")
        names = ", ".join(map(quoted, self._columns))
        connection.execute(f"CREATE TEMP TABLE fresh AS SELECT {names} FROM told WHERE NOT ({late})")
        watermark = f"CASE WHEN {self._time} IS NOT NULL THEN _reached - {self._delay} END"
        found = connection.execute(
            f"SELECT {names}, make_timestamptz({WATERMARK}) AS {WATERMARK}, "
            f"({WATERMARK} - epoch_us({self._time})) / 1e6 AS {LATENESS} "
            f"FROM (SELECT *, {watermark} AS {WATERMARK} FROM told WHERE {late})"
        ).to_arrow_table()
        if not len(found):
            return {}, 0
        assert self._analysed.late is not None
        name = late_name(self.name)
        written = self.committer.target(name).write(found.cast(self._analysed.late), intent.batch)
        return {name: written}, len(found)

    def _gather(self, connection: duckdb.DuckDBPyConnection, limit: int) -> None:
        """Make the tables `states`, of what is kept of the keys that something comes for; `due`, of the rows
        whose time has come, in order; and `later`, of the others, a list for each key."""
        keys = connection.execute(f"SELECT DISTINCT {self._keys} FROM fresh").to_arrow_table()
        keyed = reaches(keys.cast(pa.schema(map(self._kept.field, keys.schema.names))), keys.schema.names)
        files = self._state.near(keyed, {DUE: _until(limit)})
        kept = "read_parquet($files, hive_partitioning = false)" if files else "nothing"
        connection.register("nothing", self._kept.empty_table())
        connection.execute(
            f"CREATE TEMP TABLE states AS SELECT * FROM {kept} s WHERE epoch_us({DUE}) < {limit} "
            f"OR EXISTS (SELECT 1 FROM fresh f WHERE {same('s', 'f', map(quoted, self._process.keys))})",
            {"files": files} if files else {},
        )
        names = ", ".join(map(quoted, self._columns))
        order = f"{self._time}, {_PLACE}, {names}"  # no two rows are left in any order, unless they are equal
        waiting = (
            f"(SELECT {names} FROM fresh UNION ALL "
            f"SELECT {names} FROM (SELECT unnest({WAITING}, max_depth := 2) FROM states))"
        )
        connection.execute(
            f"CREATE TEMP TABLE due AS SELECT {names} FROM {waiting} WHERE epoch_us({self._time}) < {limit} "
            f"ORDER BY {self._keys}, {order}"
        )
        row = ", ".join(f"{quoted(name)} := {quoted(name)}" for name in self._columns)
        connection.execute(
            f"CREATE TEMP TABLE later AS SELECT {self._keys}, min({self._time}) AS {DUE}, "
            f"list(struct_pack({row}) ORDER BY {order}) AS {WAITING} "
            f"FROM {waiting} WHERE epoch_us({self._time}) >= {limit} GROUP BY {self._keys}"
        )

    def _call(self, connection: duckdb.DuckDBPyConnection, upto: datetime) -> pa.Table:
        """Call the process for all whose time has come; the rows that it gives, and what it then keeps in the
        table `kept`."""
        keys, columns = self._process.keys, self._analysed.stored
        held = connection.execute(
            f"SELECT {self._keys}, {STATE}, {TIMER}, {TOUCHED} FROM states"
        ).to_arrow_table()
        known: dict[tuple[Any, ...], Keyed] = {}
        for row in held.to_pylist():
            key = {name: row[name] for name in keys}
            known[tuple(key.values())] = Keyed(key, row[TOUCHED] or times.EPOCH, row[STATE], row[TIMER])
        made: list[pa.Table] = [columns.empty_table()]
        given: list[Row] = []

        def take(keyed: Keyed, rows: Iterable[Row]) -> None:
            given.extend(self._called(keyed, rows, upto))
            if len(given) >= _AT_ONCE:
                made.append(self._arrow(given, columns, "gives"))
                given.clear()

        rested = dict(known)
        for values, rows in groupby(self._rows(connection), lambda row: tuple(row[key] for key in keys)):
            rested.pop(values, None)
            if values not in known:
                known[values] = Keyed(dict(zip(keys, values, strict=True)))
            take(known[values], rows)
        for keyed in rested.values():
            take(keyed, ())
        made.append(self._arrow(given, columns, "gives"))
        kept = pa.schema([field for field in self._kept if field.name != WAITING])
        connection.register("kept", self._arrow(map(self._left, known.values()), kept, "keeps"))
        return pa.concat_tables(made)

    def _rows(self, connection: duckdb.DuckDBPyConnection) -> Iterator[Row]:
        """Those that are due, in order."""
        for batch in connection.execute("SELECT * FROM due").to_arrow_reader(_AT_ONCE):
            yield from batch.to_pylist()

    def _called(self, keyed: Keyed, rows: Iterable[Row], upto: datetime) -> Iterator[Row]:
        """What the process gives for one key.

        Raises:
            FlowError: it fails.
        """
        column, at = self._definition.event_time or "", None

        def timed() -> Iterator[tuple[datetime, Row]]:
            nonlocal at
            for row in rows:
                at = row[SOURCE]
                yield row[column], row
            at = None

        try:
            yield from advance(self._process, keyed, timed(), upto, self._ttl)
        except Exception as e:
            what = f"row {at}" if at else f"timer of {dict(keyed.key)} at {keyed.now.isoformat()}"
            raise FlowError(
                f"{self._where} failed on the {what}: {describe(e)}",
                code="PROCESS_FAILED",
                where=self._where,
                hint="mend it and run again",
            ) from e

    def _left(self, keyed: Keyed) -> Row:
        """What is kept of a key."""
        due = min(filter(None, (keyed.timer, expires(keyed, self._ttl))), default=None)
        touched = keyed.now if keyed.state is not None or keyed.timer is not None else None
        return {**keyed.key, STATE: keyed.state, TIMER: keyed.timer, TOUCHED: touched, DUE: due}

    def _arrow(self, rows: Iterable[Row], columns: pa.Schema, what: str) -> pa.Table:
        """Rows of the process as columns.

        Raises:
            FlowError: they do not fit.
        """
        found = list(rows)
        unknown_columns(found, columns.names, self._where)
        try:
            return pa.Table.from_pylist(found, columns)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as e:
            raise FlowError(
                f"{self._where} {what} a row that does not fit its columns: {describe(e)}",
                code="PROCESS_ROW_INVALID",
                where=self._where,
            ) from e

    def _changes(self, connection: duckdb.DuckDBPyConnection) -> pa.Table:
        """What changes in the state: its columns, and whether a row goes."""
        once = ", ".join(f"any_value({name}) AS {name}" for name in (STATE, TIMER, TOUCHED, WAITING))
        found = connection.execute(
            f"WITH n AS (SELECT {self._keys}, {once}, min({DUE}) AS {DUE} FROM "
            f"(SELECT * FROM kept UNION ALL BY NAME SELECT * FROM later) GROUP BY {self._keys}), "
            f"gone AS (SELECT *, {STATE} IS NULL AND {TIMER} IS NULL AND {WAITING} IS NULL AS {GONE} FROM n) "
            f"SELECT * FROM gone n WHERE NOT {GONE} "
            f"OR EXISTS (SELECT 1 FROM states s WHERE {same('s', 'n', map(quoted, self._process.keys))})"
        ).to_arrow_table()
        wanted = self._kept.append(pa.field(GONE, pa.bool_()))
        return found.select(wanted.names).cast(wanted)

    def _change(self, table: Target, rows: pa.Table, identity: Identity) -> int:
        return table.change(rows, self._process.keys, identity)


def _until(time: int) -> Reach:
    """Times up to one in microseconds since the epoch."""
    return upto(pa.scalar(time, pa.timestamp("us", "UTC")))
