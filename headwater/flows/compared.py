"""What differs between the rows that a table is to have and those that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headwater.common import database, scratch
from headwater.common.diff import differ, same
from headwater.common.scratch import quoted
from headwater.errors import FlowError, Where
from headwater.flows.few import Few
from headwater.flows.inputs import Input
from headwater.storage import pruning, stored
from headwater.storage.commit import Part
from headwater.storage.identity import Identity
from headwater.storage.scan import FILE, load
from headwater.storage.target import GONE, Target

# Of a row that changes: whether it is there, in which file if that is known, and until when it held.
_HERE, _UNTIL = "_here", "_until"
_COMES = "_comes"  # of a row that is to be there: true
FEW = 100_000  # rows of each input, and of the table, that this process takes


@dataclass(frozen=True)
class Compared:
    """A table whose rows are to be others.

    Args:
        target: the table.
        columns: its columns, as they are stored.
        keys: what tells its rows apart.
        where: what errors name.
    """

    target: Target
    columns: pa.Schema
    keys: Sequence[str]
    where: Where

    def whole(self, result: Few | DataFrame, batch: str) -> tuple[Part, int]:
        """What has to change for the table to hold a result, and how many rows that are.

        Where the result may be large, Spark writes it as files below the table. These are the table's first,
        or DuckDB compares them with those that it has: of both no more is in this process than what differs.

        Args:
            result: what it is to hold.
            batch: the batch that asks; see `Intent.batch`.

        Raises:
            FlowError: two rows have the same keys.
        """
        if isinstance(result, Few):
            if Input.at(self.target.place, self.target.version).is_at_most(FEW):
                with scratch.connection() as connection:
                    connection.register("held", self.target.held(self.columns))
                    changes = self.difference(connection, result.rows.cast(self.columns))
                return changes, len(changes)
            result = result.frame
        with scratch.connection(scratch.MANY) as connection:
            files = self.target.write(result, f"{batch}-whole")
            load(connection, "new", self.columns, [str(self.target.place.path / file) for file in files])
            if not self.target.files():
                self._are_told_apart(connection)
                return files, self.target.rows(files)
            load(connection, "held", self.columns, self.target.files())
            changes = self.difference(connection)
        self.target.forget(files)
        return changes, len(changes)

    def change(self, target: Target, rows: pa.Table, identity: Identity) -> int:
        """Commit a difference; the new version.

        Raises:
            CommitError: the table is not at the version it was left at: another writer was here.
        """
        if _HERE not in rows.schema.names:
            return target.change(rows, self.keys, identity)
        there, within, files = rows.filter(rows[_HERE]), None, None
        if not len(there):
            return target.insert(rows.select(self.columns.names), identity)
        if target.over:
            within = pruning.not_over(target.over, there[_UNTIL])
        if FILE in rows.schema.names:
            files = pc.unique(there[FILE]).to_pylist()
        rows = rows.select([*self.columns.names, GONE])
        return target.change(rows, self.keys, identity, within, files)

    def difference(
        self, connection: duckdb.DuckDBPyConnection, new: pa.Table | None = None, *, placed: bool = False
    ) -> pa.Table:
        """What has to change in the rows `held`, for them to be the rows `new`: the table's columns, whether
        a row goes, and whether it is there.

        Args:
            connection: where the rows `held` are.
            new: these rows; None: the connection has them, too.
            placed: whether `held` says of its rows, in `FILE`, where they stand; what changes does, then.

        Raises:
            FlowError: two rows have the same keys.
        """
        if new is not None:
            scratch.give(connection, "new", new)
        self._are_told_apart(connection, new)
        on_same = f"ON {same('new', 'old', map(quoted, self.keys))}"
        columns = [quoted(name) for name in self.columns.names]
        known = {_HERE: pa.field(_HERE, pa.bool_())}
        if over := self.target.over:
            known[quoted(over)] = pa.field(_UNTIL, self.columns.field(over).type)
        if placed:
            known[FILE] = pa.field(FILE, pa.string())
        of_old = ", ".join(f"old.{value} AS {field.name}" for value, field in known.items())
        gone = f"new.{_COMES} IS NULL"
        values = ", ".join(
            f"CASE WHEN {gone} THEN old.{name} ELSE new.{name} END AS {name}" for name in columns
        )
        changes = database.table(
            connection,
            f"SELECT {values}, {gone} AS {GONE}, {of_old} FROM (SELECT *, true AS {_COMES} FROM new) new "
            f"FULL JOIN (SELECT *, true AS {_HERE} FROM held) old {on_same} "
            f"WHERE {gone} OR old.{_HERE} IS NULL OR {differ('new', 'old', columns)}",
        )
        return changes.cast(pa.schema([*self.columns, pa.field(GONE, pa.bool_()), *known.values()]))

    def _are_told_apart(self, connection: duckdb.DuckDBPyConnection, new: pa.Table | None = None) -> None:
        """Check that no two of the rows `new` have the same keys."""
        kinds = [self.columns.field(key).type for key in self.keys]
        by_value = kinds and all(map(stored.is_told_apart, kinds))
        if new is not None and by_value and _groups(new, self.keys) == len(new):
            return
        keys = ", ".join(map(quoted, self.keys))
        ((twice,),) = connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM new GROUP BY {keys} HAVING count(*) > 1)"
        ).fetchall()
        if twice:
            raise FlowError(
                f"{self.where} has {twice} keys that several rows share ({', '.join(self.keys)})",
                code="KEYS_SHARED",
                where=self.where,
                hint="say in headwater.keys what tells its rows apart",
            )


def _groups(rows: pa.Table, keys: Sequence[str]) -> int:
    """How many different keys rows have: in a tenth of the time that DuckDB takes for few of them."""
    return len(rows.group_by([*keys], use_threads=False).aggregate([]))
