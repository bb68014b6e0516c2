"""Queries by DuckDB, locked down: the lake and the reference tables can be read, nothing else.

The order matters (https://duckdb.org/docs/stable/operations_manual/securing_duckdb/overview): load the
extension, name the folders, shut the rest out, set the limits, and lock all of that. What the lock would
let through, `headwater.query.statements` refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
from pyspark.sql.types import DataType, DecimalType

from headwater.common import database, interrupts
from headwater.errors import HeadwaterError, QueryError
from headwater.query import params as parameters
from headwater.query import past
from headwater.query.result import Rows
from headwater.query.sources import Source, Sources
from headwater.query.statements import checked, literal, reason
from headwater.storage import checksums
from headwater.storage.names import PARTIAL

_checked = False  # whether the signature of the Delta extension was checked in this process

_FETCHED = 1_000  # rows at once

_TYPES = {
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
    "binary": "BLOB",
}


def open_views(sources: Sources, tables: Iterable[Source] = ()) -> duckdb.DuckDBPyConnection:
    """A locked DuckDB with a view for each of `tables`.

    It is for the engine's own SQL; that of others goes through `checked` first.
    """
    connection = _locked(sources)
    make_views(connection, tables)
    return connection


@contextmanager
def rows(
    sources: Sources, sql: str, *, at: str | None, as_of: str | None, params: Mapping[str, Any]
) -> Iterator[Rows]:
    """The rows of one query, computed; see `headwater.query.rows`.

    Raises:
        QueryError: it is refused, or DuckDB can't do it.
        DamageError: DuckDB can't do it, and a file that it read is not what was written.
    """
    connection = _locked(sources)
    with interrupts.stopping(connection.interrupt), _ended(connection):
        statement, named = checked(connection, sources, sql)
        parameters.check(statement.named_parameters, params)
        versions, valid = past.versions(named, at), past.conditions(named, as_of)
        try:
            make_views(connection, named or sources.all, versions, alone=bool(named), valid=valid)
            found = database.result(connection, statement, dict(params) or None)
        except duckdb.Error as e:
            for table in named:
                if table.is_delta:
                    checksums.check(table.path, versions.get(table.name))
            raise QueryError(reason(e), code="QUERY_FAILED") from None
        fetched = _fetched(found)
        if statement.type == duckdb.StatementType.EXPLAIN:
            yield Rows(("plan",), ((line,) for _, plan in fetched for line in str(plan).splitlines()))
        else:
            yield Rows(tuple(str(column[0]) for column in found.description or ()), fetched)


def _fetched(found: duckdb.DuckDBPyRelation) -> Iterator[tuple[Any, ...]]:
    try:
        while some := found.fetchmany(_FETCHED):
            yield from some
    except duckdb.Error as e:
        raise QueryError(reason(e), code="QUERY_FAILED") from None


@contextmanager
def _ended(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Close it in the end. A statement that KeyboardInterrupt has left goes on, and closing waits for it."""
    try:
        yield
    finally:
        connection.interrupt()  # a connection that is being closed can't be interrupted any more
        connection.close()


def reader() -> duckdb.DuckDBPyConnection:
    """A DuckDB in memory that reads Delta tables, and tells the time in UTC.

    To check the Delta extension's signature DuckDB hashes its 80 MB, in 0.25 s: once in a process is enough.
    From then on others that nobody has signed could be loaded, too: where SQL is a user's, lock it.
    """
    global _checked
    connection = database.opened(
        database.limits(),
        autoload_known_extensions="false",
        autoinstall_known_extensions="false",
        allow_unsigned_extensions=_checked,
    )
    connection.execute(f"LOAD {literal(_extension())}")
    _checked = True
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _locked(sources: Sources) -> duckdb.DuckDBPyConnection:
    connection = reader()
    folders = ", ".join(literal(folder) for folder in (sources.conf.lake, sources.reference_folder))
    for statement in (
        f"SET allowed_directories = [{folders}]",
        "SET enable_external_access = false",
        "SET lock_configuration = true",
    ):
        connection.execute(statement)
    return connection


def _extension() -> Path:
    """The Delta extension, as its wheel brings it: signed, and not downloaded."""
    folder = Path(str(resources.files("duckdb_extension_delta"))) / "extensions"
    return next(folder.glob("*/delta.duckdb_extension"))


def make_views(
    connection: duckdb.DuckDBPyConnection,
    tables: Iterable[Source],
    versions: Mapping[str, int | None] = MappingProxyType({}),
    *,
    alone: bool = False,
    valid: Mapping[str, str] | None = None,
) -> list[Source]:
    """Make a view for each table, which costs a look at its log; of those of which some rows are `valid`, of
    these. The view of a broken table, or of a reference table that is, says what is wrong with it, to whoever
    reads it.

    Returns:
        Those that are broken.

    Raises:
        HeadwaterError: `alone`, so that no others are read, and one is broken.
    """
    broken = list[Source]()
    for table in tables:
        schema, name = (identifier(part) for part in table.name.split(".", 1))
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        try:
            rows = _select(table, versions.get(table.name))
            rows += f" WHERE {valid[table.name]}" if valid and table.name in valid else ""
        except HeadwaterError as e:
            if alone:
                raise
            rows = f"SELECT error({literal(e)}) AS broken"
            broken.append(table)
        connection.execute(f"CREATE OR REPLACE VIEW {schema}.{name} AS {rows}")
    return broken


def _select(table: Source, version: int | None) -> str:
    if not table.is_delta:
        columns = {f.name: _type(table, f.name, f.dataType) for f in table.csv_columns()}
        struct = ", ".join(f"{literal(name)}: {literal(kind)}" for name, kind in columns.items())
        options = f"header = true, auto_detect = false, delim = ',', quote = '\"', columns = {{{struct}}}"
        return f"SELECT * FROM read_csv({literal(table.path)}, {options})"
    which = "" if version is None else f", version => {version}"
    columns_ = f"* EXCLUDE ({PARTIAL})" if table.has_partial(version) else "*"
    return f"SELECT {columns_} FROM delta_scan({literal(table.path)}{which})"


def _type(table: Source, column: str, kind: DataType) -> str:
    name = kind.simpleString()
    if isinstance(kind, DecimalType):
        return name
    if name not in _TYPES:
        raise QueryError(
            f"{table.path}: column {column} is {name}, which DuckDB can't read from CSV",
            code="COLUMN_NOT_READABLE",
            table=table.name,
            file=table.path,
            hint="use Spark",
        )
    return _TYPES[name]


def identifier(name: str) -> str:
    """A name as DuckDB's SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'
