"""SQL definitions: what the parser takes from a statement, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from raising import raises_code

from headwater.errors.codes import Code
from headwater.project import sql
from headwater.project.definitions import Limits, Table

CREATE = "CREATE STREAMING TABLE gold.t AS "


def parse(tmp_path: Path, text: str) -> Table:
    path = tmp_path / "t.sql"
    path.write_text(text, encoding="utf-8")
    (table,) = sql.parse(path, "gold")
    assert isinstance(table, Table)
    return table


def refusal(code: Code, tmp_path: Path, text: str) -> str:
    with raises_code(code, file=tmp_path / "t.sql") as refused:
        parse(tmp_path, text)
    assert str(refused.value).startswith(str(tmp_path / "t.sql"))
    return str(refused.value)


def test_everything_a_statement_says(tmp_path: Path) -> None:
    table = parse(
        tmp_path,
        """CREATE STREAMING TABLE gold.t COMMENT 'Über $%{}' TBLPROPERTIES ('headwater.emit' = 'update',
        'headwater.publish' = 'out', 'headwater.keys' = 'a, b', 'headwater.cluster_by' = 'b, a',
        'headwater.parallelism' = '3',
        'headwater.max_rows_per_batch' = '10', 'headwater.trigger' = '2s', 'delta.appendOnly' = 'false')
        AS SELECT a, b, count(*) AS n FROM STREAM silver.s WATERMARK at DELAY OF INTERVAL 10 SECONDS
        GROUP BY a, b""",
    )
    assert (table.name, table.comment, table.sources) == ("gold.t", "Über $%{}", ("silver.s",))
    assert table.sql is not None and table.sql.streams == ("silver.s",)
    assert (table.event_time, table.delay) == ("at", "10 seconds")
    assert ([sink.target for sink in table.sinks], table.keys) == (["kafka:out"], ("a", "b"))
    assert (table.emit, table.cluster_by) == ("update", ("b", "a"))
    assert table.limits == Limits(parallelism=3, max_rows_per_batch=10, trigger="2s")
    assert table.properties == {"delta.appendOnly": "false"}


@pytest.mark.parametrize(
    ("delay", "says"),
    [
        ("1 SECOND", "1 seconds"),
        ("1 HOUR 30 MINUTES", "1 hours 30 minutes"),
        ("'1:30' HOUR TO MINUTE", "1 hours 30 minutes"),
        ("'2' MINUTES 0.5 SECOND", "2 minutes 0.5 seconds"),
        ("10 -- late\n /* and later */ SECONDS", "10 seconds"),
    ],
)
@pytest.mark.parametrize(
    "stream", ["silver.s {}", "silver.s {} AS o", "silver.s AS o {}", "(silver.s) o\n {}"]
)
def test_a_delay_is_the_same_on_both_sides_of_an_alias(
    tmp_path: Path, stream: str, delay: str, says: str
) -> None:
    clause = f"WATERMARK at DELAY OF INTERVAL\n{delay}"
    table = parse(tmp_path, f"{CREATE}SELECT * FROM STREAM {stream.format(clause)} WHERE n > 1")
    assert (table.event_time, table.delay, table.sources) == ("at", says, ("silver.s",))


@pytest.mark.parametrize("clause", ["WATERMARK at", "WATERMARK at DELAY OF 1 MINUTE", "WATERMARK"])
def test_an_unfinished_watermark_behind_an_alias_is_refused(tmp_path: Path, clause: str) -> None:
    said = refusal(
        "STATEMENT_NOT_SUPPORTED", tmp_path, f"{CREATE}SELECT * FROM STREAM silver.s AS o {clause}"
    )
    assert "a watermark is unfinished" in said


# What runs in place of the sources: (query, sources, its result on s = {1, 2, 3}, r = {2, 3, 4})
QUERIES = [
    ("SELECT n FROM STREAM silver.s", "silver.s", {1, 2, 3}),
    ("SELECT s.n FROM STREAM silver.s", "silver.s", {1, 2, 3}),
    ("SELECT x.n FROM STREAM silver.s AS x", "silver.s", {1, 2, 3}),
    ("SELECT x.n FROM STREAM silver.s x WHERE x.n > 1", "silver.s", {2, 3}),
    ("SELECT x.n FROM STREAM(silver.s) AS x", "silver.s", {1, 2, 3}),
    ("SELECT n FROM STREAM `silver`.`s`", "silver.s", {1, 2, 3}),
    ("SELECT n FROM STREAM silver.s WATERMARK at DELAY OF INTERVAL 1 MINUTE", "silver.s", {1, 2, 3}),
    ("SELECT x.n FROM STREAM silver.s WATERMARK at DELAY OF INTERVAL 1 MINUTE AS x", "silver.s", {1, 2, 3}),
    ("SELECT s.n FROM STREAM silver.s JOIN reference.r ON s.n = r.n", "silver.s reference.r", {2, 3}),
    ("SELECT s.n FROM STREAM silver.s JOIN reference.r AS q ON s.n = q.n", "silver.s reference.r", {2, 3}),
    ("SELECT q.n FROM reference.r AS q JOIN STREAM silver.s USING (n)", "silver.s reference.r", {2, 3}),
    ("SELECT n FROM STREAM silver.s LEFT ANTI JOIN reference.r USING (n)", "silver.s reference.r", {1}),
    ("SELECT n FROM STREAM silver.s WHERE n IN (SELECT n FROM reference.r)", "silver.s reference.r", {2, 3}),
    (
        "SELECT n FROM STREAM silver.s WHERE n < (SELECT max(n) FROM reference.r q)",
        "silver.s reference.r",
        {1, 2, 3},
    ),
    (
        "SELECT n FROM STREAM silver.s WHERE EXISTS (SELECT 1 FROM reference.r WHERE r.n = s.n)",
        "silver.s reference.r",
        {2, 3},
    ),
    ("SELECT y.n FROM (SELECT n FROM STREAM silver.s) AS y WHERE n > 1", "silver.s", {2, 3}),
    ("SELECT (SELECT min(n) FROM reference.r) AS n FROM STREAM silver.s", "silver.s reference.r", {2}),
    ("WITH x AS (SELECT n FROM STREAM silver.s) SELECT n FROM x WHERE n > 1", "silver.s", {2, 3}),
    (
        "WITH x AS (SELECT n FROM reference.r), y AS (SELECT * FROM X) SELECT n FROM STREAM silver.s JOIN y "
        "USING (n)",
        "silver.s reference.r",
        {2, 3},
    ),
    (
        "SELECT n FROM STREAM silver.s UNION ALL SELECT n + 10 FROM STREAM silver.s",
        "silver.s",
        {1, 2, 3, 11, 12, 13},
    ),
    ("SELECT n FROM STREAM silver.s WHERE '{s0} {} }{' = concat('{s0} {} ', '}{')", "silver.s", {1, 2, 3}),
    ("SELECT n FROM STREAM silver.s WHERE 'silver.s' = 'silver.s' -- FROM silver.x", "silver.s", {1, 2, 3}),
    ("SELECT /* é {x} \U0001f600 */ n FROM STREAM silver.s WHERE 'é\U0001f600' <> ''", "silver.s", {1, 2, 3}),
    (
        "SELECT '\U0001f600é' AS e, n FROM STREAM silver.s JOIN reference.r USING (n)",
        "silver.s reference.r",
        {2, 3},
    ),
    ("SELECT n FROM STREAM silver.s WHERE 'a;b' <> ';' ;", "silver.s", {1, 2, 3}),
    ("SELECT n FROM STREAM silver.s;; ", "silver.s", {1, 2, 3}),
    ("SELECT n FROM STREAM silver.s; -- the end", "silver.s", {1, 2, 3}),
    ("SELECT n\nFROM STREAM\n\tsilver.s\n  AS x\nWHERE x.n > 2\n", "silver.s", {3}),
]


@pytest.fixture(scope="module")
def views(spark: SparkSession) -> SparkSession:
    for name, values in (("s_", "(1), (2), (3)"), ("r_", "(2), (3), (4)")):
        spark.sql(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT *, now() AS at FROM VALUES {values} AS v(n)")
    return spark


@pytest.mark.parametrize(("query", "sources", "wanted"), QUERIES)
@pytest.mark.parametrize(
    "head", [CREATE, "-- Größe \U0001f600 {}\n/* {s0} */ CREATE STREAMING TABLE gold.t\nAS "]
)
def test_sources_are_replaced_where_they_stand(
    views: SparkSession, tmp_path: Path, head: str, query: str, sources: str, wanted: set[int]
) -> None:
    table = parse(tmp_path, head + query)
    assert table.sources == tuple(sources.split())
    assert table.sql is not None and table.sql.streams == ("silver.s",)
    names = {"silver.s": "s_", "reference.r": "r_"}
    text = table.sql.text.format(**{f"s{at}": names[name] for at, name in enumerate(table.sources)})
    assert {row["n"] for row in views.sql(text).collect()} == wanted


@pytest.mark.parametrize("text", ["r' '", "r''", "X''", "r'WATERMARK x'"])
def test_a_text_of_any_form_is_no_keyword(tmp_path: Path, text: str) -> None:
    table = parse(tmp_path, f"{CREATE}SELECT split(n, {text}) AS n FROM STREAM silver.s")
    assert table.sql is not None and text in table.sql.text


def test_names_of_with_clauses_are_no_sources(tmp_path: Path) -> None:
    table = parse(
        tmp_path, CREATE + "WITH r AS (SELECT 1 AS n) SELECT s.n FROM STREAM silver.s JOIN r USING (n)"
    )
    assert table.sources == ("silver.s",)


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (
            "CREATE TABLE gold.t AS SELECT 1",
            "STATEMENT_NOT_SUPPORTED",
            "CreateTableAsSelect statement is not supported",
        ),
        (
            "SELECT 1",
            "STATEMENT_NOT_SUPPORTED",
            "t.sql:1: a Project statement is not supported; write CREATE STREAMING TABLE",
        ),
        ("DROP TABLE gold.t", "STATEMENT_NOT_SUPPORTED", "is not supported"),
        ("", "SQL_INVALID", ""),
        ("-- nothing", "SQL_INVALID", ""),
        ("CREATE STREAMING TABLE gold.t AS SELEC 1", "SQL_INVALID", "PARSE_SYNTAX_ERROR"),
        (CREATE + "SELECT 1 " + CREATE + "SELECT 2", "SQL_INVALID", "PARSE_SYNTAX_ERROR"),
        (CREATE + "SELECT 'no end", "SQL_INVALID", ""),
        (
            CREATE + "\nWITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) "
            "SELECT * FROM STREAM silver.s JOIN r ON s.n = r.n",
            "STATEMENT_NOT_SUPPORTED",
            "t.sql:2: WITH RECURSIVE is not supported",
        ),
        (
            CREATE + "SELECT * FROM STREAM silver.s WITH ('startingVersion' = '5')",
            "STATEMENT_NOT_SUPPORTED",
            "t.sql:1: silver.s is read with options",
        ),
    ],
)
def test_other_statements_are_refused_by_name(tmp_path: Path, text: str, code: Code, says: str) -> None:
    assert says in refusal(code, tmp_path, text)


@pytest.mark.parametrize(
    ("key", "value", "code", "says"),
    [
        (
            "headwater.emitt",
            "update",
            "UNKNOWN_PROPERTY",
            "unknown table property 'headwater.emitt'; known: headwater.allowed_lateness, ",
        ),
        ("retention", "1", "UNKNOWN_PROPERTY", "unknown table property 'retention'"),
        ("headwater.emit", "append", "PROPERTY_INVALID", "headwater.emit = 'append'; known: update, final"),
        (
            "headwater.publish.on",
            "close",
            "PROPERTY_INVALID",
            "headwater.publish.on = 'close'; known: update, final",
        ),
        *(
            (
                said,
                value,
                "PROPERTY_INVALID",
                f"{said} is said without {of}; add '{of}' = '…', or leave it out",
            )
            for said, value, of in (
                ("headwater.publish.on", "final", "headwater.publish"),
                ("headwater.publish.partitions", "2", "headwater.publish"),
                ("headwater.postgres.on", "update", "headwater.postgres"),
                ("headwater.opensearch.on", "final", "headwater.opensearch"),
            )
        ),
        ("headwater.on_error", "stop", "PROPERTY_INVALID", "headwater.on_error is of a table that decodes"),
        ("headwater.skew", "1 hour", "PROPERTY_INVALID", "headwater.skew is of a table that decodes"),
        (
            "headwater.parallelism",
            "0",
            "PROPERTY_INVALID",
            "headwater.parallelism = '0'; write a whole number of 1 or more",
        ),
        (
            "headwater.max_rows_per_batch",
            "many",
            "PROPERTY_INVALID",
            "headwater.max_rows_per_batch = 'many'; write a whole number",
        ),
    ],
)
def test_properties_that_cannot_be_are_refused(
    tmp_path: Path, key: str, value: str, code: Code, says: str
) -> None:
    text = (
        f"CREATE STREAMING TABLE gold.t TBLPROPERTIES ('{key}' = '{value}') AS SELECT n FROM STREAM silver.s"
    )
    found = refusal(code, tmp_path, text)
    assert ": gold.t: " in found and says in found


def test_a_table_that_decodes_says_its_skew_and_what_becomes_of_errors(tmp_path: Path) -> None:
    said = "'headwater.decode' = 'json', 'headwater.schema' = 'n INT', 'headwater.skew' = '1 hour'"
    said += ", 'headwater.on_error' = 'stop'"
    text = f"CREATE STREAMING TABLE t TBLPROPERTIES ({said}) AS SELECT n FROM STREAM bronze.raw"
    table = parse(tmp_path, text)
    assert (table.skew, table.on_error) == ("1 hour", "stop")
    for says in ("'headwater.contract' = 'freeze'", "'headwater.timestamp' = 'at'"):
        of_json = text.replace("'json'", "'debezium'").replace(
            "'headwater.skew'", f"{says}, 'headwater.skew'"
        )
        assert "is of 'headwater.decode' = 'json'" in refusal("PROPERTY_INVALID", tmp_path, of_json)


def test_a_flow_says_where_its_rows_go(tmp_path: Path) -> None:
    path = tmp_path / "f.sql"
    path.write_text(
        "CREATE FLOW gold.f COMMENT 'East' AS INSERT INTO gold.t BY NAME\n"
        "WITH few AS (SELECT * FROM STREAM silver.s WATERMARK at DELAY OF INTERVAL 5 SECONDS WHERE n > 0)\n"
        "SELECT few.*, name FROM few JOIN reference.names names ON names.id = few.id"
    )
    (flow,) = sql.parse(path, "gold")
    assert isinstance(flow, Table)
    assert (flow.name, flow.into, flow.comment) == ("gold.f", "gold.t", "East")
    assert flow.sources == ("silver.s", "reference.names") and flow.sql is not None
    assert flow.sql.streams == ("silver.s",) and (flow.event_time, flow.delay) == ("at", "5 seconds")
    assert flow.sql.text.startswith("WITH few AS (SELECT * FROM {s0} AS `s` WHERE n > 0)")
