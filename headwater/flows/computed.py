"""What a view's query gives, and what of that differs from its table.

All of it is computed anew; or, where few rows have changed and it is known which, the groups that they come
to and go from (`headwater.planner.groups`), or the rows that they touch (`headwater.planner.reach`). Others
stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.common import scratch
from headwater.common.diff import same
from headwater.common.scratch import quoted
from headwater.errors import CommitError
from headwater.flows.compared import FEW, Compared
from headwater.flows.context import Context
from headwater.flows.grouped import Grouped
from headwater.flows.inputs import Input
from headwater.flows.references import References
from headwater.flows.rows import are_few, read
from headwater.flows.touched import Source, Touched
from headwater.planner import analysis, groups
from headwater.project.definitions import Table
from headwater.runtime import in_memory
from headwater.storage import feed, log, pruning, ranges, stored
from headwater.storage.commit import Part
from headwater.storage.feed import SIGN
from headwater.storage.intent import Intent
from headwater.storage.ranges import Position
from headwater.storage.target import Target

WHOLE = 10_000  # rows of all inputs that are no more work than to find out which of them matter


@dataclass(frozen=True)
class Changes:
    """What changes in the table, and in what its groups are made of.

    Attributes:
        parts: {table → rows to merge, or the files that are its first}, the view last.
        rows: how many of the view's.
        read: how many rows of the inputs the query got.
        files: {path of a file of the inputs that was read → its bytes}.
        keys: how many values that rows are found by, or groups, were touched; None: all was computed.
    """

    parts: Mapping[str, Part]
    rows: int
    read: int
    files: Mapping[str, int]
    keys: int | None = None

    @property
    def appended(self) -> list[str]:
        """The tables whose first rows these are."""
        return [name for name, part in self.parts.items() if isinstance(part, list)]


class Computed:
    """Computes what has to change in a view.

    Args:
        context: the run.
        definition: the view's.
        table: the view, open for writing.
        state: what its groups are made of; None where they are not kept so.
        spark: the session that computes.
        references: the reference tables that the query reads.
    """

    def __init__(
        self,
        context: Context,
        definition: Table,
        table: Target,
        state: Target | None,
        spark: SparkSession,
        references: References,
    ) -> None:
        self._context, self._definition, self._table, self._state = context, definition, table, state
        self._analysed = analysed = context.tables[definition.name]
        self._spark, self._references, self._where = spark, references, definition.where
        self._compared = Compared(table, analysed.stored, analysed.keys, self._where)

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
            FlowError: two rows have the same keys, or a sum is too large for its type.
        """
        if before is not None and self._is_worth(intent, inputs, before):
            with scratch.connection() as connection:
                if self._state is not None:
                    found = self._of_groups(connection, intent, before)
                else:
                    found = self._of_touched(connection, intent, inputs, before)
            if found is not None:
                return found
        return self.of_all(intent, inputs)

    def _is_worth(self, intent: Intent, inputs: Mapping[str, Input], before: Mapping[str, Any]) -> bool:
        """Whether the inputs are the same as before but for changes, and more than a few rows."""
        if before.keys() != intent.consumed.keys():
            return False
        if any(before.get(name) != intent.consumed[name] for name in intent.references):
            return False
        return sum(each.rows or 0 for each in inputs.values()) > WHOLE

    def _changed(self, name: str, intent: Intent, before: Mapping[str, Any]) -> list[log.DataFile] | None:
        """The files of what has changed in an input, as it was and as it is; None where that is not known."""
        place = self._context.lake.place(name)
        then, now = (Position.parse(consumed[name]) for consumed in (before, intent.consumed))
        if then.generation != now.generation or not now.reaches(then):
            return None
        if not ranges.is_as_read(place.path, then):
            return None
        changed: list[log.DataFile] = []
        try:
            for commit in log.commits(place.path, after=then.version, upto=now.version):
                if commit.expired or (commit.removed and not commit.changes):
                    return None
                changed += commit.changes or commit.added
        except CommitError:  # the log was cleaned since
            return None
        return changed

    def _of_groups(
        self, connection: duckdb.DuckDBPyConnection, intent: Intent, before: Mapping[str, Any]
    ) -> Changes | None:
        """What changes in the groups of rows that have come and gone; None: these are many, or not known."""
        (name,), kept, state = self._definition.sources, self._analysed.groups, self._state
        assert kept is not None and state is not None
        changed = self._changed(name, intent, before)
        if changed is None or state.last(intent.flow) != self._table.last(intent.flow):
            return None
        if sum(map(feed.rows, changed)) > FEW:
            return None
        columns = stored.schema(self._context.tables[name].columns)
        signed = [feed.signed(file.path, columns) for file in changed]
        every = (
            pa.concat_tables(signed) if signed else columns.append(pa.field(SIGN, pa.int64())).empty_table()
        )
        grouped = Grouped(kept, state, self._analysed.stored, self._where)
        of_state = grouped.change(connection, self._rows_of_groups(intent, name, every))
        near = self._table.near(
            pruning.reaches(connection.table("of_groups").to_arrow_table(), self._analysed.keys)
        )
        scratch.load(connection, "there", self._analysed.stored, near)
        on_same = same("there", "of_groups", map(quoted, self._analysed.keys))
        connection.execute(
            f"CREATE TEMP TABLE held AS SELECT there.* FROM there SEMI JOIN of_groups ON {on_same}"
        )
        connection.execute("CREATE TEMP VIEW new AS FROM groups")
        changes = self._compared.difference(connection)
        ((keys,),) = connection.execute("SELECT count(*) FROM of_groups").fetchall()
        return Changes(
            {state.place.name: of_state, self._definition.name: changes},
            len(changes),
            len(every),
            {file.path: file.size for file in changed},
            int(keys),
        )

    def _rows_of_groups(self, intent: Intent, name: str, changed: pa.Table) -> pa.Table:
        """The rows that the view groups, of those of its input that have come and gone, with their signs."""
        found = []
        for sign in (1, -1):
            rows = changed.filter(pc.equal(changed[SIGN], sign)).drop_columns([SIGN])
            if len(rows) or sign > 0:
                result = self._query(intent, {}, {name: rows})
                found.append(groups.rows(result, self._where).withColumn(SIGN, F.lit(sign)))
        return reduce(DataFrame.unionAll, found).toArrow()

    def _of_touched(
        self,
        connection: duckdb.DuckDBPyConnection,
        intent: Intent,
        inputs: Mapping[str, Input],
        before: Mapping[str, Any],
    ) -> Changes | None:
        """What changes in the rows that changes of the inputs touch; None: these are many, or not known."""
        reach = self._analysed.reach
        if reach is None:
            return None
        sources = {}
        for name in {*reach.sources.values()}:
            changed = self._changed(name, intent, before)
            if changed is None:
                return None
            columns = stored.schema(self._context.tables[name].columns)
            path = self._context.lake.place(name).path
            sources[name] = Source(columns, inputs[name].adds, path, [file.path for file in changed])
        touched = Touched(connection, reach, sources)
        if not touched.find():
            return None
        given = {name: touched.rows(name) for name in {*touched.sources}}
        result = self._query(intent, {}, given)
        connection.register("made", result.toArrow().cast(self._analysed.stored))
        connection.execute(f"CREATE TEMP TABLE new AS {touched.within('made')}")
        near = self._table.near(*touched.wanted())
        scratch.load(connection, "there", self._analysed.stored, near)
        connection.execute(f"CREATE TEMP TABLE held AS {touched.within('there')}")
        changes = self._compared.difference(connection)
        read = sum(map(len, given.values()))
        return Changes({self._definition.name: changes}, len(changes), read, touched.files, touched.keys)

    def of_all(self, intent: Intent, inputs: Mapping[str, Input]) -> Changes:
        """What changes in the table, of which all is computed anew."""
        result, parts = self._query(intent, inputs), dict[str, Part]()
        few = all(each.is_at_most(FEW) for each in inputs.values())
        if self._state is not None and (kept := self._analysed.groups) is not None:
            state = Compared(self._state, kept.state, kept.keys, self._where)
            parts[self._state.place.name], _ = state.whole(
                groups.whole(result, self._where), intent.batch, few=few
            )
        parts[self._definition.name], rows = self._compared.whole(result, intent.batch, few=few)
        every = {path: size for each in inputs.values() for path, size in each.files.items()}
        return Changes(parts, rows, sum(each.rows or 0 for each in inputs.values()), every)

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
