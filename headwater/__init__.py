"""Headwater: a lakehouse kappa pipeline on Spark and Delta.

A project's files import this module for the words they declare with: `topic`, `files`, `table`, `json`,
`materialized_view`, `auto_cdc`, `auto_cdc_from_snapshot`, `debezium`, `process`, `lookup`, `from_postgres`,
`alert`, `kafka_sink`, `postgres_sink`, `opensearch_sink`, `sink`; and for `cumulative_windows`. A test
imports it for `drive`, a notebook for `connect` (DuckDB), `session` (Spark) and `as_of`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.project.definitions import (
    alert,
    auto_cdc,
    auto_cdc_from_snapshot,
    debezium,
    files,
    from_postgres,
    json,
    kafka_sink,
    lookup,
    materialized_view,
    opensearch_sink,
    postgres_sink,
    process,
    sink,
    table,
    topic,
)
from headwater.project.drive import drive
from headwater.project.process import Keyed, Row

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import Column, SparkSession

    from headwater.query import Connection

__all__ = [
    "Keyed",
    "Row",
    "alert",
    "as_of",
    "auto_cdc",
    "auto_cdc_from_snapshot",
    "connect",
    "cumulative_windows",
    "debezium",
    "drive",
    "files",
    "from_postgres",
    "json",
    "kafka_sink",
    "lookup",
    "materialized_view",
    "opensearch_sink",
    "postgres_sink",
    "process",
    "session",
    "sink",
    "table",
    "topic",
]


def as_of(table: str, time: datetime | int | str) -> str:
    """A relation of the rows of a table with a history that were valid at a time, to be put into a query of
    `connect()` or `session()`: `f"SELECT * FROM {hw.as_of('silver.customers', '2026-05-01')} c JOIN …"`.

    Args:
        table: `<layer>.<name>`, a table with `__START_AT` and `__END_AT`.
        time: a value of its sequence; a time without a zone is UTC.

    Raises:
        QueryError: that is no name of a table, or no value of a sequence.
    """
    from headwater.query.past import as_of

    return as_of(table, time)


def connect(project: Path | None = None, *, env: str = "local") -> Connection:
    """A DuckDB connection that has every table of the lake as a view under its own name.

    It takes one SELECT at a time, `connect().execute(sql).df()`, and reaches the lake and the reference
    tables and nothing else; its settings are locked.

    Raises:
        HeadwaterError: there is no project here, or its configuration is not valid.
    """
    from headwater.query import connect

    return connect(project, env=env)


def cumulative_windows(column: str, *, size: str, step: str) -> Column:
    """The windows that begin together, grow by `step` up to `size`, and hold an instant: an ARRAY to explode.

    See `headwater.project.windows`.
    """
    from headwater.project.windows import cumulative_windows

    return cumulative_windows(column, size=size, step=step)


def session(project: Path | None = None, *, env: str = "local") -> SparkSession:
    """The Spark session, with every table of the lake as a view under its own name.

    Raises:
        HeadwaterError: there is no project here, or its configuration is not valid.
    """
    from headwater.query import spark

    return spark(project, env=env)
