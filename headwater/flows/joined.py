"""Streams that are joined → rows that are appended: each new row with all that it is joined with.

A batch is a range of each stream. The new rows of the first are joined with what was there of the others,
those of the second with that of those behind it and all of those before it, and so on: so each combination
is met in one batch, and never again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from headwater.common import database, scratch
from headwater.common.scratch import quoted
from headwater.flows.context import Context
from headwater.flows.derived import DerivedFlow
from headwater.flows.earlier import EarlierFlow, Stream
from headwater.flows.few import Given
from headwater.flows.judged import FewJudged, ManyJudged
from headwater.flows.rows import NONE_BROKEN, Rows, are_few, read
from headwater.planner.partners import Partners, Within
from headwater.project.definitions import Table
from headwater.runtime import in_memory
from headwater.storage import pruning, stored
from headwater.storage.intent import Intent
from headwater.storage.key_index import KeyIndex
from headwater.storage.pruning import Reach
from headwater.storage.scan import scan
from headwater.storage.target import Target

_Keys = tuple[str, tuple[str, ...]]  # a stream, and columns of it

_MOST = 100_000  # rows of a stream that this process reads as partners of few
_LOOKED_THROUGH = 1 << 24  # bytes of files that are sooner read than asked about
_INDEXED = 50_000_000  # rows of a stream of which an index is held: 400 MB


class JoinedFlow(EarlierFlow, DerivedFlow):
    """The flow of one table whose rows are those of several streams, joined."""

    def __init__(self, context: Context, table: Table, into: Target | None = None) -> None:
        super().__init__(context, table, into)
        assert self._analysed.joins is not None
        self._carried = False
        self._joins = self._analysed.joins
        self._indexes: dict[_Keys, KeyIndex] = {}

    def _read(self, intent: Intent, broken: pa.Table = NONE_BROKEN) -> Rows:
        work, self._met = self._work(intent), {}
        streams = self._there(self._files(intent))
        some = [name for name, stream in streams.items() if stream.new]
        few = [self._few(name, streams) for name in some] if are_few(intent.files, intent.rows) else [None]
        met = [rows for rows in few if rows is not None]
        if len(met) == len(few):
            known = [rows for rows in met if all(map(len, rows.values()))] or [self._nothing_met()]
            sets = [{name: self._given(name, some) for name, some in rows.items()} for rows in known]
            return FewJudged(work, self._applied.few(sets, intent.references), intent.rows)
        self._met = {}
        many = (self._many(work.spark, name, streams) for name in some)
        results = [self._applied.rows(frames, intent.references) for frames in many]
        return ManyJudged(work, reduce(DataFrame.union, results), intent.rows)

    def _given(self, name: str, rows: pa.Table) -> Given:
        """Rows of a stream."""
        return self._applied.given(rows, self._cursors[name].columns)

    def _nothing_met(self) -> dict[str, pa.Table]:
        return {name: stored.schema(each.columns).empty_table() for name, each in self._cursors.items()}

    def _few(self, name: str, streams: Mapping[str, Stream]) -> dict[str, pa.Table] | None:
        """The new rows of a stream, and those of the others that they may be joined with; None: too many."""
        rows = {name: read(streams[name].new, streams[name].columns)}
        for partners in self._joins[name]:
            of, among = streams[partners.of], rows[partners.among]
            near = self._holding(partners, of, among)
            files = [*near, *(of.new if self._is_before(partners.of, name) else ())]
            with scratch.connection(sum(near.values())) as connection:
                columns = stored.schema(of.columns)
                found = partners_of(connection, partners, columns, files, among, most=_MOST + 1)
            if len(found) > _MOST:
                return None
            rows[partners.of] = found
        return rows

    def _holding(self, partners: Partners, of: Stream, among: pa.Table) -> dict[str, int]:
        """{path → bytes} of the files from before that may hold partners of some rows."""
        near = of.near(reaches_of(partners, among))
        if partners.are_anywhere and sum(near.values()) > _LOOKED_THROUGH and of.rows <= _INDEXED:
            keys = {ours: among[theirs] for ours, theirs in partners.equal}
            columns = pa.schema([stored.schema(of.columns).field(name) for name in keys])
            index = self._indexes.setdefault((partners.of, (*keys,)), KeyIndex([*keys], columns))
            fit = (stored.fits(values, columns.field(name).type) for name, values in keys.items())
            wanted = pa.table(keys).filter(reduce(pc.and_, fit)).cast(columns).drop_null()
            owners, _ = index.owners([*of.near({})], wanted)
            near = {file: near[file] for file in owners if file in near}
        self._met |= near
        return near

    def _many(self, spark: SparkSession, name: str, streams: Mapping[str, Stream]) -> dict[str, DataFrame]:
        """The same as Spark reads them: all rows of the files that may have some."""
        stream = streams[name]
        frames = {name: _frame(spark, stream, stream.new)}
        for partners in self._joins[name]:
            of = streams[partners.of]
            wanted = {} if partners.among != name else _extents(partners.within, stream)
            near = of.near(wanted)
            self._met |= near
            new = of.new if self._is_before(partners.of, name) else ()
            frames[partners.of] = _frame(spark, of, [*near, *new])
        return frames

    def _is_before(self, one: str, other: str) -> bool:
        names = [*self._cursors]
        return names.index(one) < names.index(other)


def partners_of(
    connection: duckdb.DuckDBPyConnection,
    partners: Partners,
    columns: pa.Schema,
    files: Sequence[str],
    among: pa.Table,
    *,
    most: int | None = None,
) -> pa.Table:
    """The rows of files that may be joined with others.

    Args:
        connection: one of its own.
        partners: which rows those are.
        columns: the files'.
        files: the files.
        among: the others.
        most: some so many are enough; None: all.
    """
    if not files or not len(among):
        return columns.empty_table()
    connection.register("others", among)
    limit = "" if most is None else f" LIMIT {most}"
    rows = scan(connection, columns, files, [{ours: among[theirs] for ours, theirs in partners.equal}])
    return database.table(
        connection,
        f"SELECT {', '.join(f'mine.{quoted(name)}' for name in columns.names)} "
        f"FROM {rows.sql} mine SEMI JOIN others ON {are_partners(partners)}{limit}",
        rows.parameters,
    ).cast(columns)


def are_partners(partners: Partners) -> str:
    """SQL: whether a row `mine`, of the stream that has partners, may be joined with one of `others`.

    Each condition has one side of each: another, as of the difference of two times, DuckDB looks at for every
    row of one with every row of the other.
    """
    equal = [f"mine.{quoted(ours)} = others.{quoted(theirs)}" for ours, theirs in partners.equal]
    near = [
        f"epoch_us(mine.{quoted(each.ours)}) {sign} epoch_us(others.{quoted(each.theirs)}) + {bound}"
        for each in partners.within
        for sign, bound in ((">=", each.least), ("<=", each.most))
        if bound is not None
    ]
    return " AND ".join([*equal, *near]) or "true"


def reaches_of(partners: Partners, among: pa.Table) -> dict[str, Reach]:
    """Where the values of partners of some rows lie."""
    found = {ours: among[theirs] for ours, theirs in partners.equal}
    reaches = pruning.reaches(pa.table(found), found) if found else {}
    for each in partners.within:
        reach = pruning.apart(among[each.theirs], each.least, each.most)
        reaches.setdefault(each.ours, reach)
    return reaches


def _extents(within: Sequence[Within], stream: Stream) -> dict[str, Reach]:
    """Where the times of partners of all rows of a stream's new files lie."""
    columns = sorted({each.theirs for each in within})
    if not columns:
        return {}
    quotes = map(quoted, columns)
    ends = ", ".join(f"unnest([min({name}), max({name})]) AS {name}" for name in quotes)
    with scratch.connection(scratch.MANY) as connection:
        schema = pa.schema([stored.schema(stream.columns).field(name) for name in columns])
        rows = scan(connection, schema, stream.new)
        found = database.table(connection, f"SELECT {ends} FROM {rows.sql}", rows.parameters)
    reaches = {}
    for each in within:
        reach = pruning.apart(found[each.theirs].cast(schema.field(each.theirs).type), each.least, each.most)
        hull = ((reach.ranges[0][0], reach.ranges[-1][1]),) if reach.ranges else ()
        reaches[each.ours] = Reach(hull)
    return reaches


def _frame(spark: SparkSession, stream: Stream, files: Sequence[str]) -> DataFrame:
    """The rows of a stream's files, as Spark reads them."""
    if not files:
        return in_memory.empty(spark, stream.columns)
    return spark.read.schema(stream.columns).parquet(*files)
