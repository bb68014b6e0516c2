"""Ad-hoc SQL over the lake, by DuckDB (the default) or Spark: the same names, the same results.

Every table is a view under its own name, `<layer>.<name>`, without the column in which partial results
are kept. DuckDB runs locked down and reads the lake and the reference tables, nothing else; Spark runs
queries, no other statement, but it is no sandbox: it can do what the project's own code can do.

Nothing here writes to a table or runs a flow; how far flows have come is read from the tables' logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headwater.query import on_duckdb, sources
from headwater.query.connection import Connection
from headwater.query.result import Result, Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Connection", "Engine", "Result", "Rows", "connect", "rows", "run", "spark"]

Engine = Literal["duckdb", "spark"]


def run(
    sql: str,
    *,
    project: Path | None = None,
    env: str = "local",
    engine: Engine = "duckdb",
    at: str | None = None,
    as_of: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> Result:
    """The result of one query, all of it as Python's values; a large one is better fetched: see `rows`.

    Args:
        sql: one SELECT-like statement in the engine's dialect; `$name` stands for a parameter.
        project: the project's folder, or one below it (default: the current one).
        env: the environment.
        engine: `duckdb` or `spark`.
        at: read the tables as they were: a version (of the one table that the query names) or an ISO 8601
            time (UTC unless it names a zone; each table's newest commit not after it).
        as_of: read tables that keep the history of their rows as these were: a value of the sequence, a
            whole number or an ISO 8601 time.
        params: the parameters' values.

    Raises:
        QueryError: an unknown table, a statement that is no query, a wrong parameter, or no such past.
        HeadwaterError: there is no project here, or its configuration is not valid.
    """
    with rows(sql, project=project, env=env, engine=engine, at=at, as_of=as_of, params=params) as found:
        return found.all()


@contextmanager
def rows(
    sql: str,
    *,
    project: Path | None = None,
    env: str = "local",
    engine: Engine = "duckdb",
    at: str | None = None,
    as_of: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> Iterator[Rows]:
    """The rows of one query, to be fetched within the `with` block; see `run`."""
    found = sources.of_project(project, env)
    if engine == "spark":
        from headwater.query import on_spark

        yield on_spark.rows(found, sql, at=at, as_of=as_of, params=params or {})
    else:
        with on_duckdb.rows(found, sql, at=at, as_of=as_of, params=params or {}) as computed:
            yield computed


def connect(project: Path | None = None, *, env: str = "local") -> Connection:
    """A locked DuckDB connection with a view for every table of the lake, and every reference table.

    Each query reads the tables' newest versions, of the generations that are live then. Like `run`, it takes
    one SELECT at a time.

    Raises:
        HeadwaterError: there is no project here, or its configuration is not valid.
    """
    return Connection(sources.of_project(project, env))


def spark(project: Path | None = None, *, env: str = "local") -> SparkSession:
    """The Spark session, with a view for every table of the lake, and every reference table.

    Raises:
        HeadwaterError: there is no project here, or its configuration is not valid.
    """
    from headwater.query import on_spark

    return on_spark.session(sources.of_project(project, env))
