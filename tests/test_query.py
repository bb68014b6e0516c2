"""Queries: the names, the lock, the past, parameters and formats, by both engines."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from raising import raises_code
from typer.testing import CliRunner

from headwater import query
from headwater.cli import app
from headwater.errors import QueryError
from headwater.errors.codes import Code
from headwater.project.reference import Reference
from headwater.query import Result, Rows, params, result
from headwater.storage import log
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import Target

T0 = datetime(2026, 1, 1, tzinfo=UTC)
READINGS = pa.schema(
    [("host", pa.string()), ("usage", pa.float64()), ("event_time", pa.timestamp("us", tz="UTC"))]
)
WINDOWS = pa.schema(
    [
        ("host", pa.string()),
        ("avg_usage", pa.float64()),
        ("_partial", pa.struct([("avg_usage_sum", pa.float64()), ("avg_usage_count", pa.int64())])),
    ]
)
REJECTS = pa.schema([("value", pa.binary()), ("reason", pa.string())])

SILVER = """import headwater as hw

@hw.table(source="bronze.raw", decode=hw.json("host STRING, usage DOUBLE"))
def readings(raw):
    return raw
"""


def append(root: Path, name: str, rows: list[dict[str, Any]], schema: pa.Schema) -> int:
    """Commit rows to a table of the project's lake; the new version."""
    target = Target(Lake(root / ".headwater" / "lake").create(name, schema, properties={}))
    sequence = target.last(name) + 1
    folder = target.place.path / f"{sequence:012d}-test"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / "part.parquet")
    return target.append([f"{folder.name}/part.parquet"], Identity(name, 1, sequence, {}))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two versions of silver.readings, a gold table with partial results, and a reference."""
    root: Path = tmp_path_factory.mktemp("project")
    for folder in ("bronze", "silver", "gold", "queries", "conf/reference"):
        (root / folder).mkdir(parents=True)
    (root / "conf" / "local.yaml").write_text("kafka: embedded\n")
    (root / "conf" / "reference" / "hosts.csv").write_text("host,limit_at,since\na,90,2026-01-01\nb,,\n")
    (root / "conf" / "reference" / "hosts.ddl").write_text("host STRING, limit_at DOUBLE,\nsince DATE\n")
    (root / "bronze" / "raw.py").write_text("import headwater as hw\nraw = hw.topic('raw')\n")
    (root / "silver" / "readings.py").write_text(SILVER)
    (root / "queries" / "of_host.sql").write_text(
        "-- Readings of one host\n"
        "SELECT usage FROM silver.readings WHERE host = $host ORDER BY usage LIMIT $n\n"
    )
    append(root, "silver.readings", [reading("a", 1.5, 0), reading("b", 2.5, 1)], READINGS)
    append(root, "silver.readings", [reading("a", 3.5, 2)], READINGS)
    window = {"host": "a", "avg_usage": 2.5, "_partial": {"avg_usage_sum": 5.0, "avg_usage_count": 2}}
    append(root, "gold.windows", [window], WINDOWS)
    append(root, "quarantine.silver_readings", [{"value": b"\xff{", "reason": "not UTF-8"}], REJECTS)
    return root


def reading(host: str, usage: float, seconds: int) -> dict[str, Any]:
    return {"host": host, "usage": usage, "event_time": T0 + timedelta(seconds=seconds)}


@pytest.fixture(params=["duckdb", "spark"])
def ask(request: pytest.FixtureRequest, project: Path) -> Callable[..., Result]:
    """`query.run` on the project, by each engine."""
    if request.param == "spark":
        request.getfixturevalue("spark")

    def run(sql: str, **options: Any) -> Result:
        return query.run(sql, project=project, engine=request.param, **options)

    return run


def refusal(code: Code, project: Path, sql: str, **options: Any) -> str:
    with raises_code(code) as refused:
        query.run(sql, project=project, **options)
    return str(refused.value)


# The names


def test_tables_of_the_lake_are_views_by_their_names(ask: Callable[..., Result]) -> None:
    found = ask("SELECT host, usage, event_time FROM silver.readings ORDER BY usage")
    assert found.columns == ("host", "usage", "event_time")
    assert [row[:2] for row in found.rows] == [("a", 1.5), ("b", 2.5), ("a", 3.5)]
    assert found.rows[0][2] == T0 and found.rows[0][2].utcoffset() == timedelta(0)


def test_partial_results_are_not_seen(ask: Callable[..., Result]) -> None:
    assert ask("SELECT * FROM gold.windows") == Result(("host", "avg_usage"), [("a", 2.5)])


def test_quarantine_is_a_table(ask: Callable[..., Result]) -> None:
    assert ask("SELECT value, reason FROM quarantine.silver_readings").rows == [(b"\xff{", "not UTF-8")]


def test_reference_has_its_declared_types(ask: Callable[..., Result]) -> None:
    rows = ask("SELECT * FROM reference.hosts ORDER BY host").rows
    assert rows == [("a", 90.0, date(2026, 1, 1)), ("b", None, None)]


WORDS = 'k,text,more\n1,"say ""hi""",x\n2,"a, ""b"", c",\n3,"two\nlines",y\n4, spaced ,back\\slash\n'
FOUND = [(1, 'say "hi"', "x"), (2, 'a, "b", c', None), (3, "two\nlines", "y"), (4, " spaced ", "back\\slash")]


def test_quoted_fields_of_a_reference_are_what_they_say(
    ask: Callable[..., Result], project: Path, tmp_path: Path, spark: SparkSession
) -> None:
    file = project / "conf" / "reference" / "words.csv"
    try:
        file.write_bytes(WORDS.encode())
        file.with_suffix(".ddl").write_text("k BIGINT, text STRING, more STRING\n")
        assert ask("SELECT * FROM reference.words ORDER BY k").rows == FOUND
        table = Reference("reference.words", file)
        rows = table.read(spark, tmp_path, table.version(tmp_path, datetime.now(UTC)))
        assert sorted(map(tuple, rows.collect())) == FOUND  # as flows read it
    finally:
        file.unlink()
        file.with_suffix(".ddl").unlink()


def test_names_of_with_clauses_are_no_tables(ask: Callable[..., Result]) -> None:
    sql = """WITH x AS (SELECT host FROM silver.readings)
        SELECT count(*) AS n FROM x WHERE host IN (SELECT host FROM X)"""
    assert ask(sql).rows == [(3,)]


def test_unwritten_table_says_how_to_fill_it(ask: Callable[..., Result]) -> None:
    with raises_code(
        "TABLE_EMPTY",
        table="bronze.raw",
        match=r"bronze\.raw holds nothing yet; run: headwater run bronze\.raw --once",
    ):
        ask("SELECT * FROM bronze.raw")


@pytest.mark.parametrize("name", ["silver.reading", "readings"])
def test_unknown_table_lists_near_names(ask: Callable[..., Result], name: str) -> None:
    with raises_code("UNKNOWN_TABLE", match=rf"unknown table '{name}'; did you mean silver\.readings"):
        ask(f"SELECT * FROM {name}")


def test_header_that_is_not_the_declared_one_is_refused(project: Path) -> None:
    bad = project / "conf" / "reference" / "bad.csv"
    bad.write_text("b,a\n1,2\n")
    bad.with_suffix(".ddl").write_text("a INT, b INT")
    try:
        with raises_code("REFERENCE_HEADER_DIFFERS", file="bad.csv"):
            query.run("SELECT * FROM reference.bad", project=project)
    finally:
        bad.unlink()


# The lock


@pytest.mark.parametrize(
    ("sql", "code", "reason"),
    [
        ("SELECT * FROM read_csv('/etc/passwd')", "TABLE_FUNCTION_REFUSED", "read_csv is refused"),
        ("SELECT (SELECT count(*) FROM read_blob('/etc/passwd'))", "TABLE_FUNCTION_REFUSED", "read_blob"),
        ("SELECT * FROM delta_scan('https://127.0.0.1:9/x')", "TABLE_FUNCTION_REFUSED", "delta_scan"),
        ("WITH x AS (FROM delta_list_files('/outside')) FROM x", "TABLE_FUNCTION_REFUSED", "delta_list"),
        ("FROM query_table('{lake}/x.csv')", "TABLE_FUNCTION_REFUSED", "query_table"),
        ("FROM json_execute_serialized_sql('')", "TABLE_FUNCTION_REFUSED", "json_execute_serialized_sql"),
        ("SELECT * FROM '/etc/passwd'", "UNKNOWN_TABLE", "unknown table"),
        ("SELECT * FROM read_text('{root}/conf/local.yaml')", "TABLE_FUNCTION_REFUSED", "read_text"),
        ("SELECT * FROM glob('/etc/*')", "TABLE_FUNCTION_REFUSED", "glob"),
        ("COPY silver.readings TO '/tmp/out.csv'", "QUERY_NOT_ONE_SELECT", "COPY is refused"),
        ("COPY (SELECT 1) TO '{lake}/out.csv'", "QUERY_NOT_ONE_SELECT", "COPY is refused"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO '{lake}/out.csv'", "QUERY_NOT_ONE_SELECT", "COPY is refused"),
        ("/* */ explain analyze\nCREATE TABLE t AS SELECT 1", "QUERY_NOT_ONE_SELECT", "CREATE is refused"),
        (
            "-- one\nEXPLAIN ANALYZE SELECT 1; COPY (SELECT 1) TO '{lake}/out.csv'",
            "QUERY_NOT_ONE_SELECT",
            "has 2",
        ),
        ("EXPLAIN EXPLAIN ANALYZE COPY (SELECT 1) TO '{lake}/out.csv'", "QUERY_NOT_ONE_SELECT", "COPY is"),
        (
            "EXPLAIN ANALYZE SELECT * FROM read_text('{root}/conf/local.yaml')",
            "TABLE_FUNCTION_REFUSED",
            "read",
        ),
        ("EXPLAIN (FORMAT JSON) SELECT 1", "QUERY_FAILED", "syntax error"),
        ("SELECT n,\nat FROM silver.x", "QUERY_FAILED", "(line 2); a name that is a word of SQL"),
        ("EXPLAIN ANALYZE PRAGMA version", "QUERY_NOT_ONE_SELECT", "no SELECT"),
        ("EXPLAIN", "QUERY_NOT_ONE_SELECT", "this has none"),
        ("SUMMARIZE FROM read_csv('/etc/passwd')", "TABLE_FUNCTION_REFUSED", "read_csv is refused"),
        ("DESCRIBE '/etc/passwd'", "UNKNOWN_TABLE", "unknown table"),
        ("SHOW TABLES; DROP VIEW silver.readings", "QUERY_NOT_ONE_SELECT", "this has 2"),
        (
            "SELECT * FROM query('COPY (SELECT 1) TO ''{lake}/out.csv''')",
            "TABLE_FUNCTION_REFUSED",
            "query is",
        ),
        ("EXPORT DATABASE '{lake}/out'", "QUERY_NOT_ONE_SELECT", "EXPORT is refused"),
        ("ATTACH '/tmp/other.db'", "QUERY_NOT_ONE_SELECT", "ATTACH is refused"),
        ("INSTALL httpfs", "QUERY_NOT_ONE_SELECT", "LOAD is refused"),
        ("LOAD httpfs", "QUERY_NOT_ONE_SELECT", "LOAD is refused"),
        ("SET threads = 4", "QUERY_NOT_ONE_SELECT", "SET is refused"),
        ("SET enable_external_access = true", "QUERY_NOT_ONE_SELECT", "SET is refused"),
        ("RESET lock_configuration", "QUERY_NOT_ONE_SELECT", "SET is refused"),
        ("PRAGMA version", "QUERY_NOT_ONE_SELECT", "no SELECT"),
        ("PRAGMA threads = 4", "QUERY_NOT_ONE_SELECT", "refused"),
        ("CALL pragma_version()", "QUERY_NOT_ONE_SELECT", "CALL is refused"),
        ("CREATE TABLE t AS SELECT 1", "QUERY_NOT_ONE_SELECT", "CREATE is refused"),
        ("CREATE SECRET s (TYPE s3)", "QUERY_NOT_ONE_SELECT", "refused"),
        ("INSERT INTO silver.readings VALUES (1)", "QUERY_NOT_ONE_SELECT", "INSERT is refused"),
        ("DELETE FROM silver.readings", "QUERY_NOT_ONE_SELECT", "DELETE is refused"),
        ("DROP VIEW silver.readings", "QUERY_NOT_ONE_SELECT", "DROP is refused"),
        ("PREPARE p AS SELECT 1", "QUERY_NOT_ONE_SELECT", "PREPARE is refused"),
        ("SELECT 1; SELECT 2", "QUERY_NOT_ONE_SELECT", "this has 2"),
        ("SELECT 1; DROP VIEW silver.readings", "QUERY_NOT_ONE_SELECT", "this has 2"),
        ("", "QUERY_NOT_ONE_SELECT", "this has none"),
    ],
)
def test_what_is_no_query_is_refused(project: Path, sql: str, code: Code, reason: str) -> None:
    lake = project / ".headwater" / "lake"
    before = sorted(lake.rglob("*"))
    assert reason in refusal(code, project, sql.format(lake=lake, root=project))
    assert sorted(lake.rglob("*")) == before


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '{lake}/in.csv'",
        "COPY (SELECT 1) TO '{lake}/silver/readings/g0001/_delta_log/00000000000000000000.json'",
        "EXPORT DATABASE '{lake}/out'",
        "ATTACH '{lake}/other.db'",
        "CREATE TABLE t AS FROM delta_list_files('/outside')",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "PRAGMA enable_profiling",
        "CALL enable_logging(storage = 'file', storage_path = '{lake}/logs')",
        "SELECT 1; COPY (SELECT 1) TO '{lake}/out.csv'",
    ],
)
def test_connection_for_notebooks_only_reads(project: Path, sql: str) -> None:
    lake = project / ".headwater" / "lake"
    with query.connect(project) as connection:
        assert connection.execute("SELECT count(*) FROM silver.readings").fetchall() == [(3,)]
        before = {path: path.stat().st_mtime_ns for path in lake.rglob("*")}  # its scratch folder is there
        with pytest.raises(QueryError):
            connection.execute(sql.format(lake=lake)).fetchall()
    assert {path: path.stat().st_mtime_ns for path in lake.rglob("*")} == before


def test_connection_for_notebooks_gives_rows_and_has_nothing_that_writes(project: Path) -> None:
    with query.connect(project) as connection:
        found = connection.sql("SELECT CAST($n + i AS INT) AS m FROM range(3) AS r(i)", {"n": 1})
        assert found.to_arrow_table().to_pydict() == {"m": [1, 2, 3]}
        for name in ("write_csv", "from_csv_auto", "register", "cursor", "install_extension"):
            assert not hasattr(connection, name)


def test_connection_opens_tables_as_they_are_named(project: Path) -> None:
    views = "SELECT count(*), (SELECT count(*) FROM duckdb_views() WHERE NOT internal) FROM "
    with query.connect(project) as connection:
        for _ in range(2):
            assert connection.execute(f"{views} silver.readings").fetchall() == [(3, 1)]
        assert connection.execute(f"{views} gold.windows").fetchall()[0][1] == 2


def test_connection_reads_the_generation_that_is_live_and_tables_made_since(tmp_path: Path) -> None:
    for folder in ("conf", "gold"):
        (tmp_path / folder).mkdir()
    (tmp_path / "conf/local.yaml").write_text("kafka: embedded\n")
    append(tmp_path, "silver.readings", [reading("a", 1.5, 0)], READINGS)
    lake = Lake(tmp_path / ".headwater" / "lake")
    with query.connect(tmp_path) as connection:
        counted = "SELECT count(*), max(usage) FROM silver.readings"
        assert connection.execute(counted).fetchall() == [(1, 1.5)]
        append(tmp_path, "silver.others", [reading("c", 9.5, 3)], READINGS)
        assert connection.execute("SELECT host FROM silver.others").fetchall() == [("c",)]
        lake.create("silver.readings", READINGS, properties={}, anew=True)
        assert connection.execute(counted).fetchall() == [(0, None)]
        append(tmp_path, "silver.readings", [reading("b", 2.5, 1)], READINGS)
        assert connection.execute(counted).fetchall() == [(1, 2.5)]


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_a_reference_table_that_can_t_be_read_is_in_the_way_of_its_readers_alone(
    project: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    file = project / "conf/reference/undeclared.csv"
    file.write_text("host\na\n")
    try:
        with raises_code("DDL_MISSING"):
            query.run("SELECT * FROM reference.undeclared", project=project, engine=engine)
        if engine == "duckdb":
            with query.connect(project) as connection:
                names = connection.execute("SELECT name FROM (SHOW ALL TABLES)").fetchall()
                assert ("readings",) in names and ("undeclared",) in names
                with raises_code("DDL_MISSING"):
                    connection.execute("SELECT host FROM reference.undeclared")
                file.with_suffix(".ddl").write_text("host STRING\n")
                assert connection.execute("SELECT host FROM reference.undeclared").fetchall() == [("a",)]
        else:
            request.getfixturevalue("spark")
            for _ in range(2):
                assert query.spark(project).sql("SELECT * FROM silver.readings").count() == 3
            file.with_suffix(".ddl").write_text("host STRING\n")
            assert query.spark(project).sql("SELECT * FROM reference.undeclared").count() == 1
    finally:
        file.unlink()
        file.with_suffix(".ddl").unlink(missing_ok=True)


def test_a_query_that_names_no_table_may_list_them_all(project: Path) -> None:
    listed = "SELECT schema, name FROM (SHOW ALL TABLES)"
    with query.connect(project) as connection:
        found = connection.execute(listed).fetchall()
    assert {f"{schema}.{name}" for schema, name in found} >= {
        "silver.readings",
        "gold.windows",
        "quarantine.silver_readings",
        "reference.hosts",
    }
    assert sorted(query.run(listed, project=project).rows) == sorted(found)


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("DROP VIEW silver.readings", "QUERY_NOT_ONE_SELECT"),
        ("CREATE TABLE t AS SELECT 1", "QUERY_NOT_ONE_SELECT"),
        ("INSERT INTO silver.readings SELECT * FROM silver.readings", "QUERY_NOT_ONE_SELECT"),
        ("WITH x AS (SELECT 1) INSERT INTO silver.readings SELECT * FROM x", "QUERY_NOT_ONE_SELECT"),
        ("SET a = 1", "QUERY_NOT_ONE_SELECT"),
        ("EXECUTE IMMEDIATE 'DROP VIEW silver.readings'", "QUERY_NOT_ONE_SELECT"),
        ("BEGIN SELECT 1; END", "QUERY_NOT_ONE_SELECT"),
        ("SELECT * FROM text.`/etc/passwd`", "UNKNOWN_TABLE"),
        ("SELECT 1; SELECT 2", "QUERY_FAILED"),
    ],
)
def test_spark_runs_queries_only(project: Path, spark: SparkSession, sql: str, code: Code) -> None:
    refusal(code, project, sql, engine="spark")


def test_a_file_that_is_gone_is_named(
    ask: Callable[..., Result], project: Path, request: pytest.FixtureRequest
) -> None:
    append(project, "gold.lost", [{"host": "a"}], pa.schema([("host", pa.string())]))
    for part in Lake(project / ".headwater" / "lake").place("gold.lost").path.glob("*/part.parquet"):
        part.unlink()
    code: Code = "FILE_DAMAGED" if "duckdb" in request.node.name else "QUERY_FAILED"
    with raises_code(code, match=r"gold/lost/.*/part\.parquet") as refused:
        ask("SELECT * FROM gold.lost")
    assert "\n" not in str(refused.value)


# What a table is


def test_show_tables_lists_what_can_be_read(project: Path) -> None:
    found = query.run("SHOW TABLES", project=project)
    names = [name for (name,) in found.rows if name != "gold.lost"]
    assert found.columns == ("name",)
    assert names == ["gold.windows", "quarantine.silver_readings", "silver.readings", "reference.hosts"]


@pytest.mark.parametrize(
    "words", ["DESCRIBE", "DESC", "describe table", "SHOW", "show columns in", "DESCRIBE SELECT * FROM"]
)
def test_describe_says_the_columns(project: Path, words: str) -> None:
    found = query.run(f"{words} gold.windows", project=project)
    assert [row[:2] for row in found.rows] == [("host", "VARCHAR"), ("avg_usage", "DOUBLE")]


def test_summarize_looks_at_every_column(project: Path) -> None:
    for words in ("SUMMARIZE", "summarize select * from"):
        found = query.run(f"{words} silver.readings", project=project, at="1")
        of = {row[0]: dict(zip(found.columns, row, strict=True)) for row in found.rows}
        assert list(of) == ["host", "usage", "event_time"] and of["usage"]["count"] == 2
        assert (of["usage"]["min"], of["usage"]["max"]) == ("1.5", "2.5")


def test_explain_is_a_line_for_a_line(project: Path) -> None:
    sql = "SELECT host, count(*) FROM silver.readings WHERE usage > $least GROUP BY host"
    plan = query.run(f"EXPLAIN {sql}", project=project, params={"least": 2}).rows
    assert any("HASH_GROUP_BY" in line for (line,) in plan) and len(plan) > 10
    done = query.run(f"-- how long?\nexplain analyze {sql};", project=project, params={"least": 2})
    assert done.columns == ("plan",) and any("Total Time" in line for (line,) in done.rows)
    with query.connect(project) as connection:
        assert connection.execute("EXPLAIN FROM gold.windows").fetchall()


# The past


def test_version_of_one_table(ask: Callable[..., Result]) -> None:
    sql = "SELECT count(*) AS n FROM silver.readings r LEFT JOIN reference.hosts h ON r.host = h.host"
    assert [ask(sql, at=version).rows for version in ("0", "1", "2")] == [[(0,)], [(2,)], [(3,)]]


def test_time_is_the_newest_commit_not_after_it(ask: Callable[..., Result], project: Path) -> None:
    table = Lake(project / ".headwater" / "lake").place("silver.readings").path
    first, second = log.read(table, 1).at, log.read(table, 2).at
    assert first < second
    sql = "SELECT count(*) AS n FROM silver.readings"
    assert ask(sql, at=first.isoformat()).rows == [(2,)]
    assert ask(sql, at=(second - timedelta(milliseconds=1)).isoformat()).rows == [(2,)]
    assert ask(sql, at=second.replace(tzinfo=None).isoformat()).rows == [(3,)]  # without a zone: UTC
    assert ask(sql, at="2999-01-01").rows == [(3,)]


def test_past_that_is_not_there(project: Path) -> None:
    one = "SELECT * FROM silver.readings"
    two = "SELECT * FROM silver.readings, gold.windows"
    assert "has no version 3; it has 0 to 2" in refusal("UNKNOWN_VERSION", project, one, at="3")
    assert "silver.readings begins at 20" in refusal(
        "UNKNOWN_VERSION", project, one, at="2020-01-01T00:00:00Z"
    )
    assert "names 2 (silver.readings, gold.windows); write a time" in refusal(
        "VERSION_AMBIGUOUS", project, two, at="1"
    )
    assert "write a version or a time" in refusal("TIME_INVALID", project, one, at="yesterday")


# Parameters


def test_one_notation_of_parameters_for_both_engines(ask: Callable[..., Result]) -> None:
    sql = """SELECT usage, '$host' AS text -- $comment
        FROM silver.readings WHERE host = $host AND event_time < $until ORDER BY usage DESC LIMIT $n"""
    given = params.parse(["host=a", "until=2026-01-01T00:00:02Z", "n=5"])
    assert ask(sql, params=given).rows == [(1.5, "$host")]


def test_parameters_are_values_not_sql(ask: Callable[..., Result]) -> None:
    sql = "SELECT count(*) AS n FROM silver.readings WHERE host = $host"
    assert ask(sql, params={"host": "a' OR '1'='1"}).rows == [(0,)]


def test_missing_and_unused_parameters_are_named(ask: Callable[..., Result]) -> None:
    with raises_code("PARAMETER_MISSING", match=r"add: --param host=VALUE"):
        ask("SELECT $host AS h")
    with raises_code("UNKNOWN_PARAMETER", match=r"--param b is not in the query; it has: \$a"):
        ask("SELECT $a AS a", params={"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("007", "007"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("true", True),
        ("null", None),
        ("yes", "yes"),
        ("nan", "nan"),
        ("'5'", "5"),
        ('"a=b"', "a=b"),
        ("", ""),
        ("2026-01-31", date(2026, 1, 31)),
        ("2026-01-31T06:00:00", datetime(2026, 1, 31, 6, tzinfo=UTC)),
        ("2026-01-31T06:00:00+02:00", datetime(2026, 1, 31, 4, tzinfo=UTC)),
        ("2026-13-31", "2026-13-31"),
    ],
)
def test_values_are_typed_by_their_look(text: str, value: Any) -> None:
    parsed = params.parse([f"x={text}"])["x"]
    assert parsed == value and type(parsed) is type(value)


@pytest.mark.parametrize("given", [["x"], ["=1"], ["a b=1"], ["x=1", "x=2"]])
def test_params_that_are_none(given: list[str]) -> None:
    with raises_code("PARAMETER_INVALID", match="--param"):
        params.parse(given)


def test_markers_after_wide_characters_keep_their_place() -> None:
    assert params.for_spark("SELECT 'é$x', $x, $y_1+$x") == ("SELECT 'é$x', :x, :y_1+:x", {"x", "y_1"})


# Formats

ROWS = Result(
    ("n", "text", "at", "raw", "nested"),
    [
        (1, "a,b", datetime(2026, 1, 1, 2, tzinfo=UTC), b"\xff", {"t": [T0]}),
        (None, None, datetime(2026, 1, 1, 2, 0, 0, 500_000), b"ok", None),
    ],
)


def written(form: Any, rows: Result | Rows = ROWS) -> str:
    out = io.StringIO()
    result.write(rows, form, out)
    return out.getvalue()


def test_json_is_one_array() -> None:
    assert json.loads(written("json")) == [
        {
            "n": 1,
            "text": "a,b",
            "at": "2026-01-01T02:00:00Z",
            "raw": "/w==",
            "nested": {"t": ["2026-01-01T00:00:00Z"]},
        },
        {"n": None, "text": None, "at": "2026-01-01T02:00:00.500", "raw": "b2s=", "nested": None},
    ]
    assert json.loads(written("json", Result(("a",), []))) == []


def test_json_has_no_numbers_that_json_lacks() -> None:
    values = [(float("nan"),), (float("inf"),), (float("-inf"),), (Decimal("0.10"),), (Decimal("0E-9"),)]
    found = json.loads(written("json", Result(("x",), values)), parse_constant=pytest.fail)
    assert [row["x"] for row in found] == ["NaN", "Infinity", "-Infinity", "0.10", "0.000000000"]
    assert json.loads(written("json", Result(("x",), [(2**70,)]))) == [{"x": 2**70}]
    assert "0.000000000" in written("table", Result(("x",), [(Decimal("0E-9"),)]))


def test_columns_of_one_name_are_all_there(ask: Callable[..., Result]) -> None:
    found = ask("SELECT 1 AS id, 2 AS id_1, 3 AS id, 4 AS id")
    assert json.loads(written("json", found)) == [{"id": 1, "id_1": 2, "id_2": 3, "id_3": 4}]
    assert written("csv", found).splitlines()[1] == "1,2,3,4"


def test_rows_are_written_as_they_are_fetched(project: Path) -> None:
    for form in ("table", "json", "csv"):
        listed = query.run("SELECT i, i * 0.5 AS half FROM range(2500) AS r(i)", project=project)
        with query.rows("SELECT i, i * 0.5 AS half FROM range(2500) AS r(i)", project=project) as rows:
            assert written(form, rows) == written(form, listed)
            assert next(rows.rows, None) is None


def test_csv_reads_back() -> None:
    rows = list(csv.reader(io.StringIO(written("csv"))))
    assert rows[0] == list(ROWS.columns)
    assert rows[1] == ["1", "a,b", "2026-01-01T02:00:00Z", "/w==", '{"t": ["2026-01-01T00:00:00Z"]}']
    assert rows[2] == ["", "", "2026-01-01T02:00:00.500", "b2s=", ""]


def test_table_is_for_people() -> None:
    header, _, first, second, count = written("table").splitlines()
    assert header.index("n") == first.index("1") == len("NULL") - 1 and second.startswith("NULL")
    assert "2026-01-01 02:00:00Z" in first and "0xff" in first and "ok" in second
    assert count == "2 rows"


def test_long_table_says_what_it_leaves_out() -> None:
    text = written("table", Result(("n",), [(n,) for n in range(result.SHOWN + 1)]))
    assert text.splitlines()[-1] == "1,000 of 1,001 rows; add LIMIT, or --format csv for all"


# The command


def test_command_runs_saved_queries_and_lists_them(project: Path) -> None:
    def command(*arguments: str) -> str:
        done = CliRunner().invoke(
            app, ["query", *arguments, "--project", str(project)], catch_exceptions=False
        )
        assert done.exit_code == 0
        return done.stdout

    assert "of_host  Readings of one host" in command()
    assert json.loads(command("of_host", "-p", "host=a", "-p", "n=1", "--format", "json")) == [{"usage": 1.5}]
    with raises_code("UNKNOWN_QUERY", match="did you mean of_host"):
        command("of_hots")
    with raises_code("UNKNOWN_QUERY", match=r"SELECT \* FROM silver\.readings"):
        command("silver.readings")


def test_saved_queries_of_the_reference_project_are_described() -> None:
    from headwater.query import saved

    found = saved.find(Path(__file__).parent.parent)
    assert {"hottest_hosts", "host_usage", "quarantine_reasons"} <= set(found)
    assert all(query.description for query in found.values())


def test_nothing_is_left_behind(project: Path) -> None:
    query.run("SELECT * FROM silver.readings", project=project)
    assert [name for name in os.listdir(project / ".headwater") if name.startswith("duckdb")] == []
