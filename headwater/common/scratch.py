"""DuckDB for one computation each: to open a database takes 10 ms, to connect to one half a ms.

So this process has two for all its own computations, within the limits of `headwater.common.database`: one
whose threads share what is computed of many rows, and one that computes in the thread that asks. To hand few
rows from thread to thread takes a quarter of what is done with them, and flows that work at once have a
core each as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache

import duckdb
import pyarrow as pa

from headwater.common import database
from headwater.common.database import Limits

MANY = 1 << 26  # bytes, which several threads are to read
_LOCK = threading.Lock()
_open: dict[Limits, duckdb.DuckDBPyConnection] = {}

FLOAT_DIGITS = 9  # sums of DOUBLE depend on the order of addition in their last digits
# Averages often lie half-way between two decimals, where the last digit decides which way they are rounded.
OFF_TIES = "(1 + 3.14159e-10)"


@contextmanager
def connection(size: int = 0) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection of its own: what is registered and made temporary in it is gone with it; times are UTC.

    Args:
        size: how many bytes it may have to read; `MANY` where that is not known.
    """
    with _LOCK:
        made = _database(many=size >= MANY).cursor()
    with made:
        yield made


@lru_cache
def kinds(columns: pa.Schema) -> dict[str, str]:
    """{column → its type in DuckDB}."""
    with connection() as made:
        found = made.from_arrow(columns.empty_table())
        return dict(zip(found.columns, map(str, found.types), strict=True))


def give(connection: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    """Let a connection read rows, of which a query may compare floating-point columns.

    DuckDB leaves comparisons of what Arrow holds to Arrow, to which NaN is not greater than other numbers: so
    it gets such columns as something that it computes, minus minus their values; and structs of such as a
    table of its own.
    """
    if not any(map(_has_floats, rows.schema.types)):
        connection.register(name, rows)
        return
    given = f"{name}_given"
    connection.register(given, rows)
    plain = [field.name for field in rows.schema if pa.types.is_floating(field.type)]
    if len(plain) < sum(map(_has_floats, rows.schema.types)):
        connection.execute(f"CREATE TEMP TABLE {quoted(name)} AS FROM {quoted(given)}")
        return
    computed = ", ".join(f"-(-{quoted(column)}) AS {quoted(column)}" for column in plain)
    connection.execute(
        f"CREATE TEMP VIEW {quoted(name)} AS SELECT * REPLACE ({computed}) FROM {quoted(given)}"
    )


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_floats(field.type) for field in kind)
    return bool(pa.types.is_floating(kind))


def quoted(name: str) -> str:
    """A column's name as DuckDB reads it whole."""
    return '"' + name.replace('"', '""') + '"'


def comparable(column: str, kind: pa.DataType) -> str:
    """A column as two computations of it are compared: doubles by so many digits, all else as it is."""
    name = quoted(column)
    if not pa.types.is_floating(kind):
        return name
    digits = f"{FLOAT_DIGITS} - 1 - CAST(floor(log10(abs({name}))) AS INT)"
    rounded = f"round({name} * {OFF_TIES}, {digits})"
    return f"CASE WHEN isfinite({name}) AND {name} <> 0 THEN {rounded} ELSE {name} END AS {name}"


def parquet(connection: duckdb.DuckDBPyConnection, columns: pa.Schema, files: str = "files") -> str:
    """SQL that reads Parquet files which were written before some of the columns were added.

    Args:
        connection: where it will be executed.
        columns: those to read; NULL where a file has them not.
        files: the parameter that holds the files' paths.
    """
    connection.register(f"no_{files}", columns.empty_table())
    read = f"read_parquet(${files}, hive_partitioning = false, union_by_name = true)"
    return f"(FROM no_{files} UNION ALL BY NAME FROM {read})"


def _database(*, many: bool) -> duckdb.DuckDBPyConnection:
    """One of the two of this process; other ones once the limits are others."""
    limits = database.limits()
    alone = replace(limits, threads=1)
    wanted = limits if many else alone
    if wanted not in _open:
        for other in _open.keys() - {limits, alone}:
            del _open[other]
        made = database.opened(wanted)
        made.execute("SET GLOBAL TimeZone = 'UTC'")  # of each connection
        _open[wanted] = made
    return _open[wanted]
