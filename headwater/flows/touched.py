"""The rows of a view that changes of its inputs touch, and the rows of the inputs that they are made of.

`headwater.planner.reach` says how both are found; here DuckDB finds them, in the files of the inputs as they
are now and of what has changed in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import duckdb
import pyarrow as pa

from headwater.common import database
from headwater.common.diff import same
from headwater.common.scratch import quoted
from headwater.planner.reach import TOUCHED, Need, Reach, Touch, Within
from headwater.storage import feed, pruning, stored
from headwater.storage.feed import SIGN
from headwater.storage.scan import FILE, ROW, scan

_START, _END = "__start", "__end"  # between what a column lies of rows that are touched
_WHOLE = "mine.*"  # all columns of a row of an input
MOST = 100_000  # values that a batch's changes touch, or rows of one reading; beyond, all is computed anew


@dataclass(frozen=True)
class Found:
    """Rows in DuckDB.

    Attributes:
        sql: a query that gives them.
        parameters: what it is executed with.
        files: {absolute path → bytes} of the files that were looked in for it.
        rows: the same rows, where they are in memory, and those alone that were wanted; else None.
    """

    sql: str
    parameters: Mapping[str, list[str]] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)
    rows: pa.Table | None = None


class Source(Protocol):
    """An input at the version that is read, and what has changed in it since the last one."""

    @property
    def columns(self) -> pa.Schema:
        """Its columns."""

    @property
    def place(self) -> Sequence[str]:
        """The columns that say which of its rows one is, in what `rows` gives: these, or further ones."""

    @property
    def has_changed(self) -> bool:
        """Whether any row has."""

    def changed(self, connection: duckdb.DuckDBPyConnection, columns: Sequence[str]) -> Found:
        """Columns of the rows that have changed, as they were and as they are."""

    def signed(self) -> pa.Table:
        """The rows that have come and those that have gone, with a `SIGN`."""

    def rows(
        self, connection: duckdb.DuckDBPyConnection, wanted: pa.Table, within: Mapping[str, pruning.Reach]
    ) -> Found:
        """Rows, with their place: all that have values like those of one of the wanted, and lie there."""


@dataclass(frozen=True)
class OfTable:
    """A table as a `Source`.

    Attributes:
        columns: its columns.
        adds: its files as delta-rs tells them; None: it has none.
        path: where the table is.
        files: those that have the rows which changed, as they were and as they are.
    """

    columns: pa.Schema
    adds: pa.Table | None
    path: Path
    files: Sequence[str]
    place = (FILE, ROW)

    @property
    def has_changed(self) -> bool:
        return bool(self.files)

    def changed(self, connection: duckdb.DuckDBPyConnection, columns: Sequence[str]) -> Found:
        found = scan(connection, pa.schema([self.columns.field(name) for name in columns]), self.files)
        return Found(f"FROM {found.sql}", found.parameters)

    def signed(self) -> pa.Table:
        return pa.concat_tables([feed.signed(file, self.columns) for file in self.files])

    def rows(
        self, connection: duckdb.DuckDBPyConnection, wanted: pa.Table, within: Mapping[str, pruning.Reach]
    ) -> Found:
        near = pruning.near(self.path, self.adds, {**within, **pruning.reaches(wanted, wanted.column_names)})
        values = dict(zip(wanted.column_names, wanted.columns, strict=True))
        found = scan(connection, self.columns, near, [values], place=True)
        names = ", ".join(map(quoted, (*self.columns.names, *self.place)))
        return Found(f"SELECT {names} FROM {found.sql}", found.parameters, near, found.rows)


class Touched:
    """What the changes of one batch touch.

    Args:
        connection: one of its own; see `headwater.common.scratch`.
        reach: how it is found.
        sources: {table → as it is}.

    Attributes:
        sources: the same.
        keys: how many values are touched.
        files: {path of a file of the inputs that was read → its bytes}.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, reach: Reach, sources: Mapping[str, Source]
    ) -> None:
        self._connection, self._reach, self.sources = connection, reach, sources
        self._reads = [read for read, name in reach.sources.items() if sources[name].has_changed]
        self._held: dict[str, pa.Table] = {}  # {table of the connection → its rows}, of those in memory
        self.keys = 0
        self.files: dict[str, int] = {}

    def find(self) -> bool:
        """Find all of it; False: it is too much, and all rows of the view are to be computed anew."""
        for read in self._reads:
            self.keys += self._values(read, self._reach.touches[read])
            if self.keys > MOST:
                return False
        self._put_together()
        return all(
            self._needed(read, of, need) <= MOST
            for read in self._reads
            for of, need in self._reach.touches[read].needs.items()
        )

    def rows(self, name: str) -> pa.Table:
        """The rows of an input that the touched rows are made of."""
        columns = self.sources[name].columns
        parts = [
            _rows(read, of)
            for read in self._reads
            for of in self._reach.touches[read].needs
            if self._reach.sources[of] == name
        ]
        if not parts:
            return columns.empty_table()
        if len(parts) == 1 and parts[0] in self._held:
            return self._held[parts[0]].select(columns.names).cast(columns)
        listed = ", ".join(map(quoted, columns.names))
        place = ", ".join(map(quoted, self.sources[name].place))
        every = " UNION ALL ".join(f"FROM {each}" for each in parts)
        once = f"SELECT DISTINCT ON ({place}) * FROM ({every})" if len(parts) > 1 else every
        return database.table(self._connection, f"SELECT {listed} FROM ({once})").cast(columns)

    def wanted(self) -> list[pa.Table]:
        """The values that touched rows have, by each input that has changed."""
        return [
            self._connection.table(_touched(read)).to_arrow_table().select(self._columns(read))
            for read in self._reads
        ]

    def within(self, relation: str) -> str:
        """SQL of the rows of a relation with the view's columns that are touched."""
        if len(self._reads) == 1:
            (read,) = self._reads
            on = same(relation, "touched", map(quoted, self._columns(read)))
            return f"SELECT {relation}.* FROM {relation} SEMI JOIN {_touched(read)} touched ON {on}"
        each = " OR ".join(
            f"EXISTS (FROM {_touched(read)} touched WHERE "
            f"{same(relation, 'touched', map(quoted, self._columns(read)))})"
            for read in self._reads
        )
        return f"SELECT {relation}.* FROM {relation} WHERE {each or 'false'}"

    def _columns(self, read: int) -> list[str]:
        return list(self._reach.touches[read].columns)

    def _values(self, read: int, touch: Touch) -> int:
        """Keep the values that changes of an input touch, under the names of the view's columns; how many."""
        source = self.sources[self._reach.sources[read]]
        ((name, way), *_) = touch.columns.items()
        within = way.hops[0].within if way.hops else None
        listed = [f"{quoted(each.column)} AS {quoted(column)}" for column, each in touch.columns.items()]
        if within is None:
            columns = sorted({each.column for each in touch.columns.values()})
            changed = source.changed(self._connection, columns)
        else:
            listed += [_START, _END]
            changed = Found(self._spans(source, way.column, within))
        count = self._keep(
            _touched(read), f"SELECT DISTINCT {', '.join(listed)} FROM ({changed.sql})", changed.parameters
        )
        for hop in way.hops:
            if count > MOST:
                return count
            need = Need(TOUCHED, ((hop.match, name),), hop.within)
            taken = f"DISTINCT mine.{quoted(hop.take)} AS {quoted(name)}"
            count = self._rows(_touched(read), hop.read, need, _touched(read), taken)
        return count

    def _spans(self, source: Source, column: str, within: Within) -> str:
        """SQL of a column of the rows that have changed, and from where to where what is joined lies whose
        partners have: `_START` and `_END`.

        Of rows that differ in their end alone, and of which as many went as came, none has gained or lost a
        partner before the first of their ends; nor is anything else of them asked for that differs.
        """
        start, end = (quoted(name or "") for name in (within.start, within.end))
        if within.start is None:
            start = f"nullif({end}, {end})"  # NULL, of its type
        if within.end is None:
            end = f"nullif({start}, {start})"
        spans = f"SELECT {quoted(column)}, {start} AS {_START}, {end} AS {_END} FROM signed"
        self._connection.register("signed", source.signed())
        are_told_apart = all(map(stored.is_told_apart, source.columns.types))
        if within.end is None or not within.sole or not are_told_apart:
            return spans
        alike = ", ".join(quoted(name) for name in source.columns.names if name != within.end) or "true"
        total = f"sum({SIGN})"
        net = f"SELECT * EXCLUDE ({SIGN}), {total} AS {SIGN} FROM signed GROUP BY ALL HAVING {total} <> 0"
        left, first = (f"{each} OVER (PARTITION BY {alike})" for each in (total, f"min({end})"))
        since = f"CASE WHEN {left} = 0 THEN {first} ELSE {start} END"
        return f"SELECT {quoted(column)}, {since} AS {_START}, {end} AS {_END} FROM ({net})"

    def _put_together(self) -> None:
        """Take the values that several readings touch in the same columns for those of one: what is needed
        for them is the same, too."""
        alike: dict[frozenset[str], int] = {}
        for read in self._reads:
            first = alike.setdefault(frozenset(self._columns(read)), read)
            if first != read:
                mine = f"SELECT {', '.join(map(quoted, self._columns(first)))} FROM {_touched(read)}"
                self._keep(_touched(first), f"FROM {_touched(first)} UNION {mine}")
        self._reads = [*alike.values()]

    def _needed(self, read: int, of: int, need: Need) -> int:
        """Keep the rows of an input that the rows which another's changes touch are made of; how many."""
        among = _touched(read) if need.among is TOUCHED else _rows(read, need.among)
        return self._rows(_rows(read, of), of, need, among)

    def _rows(self, table: str, of: int, need: Need, among: str, columns: str = _WHOLE) -> int:
        """Keep the rows of an input that have values of another relation, or `columns` of them (SQL), of too
        many some; how many."""
        source = self.sources[self._reach.sources[of]]
        listed = ", ".join(f"{quoted(theirs)} AS {quoted(ours)}" for ours, theirs in need.columns)
        spans = [_START, _END] if need.within else []
        values = database.table(
            self._connection, f"SELECT DISTINCT {', '.join([listed, *spans])} FROM {among}"
        )
        self._connection.register("wanted", values)
        wanted, within = values.drop_columns(spans), {}
        on = same("mine", "wanted", map(quoted, wanted.column_names))
        if need.within is not None:
            mine = f"mine.{quoted(need.within.column)}"
            for bound, comparison in ((_START, ">="), (_END, "<=")):
                on += f" AND coalesce({mine} {comparison} wanted.{bound}, wanted.{bound} IS NULL)"
            lies = pruning.between(values[_START], values[_END])
            within = {need.within.column: lies} if lies is not None else {}
        found = source.rows(self._connection, wanted, within)
        self.files |= found.files
        if found.rows is not None and need.within is None and columns == _WHOLE:
            self._held[table] = found.rows
            self._connection.execute(f"CREATE TEMP VIEW {table} AS {found.sql}")
            return len(found.rows)
        select = f"SELECT {columns} FROM ({found.sql}) mine SEMI JOIN wanted ON {on}"
        return self._keep(table, f"{select} LIMIT {MOST + 1}", found.parameters)

    def _keep(self, table: str, select: str, parameters: Mapping[str, list[str]] | None = None) -> int:
        """Make a temporary table of what a query gives; its rows."""
        made = f"CREATE OR REPLACE TEMP TABLE {table} AS {select}"
        ((count,),) = self._connection.execute(made, dict(parameters or {})).fetchall()
        return int(count)


def _touched(read: int) -> str:
    """The table of the values that changes of a reading touch."""
    return f"touched_{read}"


def _rows(read: int, of: int) -> str:
    """The table of the rows of one reading that what changes of another touch is made of."""
    return f"rows_{read}_{of}"
