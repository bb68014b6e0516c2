"""What changes in a view by its groups, as rows come to them and go from them.

See `headwater.planner.groups`. The rows are a table's, or those that the query's inner part gives, itself a
table beside the view (`headwater.planner.stages`). With the rows that have come and gone the state of their
groups changes; with these groups, as with an input, the rows of the view that they touch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headwater.common import database, scratch
from headwater.common.diff import same
from headwater.common.scratch import quoted
from headwater.flows import view_changes
from headwater.flows.asked import Query
from headwater.flows.by_touched import ByTouched, differences
from headwater.flows.compared import FEW, Compared
from headwater.flows.context import Context
from headwater.flows.few import Few, Frames
from headwater.flows.grouped import Changed, Grouped
from headwater.flows.inputs import Input, size
from headwater.flows.view_changes import Changes, Tables
from headwater.planner import groups
from headwater.planner.cut import Cut
from headwater.planner.groups import Groups
from headwater.planner.stages import Stage
from headwater.project.definitions import Table
from headwater.storage import feed, stored
from headwater.storage.feed import SIGN
from headwater.storage.intent import Intent
from headwater.storage.target import GONE


class ByGroups:
    """Computes a view anew where its groups have changed.

    Args:
        context: the run.
        definition: the view's.
        tables: the view, and what is kept beside it.
        query: its query.
        by_touched: computes the rows that are touched.
    """

    def __init__(
        self, context: Context, definition: Table, tables: Tables, query: Query, by_touched: ByTouched
    ) -> None:
        analysed = context.tables[definition.name]
        assert tables.state is not None and analysed.groups is not None
        self._context, self._query, self._by_touched = context, query, by_touched
        self._groups, self._reach, self._inner = analysed.groups, analysed.reach, analysed.stage
        self._view, self._state, self._stage = tables.view, tables.state, tables.stage
        self._name = self._state.target.place.name
        self._where = definition.where
        self._grouped = self._of(self._groups, self._state)

    def changes(
        self, intent: Intent, inputs: Mapping[str, Input], before: Mapping[str, Any]
    ) -> Changes | None:
        """What has to change in the view, and beside it; None: that is much, or not known.

        Args:
            intent, inputs, before: see `Incremental.changes`.

        Raises:
            FlowError: two rows have the same keys, or a sum is too large for its type.
        """
        below = self._below(intent, inputs, before)
        if below is None:
            return None
        found, of_groups = below
        above = self._above(intent, inputs, before, of_groups)
        return found.and_of(above) if above else None

    def _of(self, kept: Groups, state: Compared) -> Grouped:
        return Grouped(kept, state.target, stored.schema(kept.columns), self._where)

    def _below(
        self, intent: Intent, inputs: Mapping[str, Input], before: Mapping[str, Any]
    ) -> tuple[Changes, Changed] | None:
        """What changes in what is kept beside the view, and the groups."""
        if self._inner is None:
            return self._of_rows(self._grouped, intent, before, self._query.cut)
        if self._inner.groups is None:
            return self._of_stage(self._inner, intent, inputs, before)
        return self._of_inner_groups(self._inner, self._inner.groups, intent, before)

    def _of_rows(
        self, grouped: Grouped, intent: Intent, before: Mapping[str, Any], cut: Callable[[DataFrame], Cut]
    ) -> tuple[Changes, Changed] | None:
        """What changes in what groups are made of with a table's rows that have come and gone.

        Args:
            grouped: the groups.
            intent, before: see `Incremental.changes`.
            cut: cuts what the query gives at these.
        """
        name, state = grouped.groups.source, grouped.state.place.name
        changed = view_changes.of_input(self._context, name, intent, before)
        if changed is None or sum(map(feed.rows, changed)) > FEW:
            return None
        columns = stored.schema(self._context.tables[name].columns)
        signed = [feed.signed(file.path, columns) for file in changed]
        none = columns.append(pa.field(SIGN, pa.int64())).empty_table()

        def made(result: DataFrame) -> DataFrame:
            return groups.rows(self._query.spark, cut(result).taken, grouped.groups.outputs)

        def rows_of(some: pa.Table) -> pa.Table:
            return self._query.of(intent, {name: some}).then(state, made).rows

        of_state, of_groups = _of_groups(grouped, *_parted(pa.concat_tables([*signed, none])), rows_of)
        files = {file.path: file.size for file in changed}
        read = sum(map(len, signed))
        return Changes({state: of_state}, 0, read, files, len(of_groups)), of_groups

    def _of_inner_groups(
        self, inner: Stage, kept: Groups, intent: Intent, before: Mapping[str, Any]
    ) -> tuple[Changes, Changed] | None:
        """What changes in the groups of the query's inner part, and with these in the state."""
        stage = self._stage
        assert stage is not None
        name = stage.target.place.name
        below = self._of_rows(self._of(kept, stage), intent, before, self._query.inner_cut)
        if below is None:
            return None
        found, changed = below

        def rows_of(some: pa.Table) -> pa.Table:
            def outer(frames: Frames) -> DataFrame:
                whole = self._query.of(intent, {}).frame
                taken, part = self._query.inner(whole)
                rows = self._query.inner_cut(whole).over(self._query.spark, frames[name])
                return groups.rows(self._query.spark, part.over(taken, rows), self._groups.outputs)

            known = {name: self._query.here.given(some, kept.columns)}
            return Few(self._query.here, ("outer",), [known], outer).rows

        of_state, of_groups = _of_groups(self._grouped, changed.now, changed.was, rows_of)
        return found.and_of(Changes({self._name: of_state}, 0, 0, {}, len(of_groups))), of_groups

    def _of_stage(
        self, inner: Stage, intent: Intent, inputs: Mapping[str, Input], before: Mapping[str, Any]
    ) -> tuple[Changes, Changed] | None:
        """What changes in what the inner part of the query gives, and with that in the state."""
        stage = self._stage
        assert stage is not None and inner.reach is not None
        name = stage.target.place.name
        with scratch.connection(size(inputs)) as connection:
            touched = self._by_touched.touched(connection, inner.reach, intent, inputs, before)
            if touched is None:
                return None
            given = {name: touched.rows(name) for name in {*touched.sources}}
            result = self._query.of(intent, given)
            made = result.then("inner", self._query.stage).rows
            changes = differences(connection, stage, touched, made)
            signed = _signed(connection, stage, changes)

        def outer(frames: Frames) -> DataFrame:
            taken, part = self._query.inner(result.frame)
            return groups.rows(self._query.spark, part.over(taken, frames[name]), self._groups.outputs)

        def rows_of(some: pa.Table) -> pa.Table:
            known = {name: self._query.here.given(some, inner.columns)}
            return Few(self._query.here, ("outer",), [known], outer).rows

        of_state, of_groups = _of_groups(self._grouped, *_parted(signed), rows_of)
        read = sum(map(len, given.values()))
        parts = {name: changes, self._name: of_state}
        return Changes(parts, 0, read, touched.files, touched.keys), of_groups

    def _above(
        self, intent: Intent, inputs: Mapping[str, Input], before: Mapping[str, Any], of_groups: Changed
    ) -> Changes | None:
        """What changes in the rows of the view that changed groups touch, or changes of what it reads beside
        them."""

        def made(rows: Mapping[str, pa.Table]) -> pa.Table:
            beside = {name: some for name, some in rows.items() if name != self._name}
            given = {self._name: self._query.here.given(rows[self._name], self._groups.columns)}
            return self._query.over(intent, beside, given).rows

        with scratch.connection(size(inputs)) as connection:
            if self._reach is None:  # it is made of one group, which is there without rows, too
                held = self._view.target.held(self._view.columns)
                connection.register("held", held)
                new = made({self._name: of_groups.now}).cast(held.schema) if of_groups.has_changed else held
                changes = self._view.difference(connection, new)
                return Changes({self._view.target.place.name: changes}, len(changes), 0, {}, 1)
            touched = self._by_touched.touched(
                connection, self._reach, intent, inputs, before, {self._name: of_groups}
            )
            if touched is None:
                return None
            rows = {name: touched.rows(name) for name in {*touched.sources}}
            beside = {name: some for name, some in rows.items() if name != self._name}
            return self._by_touched.of_made(connection, touched, made(rows), beside)


def _of_groups(
    grouped: Grouped, came: pa.Table, went: pa.Table, rows_of: Callable[[pa.Table], pa.Table]
) -> tuple[pa.Table, Changed]:
    """What changes in what groups are made of with rows that have come and gone, and the groups.

    Args:
        grouped: the groups.
        came, went: the rows.
        rows_of: what the query groups of some of them.
    """
    found = []
    for sign, some in ((1, came), (-1, went)):
        if len(some) or sign > 0:
            rows = rows_of(some)
            found.append(rows.append_column(SIGN, pa.repeat(pa.scalar(sign, pa.int32()), len(rows))))
    return grouped.change(pa.concat_tables(found))


def _parted(changed: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows that come and those that go, of some with a `SIGN`."""
    comes, rows = pc.equal(changed[SIGN], 1), changed.drop_columns([SIGN])
    return rows.filter(comes), rows.filter(pc.invert(comes))


def _signed(connection: duckdb.DuckDBPyConnection, table: Compared, changes: pa.Table) -> pa.Table:
    """The rows that come to a table and go from it, with a `SIGN`: one that is changed does both."""
    connection.register("changes", changes)
    columns = ", ".join(map(quoted, table.columns.names))
    on_same = same("held", "changes", map(quoted, table.keys))
    return database.table(
        connection,
        f"SELECT {columns}, 1 AS {SIGN} FROM changes WHERE NOT {GONE} UNION ALL "
        f"SELECT {columns}, -1 FROM held SEMI JOIN changes ON {on_same}",
    )
