"""A table in PostgreSQL 15 or later, each change once.

Rows are copied into a temporary table and merged from there (`ON CONFLICT`) in one transaction, which also
writes down which version of the table they are of, in `headwater_sinks` beside it. So a batch that comes
again, after a kill on either side, changes nothing; and readers see whole versions.

https://www.postgresql.org/docs/15/sql-insert.html#SQL-ON-CONFLICT
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql

from headwater.connectors import postgres
from headwater.connectors.postgres_types import column_type, takes
from headwater.connectors.sinks import PROGRESS, Changes, Position, Published, Sink
from headwater.connectors.sinks.postgres_batch import Batch
from headwater.errors import FlowError, SinkUnavailable
from headwater.project.conf import PostgresOptions

OLDEST = 150000  # as `server_version` says it: UNIQUE NULLS NOT DISTINCT, since keys may be NULL
LOCK_TIMEOUT = "30s"  # for a lock that another one holds, unless the connection says another
_LOCK = 4_872_231  # of the one who makes a table


class PostgresTable(Sink):
    """See `headwater.connectors.sinks.Sink`.

    Args:
        connection: options in libpq's words.
        into: the table, `schema.table`; made where it is missing.
    """

    atomic = True
    checks_keys = True

    def __init__(self, connection: PostgresOptions, into: str) -> None:
        self._options = {**postgres.DEFAULTS, **connection}
        self._schema, _, self._name = into.rpartition(".")
        self._schema = self._schema or "public"
        self._into = sql.Identifier(self._schema, self._name)
        self._progress = sql.Identifier(self._schema, PROGRESS)
        self._connection: psycopg.Connection[Any] | None = None

    def open(self, table: Published) -> Position:
        """Connect, make or check the table; the version that it has, (0, -1) where it has none.

        Raises:
            SinkUnavailable: the server can't be reached.
            FlowError: it refuses us, is too old, or the table there does not fit.
        """
        self._table = table
        self._columns = {field.name: column_type(field.type) for field in table.columns}
        with self._errors():
            self._connection = psycopg.connect(
                cursor_factory=psycopg.RawCursor,  # a name may have the % of the others' placeholders
                **self._options,  # type: ignore[arg-type]
            )
            version = self._connection.info.server_version
            if version < OLDEST:
                raise FlowError(
                    f"{table.sink}: the server is PostgreSQL {version // 10000}",
                    code="SERVER_NOT_SUPPORTED",
                    table=table.name,
                    hint="15 or later is needed",
                )
            with self._transaction(self._connection) as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock($1)", [_LOCK])
                self._prepare(cursor)
                return self._position(cursor)

    def write(self, changes: Changes) -> None:
        """Merge the batch, and write down its version, in one transaction.

        Raises:
            SinkUnavailable: the connection is gone; the transaction is rolled back, or it was committed: the
                next `open` says which.
            FlowError: the server refuses a row.
        """
        connection = self._connection
        assert connection is not None
        with self._errors(), self._transaction(connection) as cursor:
            have = self._position(cursor, lock=True)
            if have < changes.last:
                Batch(cursor, self._into, self._table, self._columns).merge(changes, have)
                self._keep(cursor, changes.last)

    def close(self) -> None:
        """End the connection; what was not committed is rolled back."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    @staticmethod
    @contextmanager
    def _transaction(connection: psycopg.Connection[Any]) -> Iterator[psycopg.Cursor[Any]]:
        """A transaction that does not wait for a lock for ever."""
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT set_config('lock_timeout', $1, true) WHERE current_setting('lock_timeout') = '0'",
                [LOCK_TIMEOUT],
            )
            yield cursor

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of the client in our words: none says a value of a row, or how we connect."""
        try:
            yield
        except psycopg.Error as e:
            said = postgres.said(e)
            if postgres.may_pass(e):
                raise SinkUnavailable(
                    f"{self._table.sink}: {said}", code="SINK_UNAVAILABLE", table=self._table.name
                ) from None
            raise FlowError(
                f"{self._table.sink}: PostgreSQL refuses {self._schema}.{self._name}: {said}",
                code="SINK_REFUSES",
                table=self._table.name,
                hint="mend what it names, then run again",
            ) from None

    def _prepare(self, cursor: psycopg.Cursor[Any]) -> None:
        """Have the table, its unique index and the table of positions."""
        if not self._is_there(cursor, "to_regnamespace", sql.Identifier(self._schema)):
            cursor.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self._schema)))
        if not self._is_there(cursor, "to_regclass", self._progress):
            cursor.execute(
                sql.SQL(
                    "CREATE TABLE IF NOT EXISTS {} (sink text PRIMARY KEY, table_id text NOT NULL, "
                    "generation integer NOT NULL, version bigint NOT NULL, written_at timestamptz NOT NULL, "
                    "committed bigint)"
                ).format(self._progress)
            )
        elif "committed" not in self._found(cursor, self._progress):
            self._add_committed(cursor)
        found = self._found(cursor, self._into)
        if not found:
            self._create(cursor)
            return
        for name, kind in self._columns.items():
            have = found.get(name)
            if have is None or not takes(have, kind):
                raise self._wrong(f"its column {name} is {have or 'missing'}, not {kind}")
        if self._table.keys and not self._is_unique(cursor):
            raise self._wrong(
                "no unique index (NULLS NOT DISTINCT, or on columns that are NOT NULL) is on exactly "
                + ", ".join(self._table.keys)
            )

    def _add_committed(self, cursor: psycopg.Cursor[Any]) -> None:
        """Have the column in a table of positions that was made before there was one."""
        alter = sql.SQL("ALTER TABLE {} ADD COLUMN committed bigint").format(self._progress)
        try:
            cursor.execute(alter)
        except psycopg.errors.InsufficientPrivilege:
            raise FlowError(
                f"{self._table.sink}: {self._schema}.{PROGRESS} in PostgreSQL has no column committed",
                code="SINK_REFUSES",
                table=self._table.name,
                hint=f"let its owner say: {alter.as_string(cursor)}",
            ) from None

    @staticmethod
    def _is_there(cursor: psycopg.Cursor[Any], look: str, name: sql.Composable) -> bool:
        """Whether a schema or table is there: to make it if it is not takes a right even where it is."""
        cursor.execute(f"SELECT {look}($1) IS NOT NULL", [name.as_string(cursor)])
        found: tuple[bool] | None = cursor.fetchone()
        return found is not None and found[0]

    @staticmethod
    def _found(cursor: psycopg.Cursor[Any], name: sql.Composable) -> dict[str, str]:
        """{column → type} of a table that is there; empty where there is none."""
        cursor.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
            [name.as_string(cursor)],
        )
        return dict(cursor.fetchall())

    def _create(self, cursor: psycopg.Cursor[Any]) -> None:
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
            for name, kind in self._columns.items()
        ]
        parts = [*columns]
        if self._table.keys:
            keys = sql.SQL(", ").join(map(sql.Identifier, self._table.keys))
            parts.append(sql.SQL("UNIQUE NULLS NOT DISTINCT ({})").format(keys))
        cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(self._into, sql.SQL(", ").join(parts)))
        # What an earlier one had, which a person has removed, this one has not.
        cursor.execute(sql.SQL("DELETE FROM {} WHERE sink = $1").format(self._progress), [self._table.sink])

    def _is_unique(self, cursor: psycopg.Cursor[Any]) -> bool:
        """Whether a unique index is on exactly the table's keys, of which no two are equal, NULL or not."""
        cursor.execute(
            "SELECT array_agg(attname::text) FROM pg_index, "
            "unnest(indkey) WITH ORDINALITY AS place(number, nth) "
            "JOIN pg_attribute ON attrelid = to_regclass($1) AND attnum = place.number "
            "WHERE indrelid = to_regclass($1) AND indisunique AND indpred IS NULL AND indexprs IS NULL "
            "AND indisvalid AND indimmediate AND nth <= indnkeyatts "
            "GROUP BY indexrelid HAVING bool_and(indnullsnotdistinct OR attnotnull)",
            [self._into.as_string(cursor)],
        )
        return any(set(columns) == set(self._table.keys) for (columns,) in cursor.fetchall())

    def _position(self, cursor: psycopg.Cursor[Any], *, lock: bool = False) -> Position:
        cursor.execute(
            sql.SQL("SELECT table_id, generation, version, committed FROM {} WHERE sink = $1{}").format(
                self._progress, sql.SQL(" FOR UPDATE" if lock else "")
            ),
            [self._table.sink],
        )
        found = cursor.fetchone()
        if found is None:
            return Position(0, -1)
        table_id, *at = found
        if table_id != self._table.id:
            raise self._wrong(f"it holds rows of an earlier life of {self._table.name}")
        return Position(*at)

    def _keep(self, cursor: psycopg.Cursor[Any], at: Position) -> None:
        cursor.execute(
            sql.SQL(
                "INSERT INTO {} (sink, table_id, generation, version, committed, written_at) "
                "VALUES ($1, $2, $3, $4, $5, now()) ON CONFLICT (sink) DO UPDATE SET "
                "table_id = EXCLUDED.table_id, generation = EXCLUDED.generation, version = EXCLUDED.version, "
                "committed = EXCLUDED.committed, written_at = EXCLUDED.written_at"
            ).format(self._progress),
            [self._table.sink, self._table.id, at.generation, at.version, at.committed],
        )

    def _wrong(self, what: str) -> FlowError:
        named = f"{self._schema}.{self._name}"
        return FlowError(
            f"{self._table.sink}: the table {named} in PostgreSQL does not fit {self._table.name}: {what}",
            code="SINK_TARGET_DIFFERS",
            table=self._table.name,
            hint=f"mend it, or let it be made anew: DROP TABLE {named}",
        )
