"""Tables as queries see them, read again and again."""

from __future__ import annotations

from pathlib import Path

import duckdb

from headwater import query
from headwater.errors import QueryError
from headwater.storage.lake import Lake, Place
from headwater.testing.rows import Rows


class Reader:
    """Queries of one project; a connection (half a second) is kept as long as the catalog says the same.

    Args:
        root: the project.
        env: the environment.
    """

    def __init__(self, root: Path, env: str) -> None:
        self._root, self._env = root, env
        self._places: dict[str, Place] = {}
        self._connection: query.Connection | None = None

    def rows(self, sql: str, lake: Lake) -> Rows:
        """The rows of a query, in an order of their own.

        Raises:
            QueryError: it can't be done.
        """
        places = dict(lake.places())
        if self._connection is None or places != self._places:
            self._connection, self._places = query.connect(self._root, env=self._env), places
        try:
            found = self._connection.execute(sql)
            return Rows((str(column[0]) for column in found.description or ()), found.fetchall())
        except (duckdb.Error, QueryError):  # a table has got columns since; or it says what is wrong
            self._connection = None
            return Rows.of(query.run(sql, project=self._root, env=self._env))
