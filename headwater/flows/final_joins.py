"""Streams joined by an outer join → rows that are appended, and final: pairs, and rows without a partner.

A pair is appended when the later of its rows comes, as by any join of streams (`headwater.flows.joined`). A
row without a partner is, when all partitions of both streams have come so far that none of its partners can
come any more in time (`headwater.flows.waiting`). Rows that come too late go to `<table>_late`, and are
nobody's partners. So the table is what the query gives of the rows that were in time, however batches were
cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import duckdb
import pyarrow as pa

from headwater.common import database, scratch
from headwater.flows.context import Context
from headwater.flows.earlier import Stream
from headwater.flows.joined import JoinedFlow, are_partners, partners_of
from headwater.flows.judged import FewJudged
from headwater.flows.rows import NONE_BROKEN, Rows
from headwater.flows.waiting import Span, WaitingFlow, fresh
from headwater.planner.partners import Partners
from headwater.project.definitions import Table
from headwater.storage import stored
from headwater.storage.commit import Built
from headwater.storage.intent import Intent
from headwater.storage.names import late_name

_MOST = 100_000  # rows that a batch takes, and rows of before whose wait it ends
_Tables = Mapping[str, pa.Table]


class FinalJoinsFlow(WaitingFlow, JoinedFlow):
    """The flow of one table of pairs, and of rows whose partners can't come any more."""

    def __init__(self, context: Context, table: Table) -> None:
        super().__init__(context, table)
        self._waits = self._analysed.alone
        self._most = _MOST
        self._max_rows = min(self._max_rows, _MOST)
        self._late = self._late_columns.empty_table()
        self.committer = self._commits({})

    def _build(self, intent: Intent) -> Built:
        built = super()._build(intent)
        if not len(self._late):
            return built
        name = late_name(self.name)
        part = self.committer.target(name).write(self._late, intent.batch)
        account = replace(built.account, late=len(self._late))
        return replace(built, parts={name: part, **built.parts}, account=account)

    def _read(self, intent: Intent, broken: pa.Table = NONE_BROKEN) -> Rows:
        self._met, streams = {}, self._there(self._files(intent))
        with scratch.connection() as connection:
            self._late = self._tell(connection, streams, intent)
            new = {
                name: database.table(connection, f"FROM {fresh(name)}").cast(stored.schema(stream.columns))
                for name, stream in streams.items()
            }
            sets = [self._pairs(connection, name, streams, new) for name in streams if len(new[name])]
            for name, over in self._spans(intent).items():
                sets.append(self._without(connection, name, streams, new, over))
        known = [rows for rows in sets if any(map(len, rows.values()))] or [self._nothing_met()]
        given = [{name: self._given(name, rows) for name, rows in each.items()} for each in known]
        return FewJudged(self._work(intent), self._applied.few(given, intent.references), intent.rows)

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
        over: Span,
    ) -> _Tables:
        """The rows of a stream whose wait is over with the batch, and that have no partner.

        Args:
            connection: one to compute in.
            name: the stream.
            streams: all.
            new: their rows that the batch takes.
            over: when these rows happened.
        """
        none = {each: rows.slice(0, 0) for each, rows in new.items()}
        known, mine = self._over(connection, name, streams[name], over)
        rows = pa.concat_tables([known, database.table(connection, mine).cast(known.schema)])
        if not len(rows):
            return none
        (partners,) = self._joins[name]
        old = self._partners(connection, partners, streams[partners.of], rows)
        met = pa.concat_tables([old, new[partners.of]])
        return {**none, name: _chosen(connection, "others ANTI JOIN mine", partners, met, rows)}

    def _partners(
        self, connection: duckdb.DuckDBPyConnection, partners: Partners, of: Stream, among: pa.Table
    ) -> pa.Table:
        """The rows of before of a stream that are partners of some rows of the other."""
        near = self._holding(partners, of, among)
        found = partners_of(connection, partners, stored.schema(of.columns), [*near], among)
        return self._on_time(connection, partners.of, found)


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
