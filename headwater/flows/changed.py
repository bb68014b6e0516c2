"""A table whose rows change in place → one that follows it: a row for a row, with the same keys.

The input's change feed says which of its rows have changed (`headwater.storage.feed`). Of each key only the
last state in a batch counts: the definition is applied to these rows, and what it makes of them is merged by
the keys; a key that is gone, or of which it makes nothing now, goes.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headwater.common import database, scratch
from headwater.common.diff import same
from headwater.common.scratch import quoted
from headwater.errors import FlowError
from headwater.flows.context import Context
from headwater.flows.ranged import RangedFlow
from headwater.flows.rows import FewRows
from headwater.flows.work import Counts
from headwater.project.definitions import Table
from headwater.storage import feed
from headwater.storage.commit import Built, Committer
from headwater.storage.identity import Identity
from headwater.storage.intent import Intent
from headwater.storage.target import GONE, Target


class ChangedFlow(RangedFlow):
    """The flow of one table that follows another."""

    def __init__(self, context: Context, table: Table) -> None:
        super().__init__(context, table)
        source = context.tables[self._stream]
        self._keys = [quoted(key) for key in self._analysed.keys]
        self._columns = pa.schema([source.stored.field(name) for name in source.columns.fieldNames()])
        self.committer = Committer(self._table, self._intents, merges={self.name: self._change})

    def _build(self, intent: Intent) -> Built:
        changed = self._last(intent.files)
        there = changed.filter(pc.invert(changed[GONE])).drop_columns([GONE])
        there = there if len(there) else there.schema.empty_table()  # Spark wants a chunk of each column
        made = FewRows(self._work(intent), there).result.rows.cast(self._analysed.stored)
        changes = self._changes(changed, made)
        account = self._account(intent, Counts(intent.rows), len(changes))
        return Built({self.name: changes}, account=account)

    def _last(self, files: list[str]) -> pa.Table:
        """The rows of the input that have changed, each as it is now, and whether it is gone."""
        rows = [feed.read(file, self._columns) for file in files]
        together = pa.concat_tables(rows) if rows else self._columns.append(_GONE).empty_table()
        numbered = together.append_column("_at", pa.array(range(len(together)), pa.int64()))
        with scratch.connection() as connection:
            connection.register("changed", numbered)
            last = database.table(
                connection,
                f"SELECT max(_at) AS newest FROM changed GROUP BY {', '.join(self._keys)} ORDER BY newest",
            )
        return together.take(last["newest"])

    def _changes(self, changed: pa.Table, made: pa.Table) -> pa.Table:
        """What is merged: the rows that were made, and the keys of those that go.

        Raises:
            FlowError: a row has other keys than the one that it was made of, or two have the same.
        """
        columns = ", ".join(quoted(name) for name in made.schema.names)
        keys = ", ".join(self._keys)
        on_same = f"ON {same('made', 'changed', self._keys)}"
        with scratch.connection() as connection:
            connection.register("changed", changed)
            connection.register("made", made)
            others = connection.execute(
                f"SELECT (SELECT count(*) FROM made ANTI JOIN changed {on_same}), "
                f"(SELECT count(*) FROM (SELECT 1 FROM made GROUP BY {keys} HAVING count(*) > 1))"
            ).fetchone()
            if others is not None and any(others):
                raise FlowError(
                    f"{self._definition.where} makes rows with other keys than those of "
                    f"{self._stream}, or several of one ({', '.join(self._analysed.keys)})",
                    code="KEYS_NOT_KEPT",
                    where=self._definition.where,
                    hint="keep them, or read it by a CREATE MATERIALIZED VIEW",
                )
            gone = database.table(
                connection,
                f"SELECT {columns} FROM made WHERE false UNION ALL BY NAME "
                f"SELECT {keys} FROM changed ANTI JOIN made {on_same}",
            )
        gone = gone.select(made.schema.names).cast(made.schema)
        parts = ((made, False), (gone, True))
        return pa.concat_tables([rows.append_column(GONE, pa.repeat(go, len(rows))) for rows, go in parts])

    def _change(self, target: Target, rows: pa.Table, identity: Identity) -> int:
        return target.change(rows, self._analysed.keys, identity)


_GONE = pa.field(GONE, pa.bool_())
