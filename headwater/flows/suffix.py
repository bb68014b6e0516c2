"""What changes with new changes in the rows that follow from them: of each key what follows from the first of
these on.

Of a key the version that was valid just before its first new change says all that went before: with the
changes from that one's time on, which stand in the newest files, its later versions are computed anew and
compared with those that are there. Without a history nothing that went before is needed: the last change is a
new one, or comes after one. So a batch reads the newest changes and the rows that are there now, however many
changes there were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from headwater.common import database, scratch
from headwater.common.diff import same
from headwater.common.scratch import quoted
from headwater.flows.asked import Query
from headwater.flows.compared import Compared
from headwater.flows.inputs import Input
from headwater.project.cdc.said import DELETED, END, SEQUENCE, START, Cdc
from headwater.storage import pruning
from headwater.storage.intent import Intent
from headwater.storage.lake import Place
from headwater.storage.scan import load

_FIRST = "__first"  # the sequence of a key's first new change


@dataclass(frozen=True)
class Suffix:
    """The rows that follow from one table of changes.

    Attributes:
        cdc: what is said of them.
        table: has them.
        place: where the changes are.
        changes: their columns.
        query: gives the rows of changes.
    """

    cdc: Cdc
    table: Compared
    place: Place
    changes: pa.Schema
    query: Query

    def difference(
        self, intent: Intent, known: Input, new: pa.Table
    ) -> tuple[pa.Table, pa.Table, Mapping[str, int], int]:
        """What has to change in the rows; of which changes it was computed; the files of changes that were
        read, and how many keys were touched.

        Args:
            intent: the batch.
            known: all changes, with the new ones.
            new: these.

        Raises:
            FlowError: two rows have the same keys.
        """
        keys = [name for name in self.changes.names if name.lower() in {key.lower() for key in self.cdc.keys}]
        with scratch.connection() as connection:
            touched = self._touched(connection, keys, new)
            since = {SEQUENCE: pruning.since(pc.min(touched[_FIRST]))}
            reached = pruning.reaches(touched, keys)
            files = pruning.near(self.place.path, known.adds, {**reached, **since}) if len(touched) else {}
            on_key = same("e", "k", map(quoted, keys))
            reached_rows, until, before = reached, "", ""
            if self.cdc.scd == 2:
                reached_rows = {**reached, END: pruning.Reach(since[SEQUENCE].ranges, null=True)}
                until = f" WHERE e.{END} IS NULL OR e.{END} >= k.{_FIRST}"
                before = f" UNION ALL BY NAME {self._before(on_key)}"
            near = self.table.target.near(reached_rows) if len(touched) else []
            of_touched = f"SELECT e.* FROM there e JOIN touched k ON {on_key}"
            alike = [{key: touched[key] for key in keys}]
            load(connection, "held", self.table.columns, near, of_touched + until, alike, place=True)
            since_first = f"{of_touched} WHERE e.{SEQUENCE} >= k.{_FIRST}"
            load(connection, "events", self.changes, files, since_first, alike)
            given = database.table(connection, f"FROM events{before}")
            given = given.select(self.changes.names).cast(self.changes)
            made = self.query.of(intent, {self.place.name: given}).rows.cast(self.table.columns)
            return self.table.difference(connection, made, placed=True), given, files, len(touched)

    def _before(self, on_key: str) -> str:
        """SQL: the versions that began before the first new changes, as changes."""
        listed = ", ".join(quoted(name) for name in self.table.columns.names if name not in (START, END))
        return (
            f"SELECT {listed}, {START} AS {SEQUENCE}, false AS {DELETED} "
            f"FROM (SELECT e.*, k.{_FIRST} FROM held e JOIN touched k ON {on_key}) WHERE {START} < {_FIRST}"
        )

    def _touched(self, connection: duckdb.DuckDBPyConnection, keys: list[str], new: pa.Table) -> pa.Table:
        """Make the table `touched` of the keys of new changes, each with the sequence of its first one."""
        names = ", ".join(map(quoted, keys))
        told = " AND ".join(f"{quoted(key)} IS NOT NULL" for key in [*keys, SEQUENCE])
        connection.register("new_changes", new)
        connection.execute(
            f"CREATE TEMP TABLE touched AS SELECT {names}, min({SEQUENCE}) AS {_FIRST} FROM new_changes "
            f"WHERE {told} GROUP BY {names}"
        )
        kinds = [
            *(self.changes.field(key) for key in keys),
            pa.field(_FIRST, self.changes.field(SEQUENCE).type),
        ]
        return connection.table("touched").to_arrow_table().cast(pa.schema(kinds))
