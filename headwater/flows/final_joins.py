"""Streams joined by an outer join → rows that are appended, and final: pairs, and rows without a partner.

A pair is appended when the later of its rows comes, as by any join of streams (`headwater.flows.joined`). A
row without a partner is, when all partitions of both streams have come so far that none of its partners can
come any more in time. There is no state: rows lie in their tables, those that wait are found there by their
times. Rows that come too late go to `<table>_late`, and are nobody's partners. So the table is what the query
gives of the rows that were in time, however batches were cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from headwater.common import database, scratch
from headwater.common.scratch import quoted
from headwater.connectors.decode import SOURCE
from headwater.flows.context import Context
from headwater.flows.joined import JoinedFlow, Stream, are_partners, partners_of, reaches_of
from headwater.flows.judged import FewJudged
from headwater.flows.late import Telling, tell
from headwater.flows.rows import NONE_BROKEN, Rows, read
from headwater.flows.timed import TimedFlow
from headwater.planner.event_time import NEVER, EventTime
from headwater.planner.partners import Partners
from headwater.project.definitions import Table
from headwater.project.process import STREAM
from headwater.storage import pruning, stored
from headwater.storage.commit import Built
from headwater.storage.intent import Intent
from headwater.storage.names import late_name
from headwater.storage.places import KEYS
from headwater.storage.pruning import Reach
from headwater.storage.scan import scan

# Rows that a batch takes, and rows of before whose wait it ends: they and their partners pass through this
# process. Those in so many bytes of files are not counted.
_MOST = 100_000
_LITTLE = 1 << 20
_Tables = Mapping[str, pa.Table]


class FinalJoinsFlow(TimedFlow, JoinedFlow):
    """The flow of one table of pairs, and of rows whose partners can't come any more."""

    waits = True

    def __init__(self, context: Context, table: Table) -> None:
        super().__init__(context, table)
        assert self._lateness is not None
        self._alone, self._delay = self._analysed.alone, self._lateness.delay
        self._max_rows = min(self._max_rows, _MOST)
        self._late = self._none_late()
        self._is_behind = True  # whether there may be waits to end that are over by what has been read
        self.committer = self._commits({})

    def _none_late(self) -> pa.Table:
        assert self._analysed.late is not None
        return self._analysed.late.empty_table()

    def _waiting(self) -> bool:
        time = self._event_time()
        return any(
            most + self._alone[name] + self._delay >= time.closed
            for name in self._alone
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
        if len(due) <= _MOST:
            return closed
        self._is_behind = True
        return min(closed, int(due[_MOST].as_py()) + self._delay + 1)

    def _due(self, until: int) -> pa.ChunkedArray:
        closed = self._event_time().closed - self._delay
        found = [pa.chunked_array([], pa.int64())]
        for name, files in self._near(until).items():
            time = str(self._streams[name].event_time)
            column = stored.schema(self._cursors[name].columns).field(time)
            times = pc.drop_null(stored.rows([*files], pa.schema([column]))[time])
            found.append(pc.add(times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), self._alone[name]))
        due = pa.chunked_array([chunk for each in found for chunk in each.chunks], pa.int64())
        return due.filter(pc.and_(pc.greater_equal(due, closed), pc.less_equal(due, until)))

    def _near(self, until: int) -> dict[str, dict[str, int]]:
        """{stream → {file of before → bytes}}, of those that may hold rows whose wait is over at a time, and
        was not before; microseconds, without the delay."""
        closed = self._event_time().closed - self._delay
        if until <= closed:
            return {}
        found = {}
        for name, stream in self._there(dict.fromkeys(self._cursors, ())).items():
            if (wait := self._alone.get(name)) is not None:
                reach = Reach(((closed - wait, until - wait),))
                found[name] = stream.near({str(self._streams[name].event_time): reach})
        return found

    def _end(self) -> int:
        """All is over when the last row waits no longer."""
        last = max(self._event_time().reached.values(), default=NEVER)
        return last + max(self._alone.values()) + self._delay + 1

    def _build(self, intent: Intent) -> Built:
        built = super()._build(intent)
        if not len(self._late):
            return built
        name = late_name(self.name)
        part = self.committer.target(name).write(self._late, intent.batch)
        account = replace(built.account, late=len(self._late))
        return replace(built, parts={name: part, **built.parts}, account=account)

    def _read(self, intent: Intent, broken: pa.Table = NONE_BROKEN) -> Rows:
        self._met, before, now = {}, self._event_time(), EventTime.parse(intent.event_time)
        streams = self._there(self._files(intent))
        with scratch.connection() as connection:
            new = self._on_time(connection, streams, before, may_be=self._may_be_late(intent))
            sets = [self._pairs(connection, name, streams, new) for name in streams if len(new[name])]
            for name, wait in self._alone.items():
                over = (before.closed - self._delay - wait, now.closed - self._delay - wait)
                sets.append(self._without(connection, name, streams, new, over))
        known = [rows for rows in sets if any(map(len, rows.values()))] or [self._nothing_met()]
        given = [{name: self._given(name, rows) for name, rows in each.items()} for each in known]
        return FewJudged(self._work(intent), self._applied.few(given, intent.references), intent.rows)

    def _on_time(
        self,
        connection: duckdb.DuckDBPyConnection,
        streams: Mapping[str, Stream],
        before: EventTime,
        *,
        may_be: bool,
    ) -> _Tables:
        """The new rows of each stream that are in time; the others are kept for the late table."""
        found, late = {}, [self._none_late()]
        for name, stream in streams.items():
            rows, of = read(stream.new, stream.columns), self._streams[name]
            connection.register("rows", rows)
            time = quoted(str(of.event_time))
            telling = Telling(time, f"'{of.mark}'", self._delay, rows.schema.names)
            lost = tell(connection, "rows", "fresh", telling, before, may_be=may_be)
            late.append(lost.append_column(STREAM, pa.array([name] * len(lost), pa.string())))
            found[name] = database.table(connection, "FROM fresh").cast(rows.schema)
            connection.execute("DROP TABLE fresh")
        schema = self._none_late().schema
        self._late = pa.concat_tables(late, promote_options="permissive").select(schema.names).cast(schema)
        return found

    def _pairs(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        streams: Mapping[str, Stream],
        new: _Tables,
    ) -> _Tables:
        """The new rows of a stream that have partners among those of before, or among new ones of a stream
        that stands before it; and these."""
        (partners,) = self._joins[name]
        found = [self._partners(connection, partners, streams[partners.of], new[name])]
        if self._is_before(partners.of, name):
            found.append(_chosen(connection, "mine SEMI JOIN others", partners, new[partners.of], new[name]))
        met = pa.concat_tables(found)
        known = _chosen(connection, "others SEMI JOIN mine", partners, met, new[name])
        return {each: known if each == name else met for each in streams}

    def _without(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        streams: Mapping[str, Stream],
        new: _Tables,
        over: tuple[int, int],
    ) -> _Tables:
        """The rows of a stream whose wait is over with the batch, and that have no partner.

        Args:
            connection: one to compute in.
            name: the stream.
            streams: all.
            new: their rows that the batch takes.
            over: from when on, and before when, these rows happened, in microseconds.
        """
        none = {each: rows.slice(0, 0) for each, rows in new.items()}
        rows = self._over(connection, name, streams[name], new[name], over)
        if not len(rows):
            return none
        (partners,) = self._joins[name]
        old = self._partners(connection, partners, streams[partners.of], rows)
        met = pa.concat_tables([old, new[partners.of]])
        return {**none, name: _chosen(connection, "others ANTI JOIN mine", partners, met, rows)}

    def _over(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        stream: Stream,
        new: pa.Table,
        over: tuple[int, int],
    ) -> pa.Table:
        """The rows of a stream, those that the batch takes among them, that happened in a time."""
        if over[0] >= over[1]:
            return new.slice(0, 0)
        column = str(self._streams[name].event_time)
        near = stream.near({column: Reach((over,))})
        self._met |= near
        rows = scan(connection, new.schema, near)
        connection.register("fresh", new)
        time = f"epoch_us({quoted(column)})"
        found = database.table(
            connection,
            f"FROM ({rows.sql} UNION ALL FROM fresh) WHERE {time} >= {over[0]} AND {time} < {over[1]}",
            rows.parameters,
        )
        return self._in_time(connection, name, found.cast(new.schema))

    def _partners(
        self, connection: duckdb.DuckDBPyConnection, partners: Partners, of: Stream, among: pa.Table
    ) -> pa.Table:
        """The rows of before of a stream that are partners of some rows of the other."""
        near = of.near(reaches_of(partners, among))
        self._met |= near
        found = partners_of(connection, partners, stored.schema(of.columns), [*near], among)
        return self._in_time(connection, partners.of, found)

    def _in_time(self, connection: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> pa.Table:
        """Rows of a stream without those that came too late."""
        column = str(self._streams[name].event_time)
        late = self.committer.target(late_name(self.name)).near(pruning.reaches(rows, [column]))
        if not len(rows) or not late:
            return rows
        connection.register("rows", rows)
        columns = [*(f'{SOURCE}."{part}"' for part in KEYS), quoted(column)]
        is_same = " AND ".join(f"late.{each} IS NOT DISTINCT FROM rows.{each}" for each in columns)
        known = scan(connection, self._none_late().schema, late)
        return database.table(
            connection,
            f"FROM rows ANTI JOIN (FROM {known.sql} WHERE {STREAM} = '{name}') late ON {is_same}",
            known.parameters,
        ).cast(rows.schema)


def _chosen(
    connection: duckdb.DuckDBPyConnection, how: str, partners: Partners, mine: pa.Table, others: pa.Table
) -> pa.Table:
    """Those of some rows that have partners among others, or have none.

    Args:
        connection: one to compute in.
        how: SQL, which of `mine` and `others` are wanted.
        partners: which rows are.
        mine: rows of the stream that has partners.
        others: rows of the other.
    """
    connection.register("mine", mine)
    connection.register("others", others)
    found = database.table(connection, f"FROM {how} ON {are_partners(partners)}")
    return found.cast(mine.schema if how.startswith("mine") else others.schema)
