"""What a view's query gives, and what of that differs from its table.

All of it is computed anew; or, where few rows have changed and it is known which, the groups that they come
to and go from (`headwater.planner.groups`), or the rows that they touch (`headwater.planner.reach`). Others
stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame

from headwater.flows.asked import Query
from headwater.flows.compared import FEW, Compared
from headwater.flows.few import Few
from headwater.flows.incremental import Incremental
from headwater.flows.inputs import Input
from headwater.flows.view_changes import Changes, Tables
from headwater.storage.commit import Part
from headwater.storage.intent import Intent

WHOLE = 10_000  # rows of all inputs that are no more work than to find out which of them matter


class Computed:
    """Computes what has to change in a view.

    Args:
        tables: the view, and what is beside it.
        query: the view's.
        incremental: computes it of what has changed.
    """

    def __init__(self, tables: Tables, query: Query, incremental: Incremental) -> None:
        self._tables, self._query, self._incremental = tables, query, incremental

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
        found = None
        if before is not None and self._is_worth(intent, inputs, before):
            found = self._incremental.changes(intent, inputs, before)
        return found or self.of_all(intent, inputs)

    def of_all(self, intent: Intent, inputs: Mapping[str, Input]) -> Changes:
        """What changes in the table, of which all is computed anew."""
        query, parts, tables = self._query, dict[str, Part](), self._tables
        result = query.of_all(intent, inputs, few=all(each.is_at_most(FEW) for each in inputs.values()))

        def keep(table: Compared, name: str, made_of: Callable[[DataFrame], DataFrame]) -> int:
            made = result.then(name, made_of) if isinstance(result, Few) else made_of(result)
            parts[table.target.place.name], rows = table.whole(made, intent.batch)
            return rows

        if tables.stage is not None:
            keep(tables.stage, "inner", query.stage)
        if tables.state is not None:
            keep(tables.state, "state", query.state)
        rows = keep(tables.view, "", lambda whole: whole)
        every = {path: size for each in inputs.values() for path, size in each.files.items()}
        return Changes(parts, rows, sum(each.rows or 0 for each in inputs.values()), every)

    def _is_worth(self, intent: Intent, inputs: Mapping[str, Input], before: Mapping[str, Any]) -> bool:
        """Whether the inputs are as before but for changes, and more than a few rows; and what is kept beside
        the view has come as far as it."""
        if before.keys() != intent.consumed.keys():
            return False
        if any(before.get(name) != intent.consumed[name] for name in intent.references):
            return False
        tables = (self._tables.view, self._tables.state, self._tables.stage)
        if len({each.target.last(intent.flow) for each in tables if each is not None}) > 1:
            return False
        return sum(each.rows or 0 for each in inputs.values()) > WHOLE
