"""DuckDB in memory, for one computation each: to open a database takes 10 ms, to connect to one half a ms."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import duckdb

_LOCK = threading.Lock()


@contextmanager
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection of its own: what is registered and made temporary in it is gone with it; times are UTC."""
    with _LOCK:
        made = _database().cursor()
    with made:
        made.execute("SET TimeZone = 'UTC'")
        yield made


def quoted(name: str) -> str:
    """A column's name as DuckDB reads it whole."""
    return '"' + name.replace('"', '""') + '"'


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()
