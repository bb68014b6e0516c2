"""What changes in a view with what has changed in its inputs, where that is little and known.

Of three ways the definition has one: what follows from changes, from the first of new ones on; the groups
that rows come to and go from, and what is made of them; or the rows that changes touch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.flows import view_changes
from headwater.flows.asked import Query
from headwater.flows.by_groups import ByGroups
from headwater.flows.by_touched import ByTouched
from headwater.flows.compared import FEW
from headwater.flows.context import Context
from headwater.flows.inputs import Input
from headwater.flows.suffix import Suffix
from headwater.flows.view_changes import Changes, Tables
from headwater.planner import newest
from headwater.project.definitions import Table
from headwater.storage import stored
from headwater.storage.intent import Intent


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
        self._reach = context.tables[definition.name].reach
        self._by_touched = ByTouched(context, tables.view, query)
        self._by_groups = (
            ByGroups(context, definition, tables, query, self._by_touched)
            if tables.state is not None
            else None
        )
        self._is_suffix = definition.cdc is not None and newest.are_enough(
            definition.cdc, context.tables[definition.sources[0]].columns
        )

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
        if self._is_suffix:
            return self._of_suffix(intent, inputs, before)
        if self._by_groups is not None:
            return self._by_groups.changes(intent, inputs, before)
        if self._reach is not None:
            return self._by_touched.changes(self._reach, intent, inputs, before)
        return None

    def _of_suffix(
        self, intent: Intent, inputs: Mapping[str, Input], before: Mapping[str, Any]
    ) -> Changes | None:
        """What changes from the first of new changes on; None: these are many, or not known."""
        (name,) = self._definition.sources
        changed = view_changes.of_input(self._context, name, intent, before)
        cdc = self._definition.cdc
        assert cdc is not None
        if changed is None or sum(file.rows for file in changed) > FEW:
            return None
        columns = stored.schema(self._context.tables[name].columns)
        place = self._context.lake.place(name)
        new = stored.rows([file.path for file in changed], columns) if changed else columns.empty_table()
        suffix = Suffix(cdc, self._tables.view, place, columns, self._query)
        rows, read, files, keys = suffix.difference(intent, inputs[name], new)
        return Changes({self._definition.name: rows}, len(rows), len(read), files, keys)
