"""A batch of changes merged into a table of PostgreSQL: copied beside it, then upserted and deleted from it.

https://www.postgresql.org/docs/15/sql-insert.html#SQL-ON-CONFLICT
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from typing import Any, LiteralString

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from headwater.common import arrow
from headwater.connectors.postgres_types import sender
from headwater.connectors.sinks import CHANGE, DELETE, Changes, Position, Published

_NUMBER = "__number"
_BATCH, _NUMBERED, _CHANGE = map(sql.Identifier, ("headwater_batch", _NUMBER, CHANGE))


class Batch:
    """What one transaction does to a table.

    Args:
        cursor: of the transaction.
        into: the table.
        table: the one whose changes come.
        columns: {column → its type in PostgreSQL}.
    """

    def __init__(
        self, cursor: psycopg.Cursor[Any], into: sql.Identifier, table: Published, columns: Mapping[str, str]
    ) -> None:
        self._cursor, self._into, self._table, self._columns = cursor, into, table, columns
        self._names = sql.SQL(", ").join(map(sql.Identifier, columns))
        self._keys = sql.SQL(", ").join(map(sql.Identifier, table.keys))

    def merge(self, changes: Changes, after: Position) -> None:
        """Bring the table to what the last change of each key says; without keys, append.

        Args:
            changes: the batch.
            after: the version that the table has.
        """
        gone = self._copy(changes, after)
        if not self._table.keys:
            self._run(
                "INSERT INTO {} ({}) SELECT {} FROM {} WHERE NOT {} ORDER BY {}",
                *(self._into, self._names, self._names, _BATCH, _CHANGE, _NUMBERED),
            )
            return
        last = sql.SQL("SELECT DISTINCT ON ({}) * FROM {} ORDER BY {}, {} DESC").format(
            self._keys, _BATCH, self._keys, _NUMBERED
        )
        for null in gone:
            self._delete(last, null)
        self._upsert(last)

    def _copy(self, changes: Changes, after: Position) -> set[tuple[str, ...]]:
        """Send the changes into a temporary table, numbered in their order.

        Returns:
            Of the rows that are deleted, which of the keys are NULL: (of one row), (of another), …
        """
        self._run(
            "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS "
            "SELECT {}, NULL::boolean AS {}, NULL::bigint AS {} FROM {} WITH NO DATA",
            *(_BATCH, self._names, _CHANGE, _NUMBERED, self._into),
        )
        number, gone = 0, set[tuple[str, ...]]()
        texts = [sender(kind) for kind in self._columns.values()]
        with self._cursor.copy(sql.SQL("COPY {} FROM STDIN").format(_BATCH)) as copy:
            for _, piece in changes.pieces(self._table, after):
                columns = [arrow.values(piece[name]) for name in [*self._columns, CHANGE]]
                for *row, change in zip(*columns, strict=True):
                    values = [text(value) for text, value in zip(texts, row, strict=True)]
                    copy.write_row([*values, change == DELETE, number])
                    number += 1
                gone |= self._null_keys(piece)
        return gone

    def _null_keys(self, rows: pa.RecordBatch) -> set[tuple[str, ...]]:
        deleted = rows.filter(pc.equal(rows[CHANGE], DELETE))
        nulls = zip(*(deleted[key].is_null().to_pylist() for key in self._table.keys), strict=True)
        return {tuple(compress(self._table.keys, of_row)) for of_row in nulls}

    def _delete(self, last: sql.Composed, null: tuple[str, ...]) -> None:
        """Delete the rows of which just these keys are NULL: the index finds them so, but not by
        `IS NOT DISTINCT FROM`."""
        same = sql.SQL(" AND ").join(
            sql.SQL("t.{0} IS NULL AND s.{0} IS NULL" if key in null else "t.{0} = s.{0}").format(
                sql.Identifier(key)
            )
            for key in self._table.keys
        )
        self._run("DELETE FROM {} t USING ({}) s WHERE s.{} AND {}", self._into, last, _CHANGE, same)

    def _upsert(self, last: sql.Composed) -> None:
        others = [sql.Identifier(name) for name in self._columns if name not in self._table.keys]
        changed = sql.SQL(", ").join(sql.SQL("{} = EXCLUDED.{}").format(name, name) for name in others)
        then = sql.SQL("DO UPDATE SET {}").format(changed) if others else sql.SQL("DO NOTHING")
        self._run(
            "INSERT INTO {} ({}) SELECT {} FROM ({}) s WHERE NOT s.{} ON CONFLICT ({}) {}",
            *(self._into, self._names, self._names, last, _CHANGE, self._keys, then),
        )

    def _run(self, statement: LiteralString, *parts: sql.Composable) -> None:
        self._cursor.execute(sql.SQL(statement).format(*parts))
