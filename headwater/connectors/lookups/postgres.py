"""A lookup's answers from a table in PostgreSQL: one query for the keys of one call.

https://www.postgresql.org/docs/current/functions-array.html (`unnest` of several arrays)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import dict_row

from headwater.connectors import postgres
from headwater.connectors.postgres_types import column_type
from headwater.errors import FlowError, LookupUnavailable, Where
from headwater.project.conf import PostgresOptions

_PATIENCE = 60.0  # seconds that one call may take


class PostgresAsker:
    """Asks a table; the connection stays open from one call to the next.

    Args:
        where: where the lookup is declared.
        connection: options in libpq's words.
        table: `schema.table`.
        keys: {name → type} of the columns by which is asked.
        columns: the names of the others.
    """

    def __init__(
        self,
        where: Where,
        connection: PostgresOptions,
        table: str,
        keys: Mapping[str, pa.DataType],
        columns: Sequence[str],
    ) -> None:
        self._where, self._table, self._keys = where, table, [*keys]
        self._options = {**postgres.DEFAULTS, **connection}
        self._connection: psycopg.Connection[dict[str, Any]] | None = None

        def names(of: str, some: Sequence[str]) -> list[sql.Composed]:
            return [sql.SQL("{}.{}").format(sql.Identifier(of), sql.Identifier(name)) for name in some]

        same = [
            sql.SQL("{} = {}").format(*pair)
            for pair in zip(names("t", [*keys]), names("k", [*keys]), strict=True)
        ]
        self._query = sql.SQL("SELECT {} FROM {} t JOIN unnest({}) AS k({}) ON {}").format(
            sql.SQL(", ").join([*names("k", [*keys]), *names("t", columns)]),
            sql.Identifier(*table.split(".")),
            sql.SQL(", ").join(sql.SQL(f"%s::{column_type(kind)}[]") for kind in keys.values()),
            sql.SQL(", ").join(map(sql.Identifier, keys)),
            sql.SQL(" AND ").join(same),
        )

    def __call__(self, keys: list[dict[str, Any]]) -> Iterable[Mapping[str, Any]]:
        """The rows of these keys.

        Raises:
            LookupUnavailable: the server can't be reached, or does not answer.
            FlowError: it refuses us, or has no such table or column.
        """
        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(
                    autocommit=True,
                    row_factory=dict_row,
                    **self._options,  # type: ignore[arg-type]
                )
            # PostgreSQL has no text with NUL, so no row of such a key.
            keys = [key for key in keys if not any("\0" in str(value) for value in key.values())]
            asked = [[key[name] for key in keys] for name in self._keys]
            with postgres.answering(self._connection, _PATIENCE):
                return self._connection.execute(self._query, asked).fetchall()
        except psycopg.Error as e:
            self.close()
            why = f"{self._where} asks PostgreSQL for {self._table}: {postgres.said(e)}"
            if postgres.may_pass(e):
                raise LookupUnavailable(
                    why, code="LOOKUP_UNAVAILABLE", where=self._where, hint="it is asked again"
                ) from None
            raise FlowError(
                why, code="LOOKUP_REFUSED", where=self._where, hint="mend what it names, then run again"
            ) from None

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
