"""What a view's query gives, and what of that differs from its table.

All of it is computed anew, or the rows that changes of the inputs touch, where these are known and few
(`headwater.planner.reach`): what neither was nor is touched stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headwater.common import scratch
from headwater.common.diff import differ, same
from headwater.common.scratch import quoted
from headwater.errors import CommitError, FlowError
from headwater.flows.context import Context
from headwater.flows.references import References
from headwater.flows.rows import are_few, read
from headwater.flows.touched import Source, Touched
from headwater.planner import analysis
from headwater.project.definitions import Table
from headwater.runtime import in_memory
from headwater.storage import delta, log, ranges, stored
from headwater.storage.intent import Intent
from headwater.storage.lake import Place
from headwater.storage.ranges import Position
from headwater.storage.target import GONE, Target

FEW = 100_000  # rows of each input, and of the table, that this process takes
WHOLE = 10_000  # rows of all inputs that are no more work than to find out which of them matter


@dataclass(frozen=True)
class Input:
    """A table that is read: its files with their bytes, and their rows (None: its log does not say)."""

    files: dict[str, int]
    rows: int | None
    adds: pa.Table | None = None  # the files as delta-rs tells them; None: there are none

    @classmethod
    def at(cls, place: Place, version: int) -> Input:
        """A table at a version."""
        table = delta.opened(place.path, version)
        adds = pa.table(table.get_add_actions(flatten=True))
        if not len(adds):
            return cls({}, 0)
        sizes = zip(*(adds[name].to_pylist() for name in ("path", "size_bytes")), strict=True)
        files = {str(place.path / unquote(path)): size for path, size in sizes}
        rows_of = adds["num_records"].to_pylist() if "num_records" in adds.column_names else [None]
        rows = None if None in rows_of else sum(rows_of)
        return cls(files, rows, adds)


@dataclass(frozen=True)
class Changes:
    """What changes in the table.

    Attributes:
        part: rows to merge, or the files that are its first.
        rows: how many.
        read: how many rows of the inputs the query got.
        files: {path of a file of the inputs that was read → its bytes}.
    """

    part: pa.Table | list[str]
    rows: int
    read: int
    files: Mapping[str, int]


class Computed:
    """Computes what has to change in a view.

    Args:
        context: the run.
        definition: the view's.
        table: the view, open for writing.
        spark: the session that computes.
        references: the reference tables that the query reads.
    """

    def __init__(
        self, context: Context, definition: Table, table: Target, spark: SparkSession, references: References
    ) -> None:
        self._context, self._definition, self._table = context, definition, table
        self._analysed = context.tables[definition.name]
        self._spark, self._references = spark, references

    def changes(
        self, intent: Intent, inputs: Mapping[str, Input], before: Mapping[str, Any] | None
    ) -> Changes:
        """What has to change in the table, for it to hold what the query gives.

        Args:
            intent: the batch.
            inputs: what it reads, at the versions that are pinned.
            before: what was consumed by the batch whose rows the table has, by this definition; None: there
                was none.

        Raises:
            FlowError: two rows have the same keys.
        """
        with scratch.connection() as connection:
            touched = self._touched(connection, intent, inputs, before) if before else None
            if touched is not None:
                return self._of_touched(connection, intent, touched)
        return self.of_all(intent, inputs)

    def _touched(
        self,
        connection: duckdb.DuckDBPyConnection,
        intent: Intent,
        inputs: Mapping[str, Input],
        before: Mapping[str, Any],
    ) -> Touched | None:
        """The rows that were touched since the last batch; None where all are to be computed anew."""
        reach = self._analysed.reach
        if reach is None or before.keys() != intent.consumed.keys():
            return None
        if any(before.get(name) != intent.consumed[name] for name in intent.references):
            return None
        if sum(each.rows or 0 for each in inputs.values()) <= WHOLE:
            return None
        sources = {}
        for name in {*reach.sources.values()}:
            changed = self._changed(name, Position.parse(before[name]), Position.parse(intent.consumed[name]))
            if changed is None:
                return None
            columns = stored.schema(self._context.tables[name].columns)
            sources[name] = Source(columns, inputs[name].adds, self._context.lake.place(name).path, changed)
        found = Touched(connection, reach, sources)
        return found if found.find() else None

    def _changed(self, name: str, before: Position, now: Position) -> list[str] | None:
        """The files of what has changed in an input, as it was and as it is; None where that is not known."""
        place = self._context.lake.place(name)
        if before.generation != now.generation or not now.reaches(before):
            return None
        if not ranges.is_as_read(place.path, before):
            return None
        changed: list[str] = []
        try:
            for commit in log.commits(place.path, after=before.version, upto=now.version):
                if commit.expired or (commit.removed and not commit.changes):
                    return None
                changed += [file.path for file in commit.changes or commit.added]
        except CommitError:  # the log was cleaned since
            return None
        return changed

    def _of_touched(self, connection: duckdb.DuckDBPyConnection, intent: Intent, touched: Touched) -> Changes:
        """What changes in the rows that are touched."""
        given = {name: touched.rows(name) for name in {*touched.sources}}
        result = self._query(intent, {}, given)
        connection.register("made", result.toArrow().cast(self._analysed.stored))
        connection.execute(f"CREATE TEMP TABLE new AS {touched.within('made')}")
        near = self._table.near(*touched.wanted())
        scratch.load(connection, "there", self._analysed.stored, near)
        connection.execute(f"CREATE TEMP TABLE held AS {touched.within('there')}")
        changes = self._difference(connection)
        return Changes(changes, len(changes), sum(map(len, given.values())), touched.files)

    def of_all(self, intent: Intent, inputs: Mapping[str, Input]) -> Changes:
        """What changes in the table, of which all is computed anew.

        Where that may be much, Spark writes it as files below the table. These are the table's first, or
        DuckDB compares them with those that it has: no more of either is in this process than what differs.
        """
        result, columns = self._query(intent, inputs), self._analysed.stored
        read = sum(each.rows or 0 for each in inputs.values())
        every = {path: size for each in inputs.values() for path, size in each.files.items()}
        held = Input.at(self._table.place, self._table.version)
        if all(each.rows is not None and each.rows <= FEW for each in (*inputs.values(), held)):
            rows = result.toArrow().cast(columns)
            with scratch.connection() as connection:
                connection.register("new", rows)
                connection.register("held", self._table.held(columns))
                changes = self._difference(connection)
            return Changes(changes, len(changes), read, every)
        files = self._table.write(result, f"{intent.batch}-whole")
        count, paths = self._table.rows(files), [str(self._table.place.path / file) for file in files]
        with scratch.connection() as connection:
            scratch.load(connection, "new", columns, paths)
            if count and not self._table.files():
                self._are_told_apart(connection)
                return Changes(files, count, read, every)
            scratch.load(connection, "held", columns, self._table.files())
            changes = self._difference(connection)
        self._table.forget(files)
        return Changes(changes, len(changes), read, every)

    def _query(
        self, intent: Intent, inputs: Mapping[str, Input], given: Mapping[str, pa.Table] | None = None
    ) -> DataFrame:
        """What the query gives of whole inputs, or of the rows that are given of them."""

        def frame(name: str) -> DataFrame:
            if name in self._references:
                return self._references.read(name, intent.references[name])
            if given is None:
                return self._frame(name, inputs[name])
            return in_memory.frame(self._spark, given[name], self._context.tables[name].columns).coalesce(1)

        return analysis.apply(self._spark, self._definition, [*map(frame, self._definition.sources)])

    def _frame(self, name: str, found: Input) -> DataFrame:
        """What the query sees of an input: all of it."""
        columns = self._context.tables[name].columns
        if not found.files:
            return in_memory.empty(self._spark, columns)
        if found.rows is not None and are_few([*found.files], found.rows):
            rows = read([*found.files], columns).combine_chunks()
            return in_memory.frame(self._spark, rows, columns).coalesce(1)
        return self._spark.read.schema(columns).parquet(*found.files)

    def _difference(self, connection: duckdb.DuckDBPyConnection) -> pa.Table:
        """What has to change in the rows `held`, for them to be the rows `new`: the table's columns, and
        whether a row goes."""
        self._are_told_apart(connection)
        on_same = f"ON {same('new', 'old', map(quoted, self._analysed.keys))}"
        columns = [quoted(name) for name in self._analysed.columns.fieldNames()]
        changes = connection.execute(
            f"SELECT new.*, false AS {GONE} FROM new LEFT JOIN (SELECT *, true AS _here FROM held) old "
            f"{on_same} WHERE old._here IS NULL OR {differ('new', 'old', columns)} "
            f"UNION ALL SELECT old.*, true FROM held old ANTI JOIN new {on_same}"
        ).to_arrow_table()
        return changes.cast(self._analysed.stored.append(pa.field(GONE, pa.bool_())))

    def _are_told_apart(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Check that no two of the rows `new` have the same keys."""
        keys = ", ".join(map(quoted, self._analysed.keys))
        ((twice,),) = connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM new GROUP BY {keys} HAVING count(*) > 1)"
        ).fetchall()
        if twice:
            raise FlowError(
                f"{self._definition.file}: {self._definition.name} has {twice} keys that several rows share "
                f"({', '.join(self._analysed.keys)})",
                code="KEYS_SHARED",
                where=self._definition.where,
                hint="say in headwater.keys what tells its rows apart",
            )
