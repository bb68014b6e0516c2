"""What DuckDB is given to run: one statement that reads tables of the lake, and nothing else.

A SELECT is what DuckDB's own parser calls so: DESCRIBE, SUMMARIZE and SHOW as well. An EXPLAIN is of such a
SELECT. The lock (`headwater.query.on_duckdb`) would let through a COPY into the lake, and does not hold the
Delta extension, which opens addresses by itself: no table function is called but those that reach nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb

from headwater.errors import QueryError
from headwater.query.sources import Source, Sources

# Table functions that make rows of what they are given, or tell what is in this DuckDB.
_FUNCTIONS = {"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"}
_FUNCTIONS |= {"pragma_table_info", "pragma_version", "duckdb_columns", "duckdb_functions", "duckdb_schemas"}
_FUNCTIONS |= {"duckdb_settings", "duckdb_tables", "duckdb_types", "duckdb_views"}

_EXPLAIN = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(EXPLAIN(?:\s+ANALYZE)?)\b(.*)", re.IGNORECASE | re.DOTALL
)

_COLUMNS = re.compile(r"\s*SHOW\s+COLUMNS\s+(?:FROM|IN)\s+(.*)", re.IGNORECASE | re.DOTALL)


def checked(
    connection: duckdb.DuckDBPyConnection, sources: Sources, sql: str
) -> tuple[duckdb.Statement, list[Source]]:
    """The one SELECT that `sql` is, or the EXPLAIN of one, and the tables that it names.

    SHOW TABLES lists the tables of the lake and the reference tables, as `ls` names them; SHOW COLUMNS FROM a
    table, as other databases have it, is DESCRIBE.

    Raises:
        QueryError: it is none, or reaches for something else than tables of the lake.
    """
    explained = _EXPLAIN.fullmatch(sql)
    if explained is not None:
        _, named = checked(connection, sources, explained[2])
        return connection.extract_statements(f"{explained[1]} {explained[2]}")[0], named
    columns = _COLUMNS.fullmatch(sql)
    sql = f"DESCRIBE {columns[1]}" if columns is not None else sql
    statement = _one_statement(connection, sql)
    tree = _tree(connection, sql)
    if _lists_tables(tree):
        names = ", ".join(literal(name) for name in [*sources.tables, *sources.references])
        return connection.extract_statements(f"SELECT unnest([{names}]::VARCHAR[]) AS name")[0], []
    calls = [node["function"] for node in _objects(tree) if node.get("type") == "TABLE_FUNCTION"]
    if refused := sorted({call["function_name"] for call in calls} - _FUNCTIONS):
        raise QueryError(
            f"queries read tables of the lake: {', '.join(refused)} is refused",
            code="TABLE_FUNCTION_REFUSED",
            hint="name the table, as in gold.x; bring other data into the lake as a reference table",
        )
    return statement, sources.named(_tables(connection, tree))


def _one_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as e:
        raise QueryError(reason(e), code="QUERY_FAILED") from None
    if len(statements) != 1:
        count = len(statements) or "none"
        raise QueryError(
            f"a query is one SELECT statement, and this has {count}",
            code="QUERY_NOT_ONE_SELECT",
            hint="write one",
        )
    kind = statements[0].type
    if kind != duckdb.StatementType.SELECT:
        raise QueryError(
            f"queries only read: {kind.name} is refused", code="QUERY_NOT_ONE_SELECT", hint="write a SELECT"
        )
    return statements[0]


def _tree(connection: duckdb.DuckDBPyConnection, sql: str) -> Any:
    """The query as DuckDB's parser sees it. PRAGMA and CALL pass as SELECT statements, but have no tree."""
    # The text stands in it, since for a parameter DuckDB imports pandas (0.2 s).
    row = connection.execute(f"SELECT json_serialize_sql({literal(sql)})").fetchone()
    assert row is not None
    tree = json.loads(row[0])
    if tree["error"]:
        raise QueryError(
            "queries only read: this is no SELECT", code="QUERY_NOT_ONE_SELECT", hint="write one"
        )
    return tree


def _lists_tables(tree: Any) -> bool:
    """Whether it is SHOW TABLES, which to DuckDB means those of one schema, in which there are none."""
    source = tree["statements"][0]["node"].get("from_table", {})
    return (source.get("type"), source.get("table_name")) == ("SHOW_REF", '"tables"')


def _tables(connection: duckdb.DuckDBPyConnection, tree: Any) -> Iterator[str]:
    """The names of tables in a parsed statement: not those of its WITH clauses, nor of DuckDB's own views."""
    own = connection.execute("SELECT schema_name, view_name FROM duckdb_views() WHERE internal").fetchall()
    schemas, names = {schema.lower() for schema, _ in own} - {"main"}, {name.lower() for _, name in own}
    nodes = list(_objects(tree))
    ctes = {entry["key"].lower() for node in nodes for entry in (node.get("cte_map") or {}).get("map", ())}
    for node in nodes:
        if node.get("type") != "BASE_TABLE" or node.get("schema_name", "").lower() in schemas:
            continue
        name = node["table_name"]
        if node.get("schema_name"):
            yield f"{node['schema_name']}.{name}"
        elif name.lower() not in ctes | names:
            yield name


def _objects(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    children: Sequence[Any] = (
        list(tree.values()) if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    )
    for child in children:
        yield from _objects(child)


def reason(error: duckdb.Error) -> str:
    """DuckDB's message in one line, without its drawing of the place, and what to do."""
    said, _, place = str(error).partition("\n\nLINE ")
    text = " ".join(said.split())
    if isinstance(error, duckdb.ParserException) and "syntax error" in text and place:
        line = place.partition(":")[0]
        return f'{text} (line {line}); a name that is a word of SQL is written in double quotes, as "at"'
    if isinstance(error, duckdb.PermissionException):
        return f"{text}; a query reads the tables of the lake and nothing else: name them, as in gold.x"
    if isinstance(error, duckdb.OutOfMemoryException):
        return f"{text}; select fewer rows or columns, or use --engine spark"
    return text


def literal(value: object) -> str:
    """A text as DuckDB's SQL quotes it."""
    return "'" + str(value).replace("'", "''") + "'"
