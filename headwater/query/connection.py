"""What a notebook reads the lake by: DuckDB's connection, as far as it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import duckdb

from headwater.common import database
from headwater.errors import QueryError
from headwater.query import on_duckdb, statements
from headwater.query.sources import Source, Sources

# What of DuckDB's connection gives the rows of the last query.
_GIVES = {"description", "df", "fetch_df", "fetch_df_chunk", "fetchall", "fetchdf", "fetchmany", "fetchnumpy"}
_GIVES |= {"fetchone", "pl", "to_arrow_reader", "to_arrow_table"}


class Connection:
    """A locked DuckDB with a view for each table of the lake and each reference table that a query names.

    It takes one SELECT, DESCRIBE, SUMMARIZE or EXPLAIN at a time, whose rows are then fetched as from
    DuckDB's own connection: `fetchall`, `fetchone`, `df`, `pl`, `to_arrow_table` and others.

    Args:
        sources: the tables.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._connection = on_duckdb.open_views(sources)
        self._viewed: dict[str, Source] = {}
        self._result: duckdb.DuckDBPyRelation | duckdb.DuckDBPyConnection | None = None

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> Self:
        """Run one SELECT; its rows are fetched from what is returned.

        Raises:
            QueryError: it is no SELECT, or reaches for something else than tables of the lake.
            duckdb.Error: DuckDB can't do it.
        """
        statement, named = statements.checked(self._connection, self._sources, sql)
        for table in named:
            if not table.is_delta and table.name not in self._viewed:
                table.csv_columns()  # what is wrong with it is said at once
        self._view(named or self._sources.all)
        if "union" in sql.lower():
            self._result = database.result(self._connection, statement, parameters)
        else:  # gives rows as they are fetched
            self._result = self._connection.execute(statement, parameters)
        return self

    sql = execute

    def _view(self, tables: Sequence[Source]) -> None:
        """Make the views of these tables that are not there yet, or are of a generation that was swapped."""
        new = [each for each in tables if self._viewed.get(each.name) != each]
        broken = on_duckdb.make_views(self._connection, new)
        self._viewed.update({each.name: each for each in new if each not in broken})

    def close(self) -> None:
        """Close it: nothing of it is left."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name not in _GIVES:
            raise AttributeError(
                f"headwater.connect() only reads: it has no {name}, but execute and fetchall"
            )
        if self._result is None:
            raise QueryError("no query was run yet", code="QUERY_FAILED", hint="execute one first")
        return getattr(self._result, "fetchdf" if name == "fetch_df" else name)
