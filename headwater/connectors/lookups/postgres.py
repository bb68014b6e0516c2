"""A lookup's answers from a table in PostgreSQL: one query for the keys of one call.

https://www.postgresql.org/docs/current/functions-array.html (`unnest` of several arrays)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.rows import dict_row
from psycopg.types.datetime import DateLoader, TimestampLoader, TimestamptzLoader

from headwater.connectors import postgres
from headwater.connectors.postgres_types import column_type
from headwater.errors import FlowError, LookupUnavailable, Where
from headwater.project.conf import PostgresOptions

_PATIENCE = 60.0  # seconds that one call may take


@dataclass(frozen=True)
class _Beyond:
    """A time that PostgreSQL has, and Python has not, as PostgreSQL writes it."""

    text: str


def _loader(within: type[Loader]) -> type[Loader]:
    """What reads times as another does, and those that Python has not as `_Beyond`."""

    class Times(within):  # type: ignore[misc, valid-type]
        def load(self, data: Buffer) -> Any:
            try:
                return super().load(data)
            except psycopg.DataError:
                return _Beyond(bytes(data).decode())

    return Times


_LOADERS = {
    "date": _loader(DateLoader),
    "timestamp": _loader(TimestampLoader),
    "timestamptz": _loader(TimestamptzLoader),
}


def _beyond(value: Any) -> _Beyond | None:
    """Such a time in a value of a row; None: it has none."""
    if isinstance(value, list):
        return next(filter(None, map(_beyond, value)), None)
    return value if isinstance(value, _Beyond) else None


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
            sql.SQL(", ").join(
                sql.SQL(f"${number}::{column_type(kind)}[]") for number, kind in enumerate(keys.values(), 1)
            ),
            sql.SQL(", ").join(map(sql.Identifier, keys)),
            sql.SQL(" AND ").join(same),
        )

    def __call__(self, keys: list[dict[str, Any]]) -> Iterable[Mapping[str, Any]]:
        """The rows of these keys.

        Raises:
            LookupUnavailable: the server can't be reached, or does not answer.
            FlowError: it refuses us, has no such table or column, or a time that Python has not.
        """
        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(
                    autocommit=True,
                    row_factory=dict_row,
                    cursor_factory=psycopg.RawCursor,  # a name may have the % of the others' placeholders
                    **self._options,  # type: ignore[arg-type]
                )
                for kind, loader in _LOADERS.items():
                    self._connection.adapters.register_loader(kind, loader)
            # PostgreSQL has no text with NUL, so no row of such a key.
            keys = [key for key in keys if not any("\0" in str(value) for value in key.values())]
            asked = [[key[name] for key in keys] for name in self._keys]
            with postgres.answering(self._connection, _PATIENCE):
                rows = self._connection.execute(self._query, asked).fetchall()
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
        for name, value in chain.from_iterable(row.items() for row in rows):
            if (beyond := _beyond(value)) is not None:
                raise FlowError(
                    f"{self._where} asks PostgreSQL for {self._table}: its column {name} has {beyond.text}, "
                    "and a time is of the years 1 to 9999",
                    code="LOOKUP_ANSWER_INVALID",
                    where=self._where,
                    hint=f"ask a view of {self._table} that has NULL there, or such a time",
                )
        return rows

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
