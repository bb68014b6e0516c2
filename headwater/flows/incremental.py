"""What changes in a view with what has changed in its inputs, where that is little and known.

Of three ways the definition has one: the groups of a table's rows that come and go; the same of the rows that
the query's inner part gives, itself a table beside the view; or the rows that changes touch. See
`headwater.planner.groups`, `headwater.planner.stages` and `headwater.planner.reach`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headwater.common import scratch
from headwater.common.diff import same
from headwater.common.scratch import quoted
from headwater.errors import CommitError
from headwater.flows.asked import Query
from headwater.flows.compared import FEW, Compared
from headwater.flows.context import Context
from headwater.flows.few import Few, Frames
from headwater.flows.grouped import Grouped
from headwater.flows.inputs import Input
from headwater.flows.suffix import Suffix
from headwater.flows.touched import Source, Touched
from headwater.planner import groups
from headwater.planner.reach import Reach
from headwater.project.definitions import Table
from headwater.storage import feed, log, pruning, ranges, stored
from headwater.storage.commit import Part
from headwater.storage.feed import SIGN
from headwater.storage.intent import Intent
from headwater.storage.ranges import Position
from headwater.storage.target import GONE


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


@dataclass(frozen=True)
class Tables:
    """A view, and the tables beside it of which its groups are made.

    Attributes:
        view: the view.
        state: what its groups are made of; None where they are not kept so.
        stage: what the inner part gives of which they are; None where they are of a table's rows.
    """

    view: Compared
    state: Compared | None = None
    stage: Compared | None = None


class Incremental:
    """Computes what has to change in a view of what has changed in its inputs.

    Args:
        context: the run.
        definition: the view's.
        tables: what it is to change.
        query: the view's.
    """

    def __init__(self, context: Context, definition: Table, tables: Tables, query: Query) -> None:
        self._context, self._definition, self._tables, self._query = context, definition, tables, query
        self._analysed, self._where = context.tables[definition.name], definition.where
        of_first = stored.schema(context.tables[definition.sources[0]].columns) if definition.cdc else None
        self._is_history = of_first is not None and Suffix.fits(definition.cdc, of_first)

    def changes(
        self, intent: Intent, inputs: Mapping[str, Input], before: Mapping[str, Any]
    ) -> Changes | None:
        """What has to change; None: that is much, or not known.

        Args:
            intent: the batch.
            inputs: what it reads, at the versions that are pinned.
            before: what was consumed by the batch whose rows the table has.

        Raises:
            FlowError: two rows have the same keys, or a sum is too large for its type.
        """
        if self._is_history:
            return self._of_history(intent, inputs, before)
        if self._tables.stage is not None:
            return self._of_stage(intent, inputs, before)
        if self._tables.state is not None:
            return self._of_rows(intent, before)
        return self._of_touched(intent, inputs, before)

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

    def _of_history(
        self, intent: Intent, inputs: Mapping[str, Input], before: Mapping[str, Any]
    ) -> Changes | None:
        """What changes in a history from the first of new changes on; None: these are many, or not known."""
        (name,) = self._definition.sources
        changed, cdc = self._changed(name, intent, before), self._definition.cdc
        assert cdc is not None
        if changed is None or sum(file.rows for file in changed) > FEW:
            return None
        columns = stored.schema(self._context.tables[name].columns)
        place = self._context.lake.place(name)
        new = stored.rows([file.path for file in changed], columns) if changed else columns.empty_table()
        suffix = Suffix(cdc, self._tables.view, place, columns, self._query)
        rows, read, files, keys = suffix.difference(intent, inputs[name], new)
        return Changes({self._definition.name: rows}, len(rows), len(read), files, keys)

    def _of_rows(self, intent: Intent, before: Mapping[str, Any]) -> Changes | None:
        """What changes in the groups of a table's rows that have come and gone; None: these are many, or not
        known."""
        (name,) = self._definition.sources
        changed = self._changed(name, intent, before)
        if changed is None or sum(map(feed.rows, changed)) > FEW:
            return None
        columns = self._context.tables[name].columns
        signed = [feed.signed(file.path, stored.schema(columns)) for file in changed]
        none = stored.schema(columns).append(pa.field(SIGN, pa.int64())).empty_table()

        def grouped(result: DataFrame) -> DataFrame:
            return groups.rows(self._query.spark, self._query.taken(result))

        def rows_of(some: pa.Table) -> pa.Table:
            return self._query.of(intent, {name: some}).then("grouped", grouped).rows

        parts, keys = self._of_groups(pa.concat_tables(signed) if signed else none, rows_of)
        files = {file.path: file.size for file in changed}
        return Changes(parts, len(parts[self._definition.name]), sum(map(len, signed)), files, keys)

    def _of_stage(
        self, intent: Intent, inputs: Mapping[str, Input], before: Mapping[str, Any]
    ) -> Changes | None:
        """What changes in what the inner part of the query gives, and in the groups of that; None: what is
        touched is much, or not known."""
        inner, stage = self._analysed.stage, self._tables.stage
        assert inner is not None and stage is not None
        with scratch.connection() as connection:
            touched = self._touched(connection, inner.reach, intent, inputs, before)
            if touched is None:
                return None
            given = {name: touched.rows(name) for name in {*touched.sources}}
            result = self._query.of(intent, given)
            made = result.then(
                "inner", lambda whole: self._query.inner(whole)[1].rows(self._query.spark)
            ).rows
            changes = self._differs(connection, stage, touched, made)
            signed = self._signed(connection, stage, changes)

        def outer(frames: Frames) -> DataFrame:
            taken, part = self._query.inner(result.frame)
            return groups.rows(self._query.spark, part.over(taken, frames[stage.target.place.name]))

        def rows_of(some: pa.Table) -> pa.Table:
            known = {stage.target.place.name: self._query.here.given(some, inner.columns)}
            return Few(self._query.here, ("outer",), [known], outer).rows

        parts, _ = self._of_groups(signed, rows_of)
        parts = {stage.target.place.name: changes, **parts}
        read = sum(map(len, given.values()))
        return Changes(parts, len(parts[self._definition.name]), read, touched.files, touched.keys)

    def _of_groups(
        self, changed: pa.Table, rows_of: Callable[[pa.Table], pa.Table]
    ) -> tuple[dict[str, pa.Table], int]:
        """What changes in the groups of rows that have come and gone, and in what they are made of; how many
        groups these are.

        Args:
            changed: the rows, with a `SIGN`.
            rows_of: what the view groups of some of them.
        """
        kept, state = self._analysed.groups, self._tables.state
        assert kept is not None and state is not None
        found = []
        for sign in (1, -1):
            some = changed.filter(pc.equal(changed[SIGN], sign)).drop_columns([SIGN])
            if len(some) or sign > 0:
                rows = rows_of(some)
                found.append(rows.append_column(SIGN, pa.repeat(pa.scalar(sign, pa.int32()), len(rows))))
        rows = pa.concat_tables(found)
        keys = self._tables.view.keys
        with scratch.connection() as connection:
            grouped = Grouped(kept, state.target, self._tables.view.columns, self._where)
            of_state = grouped.change(connection, rows)
            wanted = connection.table("of_groups").to_arrow_table()
            near = self._tables.view.target.near(pruning.reaches(wanted, keys))
            scratch.load(connection, "there", self._tables.view.columns, near)
            connection.execute(
                "CREATE TEMP TABLE held AS SELECT there.* FROM there "
                f"SEMI JOIN of_groups ON {same('there', 'of_groups', map(quoted, keys))}"
            )
            connection.execute("CREATE TEMP VIEW new AS FROM groups")
            changes = self._tables.view.difference(connection)
        return {state.target.place.name: of_state, self._definition.name: changes}, len(wanted)

    def _of_touched(
        self, intent: Intent, inputs: Mapping[str, Input], before: Mapping[str, Any]
    ) -> Changes | None:
        """What changes in the rows that changes of the inputs touch; None: these are many, or not known."""
        reach = self._analysed.reach
        if reach is None:
            return None
        with scratch.connection() as connection:
            touched = self._touched(connection, reach, intent, inputs, before)
            if touched is None:
                return None
            given = {name: touched.rows(name) for name in {*touched.sources}}
            made = self._query.of(intent, given).rows
            changes = self._differs(connection, self._tables.view, touched, made)
        read = sum(map(len, given.values()))
        return Changes({self._definition.name: changes}, len(changes), read, touched.files, touched.keys)

    def _touched(
        self,
        connection: duckdb.DuckDBPyConnection,
        reach: Reach,
        intent: Intent,
        inputs: Mapping[str, Input],
        before: Mapping[str, Any],
    ) -> Touched | None:
        """What changes of the inputs touch; None: that is much, or not known."""
        sources = {}
        for name in {*reach.sources.values()}:
            changed = self._changed(name, intent, before)
            if changed is None:
                return None
            columns = stored.schema(self._context.tables[name].columns)
            path = self._context.lake.place(name).path
            sources[name] = Source(columns, inputs[name].adds, path, [file.path for file in changed])
        touched = Touched(connection, reach, sources)
        return touched if touched.find() else None

    @staticmethod
    def _differs(
        connection: duckdb.DuckDBPyConnection, table: Compared, touched: Touched, made: pa.Table
    ) -> pa.Table:
        """What changes in the rows of a table that are touched, where these are what was made."""
        connection.register("made", made.cast(table.columns))
        connection.execute(f"CREATE TEMP TABLE new AS {touched.within('made')}")
        scratch.load(connection, "there", table.columns, table.target.near(*touched.wanted()))
        connection.execute(f"CREATE TEMP TABLE held AS {touched.within('there')}")
        return table.difference(connection)

    @staticmethod
    def _signed(connection: duckdb.DuckDBPyConnection, table: Compared, changes: pa.Table) -> pa.Table:
        """The rows that come to a table and go from it, with a `SIGN`: one that is changed does both."""
        connection.register("changes", changes)
        columns = ", ".join(map(quoted, table.columns.names))
        on_same = same("held", "changes", map(quoted, table.keys))
        return connection.execute(
            f"SELECT {columns}, 1 AS {SIGN} FROM changes WHERE NOT {GONE} UNION ALL "
            f"SELECT {columns}, -1 FROM held SEMI JOIN changes ON {on_same}"
        ).to_arrow_table()
