"""What changes in a view's rows that changes of its inputs touch; see `headwater.planner.reach`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from headwater.common import scratch
from headwater.flows import view_changes
from headwater.flows.asked import Query
from headwater.flows.compared import Compared
from headwater.flows.context import Context
from headwater.flows.inputs import Input, size
from headwater.flows.touched import OfTable, Source, Touched
from headwater.flows.view_changes import Changes
from headwater.planner.reach import Reach
from headwater.storage import pruning, stored
from headwater.storage.intent import Intent
from headwater.storage.scan import alike, is_exact, load


class ByTouched:
    """Computes the rows of a view anew that changes of its inputs touch.

    Args:
        context: the run.
        view: its table.
        query: its query.
    """

    def __init__(self, context: Context, view: Compared, query: Query) -> None:
        self._context, self._view, self._query = context, view, query

    def changes(
        self, reach: Reach, intent: Intent, inputs: Mapping[str, Input], before: Mapping[str, Any]
    ) -> Changes | None:
        """What has to change in the view; None: what is touched is much, or not known."""
        with scratch.connection(size(inputs)) as connection:
            touched = self.touched(connection, reach, intent, inputs, before)
            if touched is None:
                return None
            given = {name: touched.rows(name) for name in {*touched.sources}}
            return self.of_made(connection, touched, self._query.of(intent, given).rows, given)

    def touched(
        self,
        connection: duckdb.DuckDBPyConnection,
        reach: Reach,
        intent: Intent,
        inputs: Mapping[str, Input],
        before: Mapping[str, Any],
        more: Mapping[str, Source] | None = None,
    ) -> Touched | None:
        """What changes of the inputs touch; None: that is much, or not known.

        Args:
            connection: one of its own; see `headwater.common.scratch`.
            reach: how it is found.
            intent, inputs, before: see `Incremental.changes`.
            more: what the query reads beside its inputs.
        """
        sources: dict[str, Source] = dict(more or {})
        for name in {*reach.sources.values()} - {*sources}:
            changed = view_changes.of_input(self._context, name, intent, before)
            if changed is None:
                return None
            columns = stored.schema(self._context.tables[name].columns)
            path = self._context.lake.place(name).path
            sources[name] = OfTable(columns, inputs[name].adds, path, [file.path for file in changed])
        touched = Touched(connection, reach, sources)
        return touched if touched.find() else None

    def of_made(
        self,
        connection: duckdb.DuckDBPyConnection,
        touched: Touched,
        made: pa.Table,
        given: Mapping[str, pa.Table],
    ) -> Changes:
        """What has to change in the view, where its touched rows are those that were made of the given."""
        changes = differences(connection, self._view, touched, made)
        name, read = self._view.target.place.name, sum(map(len, given.values()))
        return Changes({name: changes}, len(changes), read, touched.files, touched.keys)


def differences(
    connection: duckdb.DuckDBPyConnection, table: Compared, touched: Touched, made: pa.Table
) -> pa.Table:
    """What changes in the rows of a table that are touched, where these are what was made."""
    made, wanted = made.cast(table.columns), touched.wanted()
    near = table.target.near(*(pruning.reaches(each, each.column_names) for each in wanted))
    values = [dict(zip(each.column_names, each.columns, strict=True)) for each in wanted]
    new = made.filter(alike(made, values)) if values and is_exact(table.columns, values) else None
    if new is None:
        connection.register("made", made)
        connection.execute(f"CREATE TEMP TABLE new AS {touched.within('made')}")
    load(connection, "held", table.columns, near, touched.within("there"), values, place=True, exact=True)
    return table.difference(connection, new, placed=True)
