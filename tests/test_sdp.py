"""Texts of Spark Declarative Pipelines and of Lakeflow: what is taken from them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from raising import raises_code

from headwater.errors.codes import Code
from headwater.project import sql
from headwater.project.definitions import Declaration, Json, Limits, Table, Topic, View

SELECT = " AS SELECT * FROM STREAM raw"


def parse(tmp_path: Path, text: str, layer: str = "silver") -> list[Declaration]:
    path = tmp_path / "t.sql"
    path.write_text(text, encoding="utf-8")
    return list(sql.parse(path, layer))


def one(tmp_path: Path, text: str) -> Table:
    (found,) = parse(tmp_path, text)
    assert isinstance(found, Table)
    return found


# The SQL of Spark's programming guide of declarative pipelines, each block as it stands.
GUIDE = [
    (
        "CREATE STREAMING TABLE target_table AS\nSELECT * FROM STREAM source_table\n",
        {"target_table": ["source_table"]},
    ),
    (
        "CREATE MATERIALIZED VIEW basic_mv\nAS SELECT * FROM samples.nyctaxi.trips;",
        {"basic_mv": ["samples.nyctaxi.trips"]},
    ),
    (
        "CREATE TEMPORARY VIEW basic_tv\nAS SELECT * FROM samples.nyctaxi.trips;",
        {"basic_tv": ["samples.nyctaxi.trips"]},
    ),
    (
        "CREATE STREAMING TABLE basic_st\nAS SELECT * FROM STREAM samples.nyctaxi.trips;",
        {"basic_st": ["samples.nyctaxi.trips"]},
    ),
    (
        """CREATE STREAMING TABLE orders
AS SELECT * FROM STREAM orders_source;

CREATE MATERIALIZED VIEW customers
AS SELECT * FROM customers_source;

CREATE MATERIALIZED VIEW customer_orders
AS SELECT
  c.customer_id,
  o.order_number,
  c.state,
  date(timestamp(int(o.order_datetime))) order_date
FROM orders o
INNER JOIN customers c
ON o.customer_id = c.customer_id;

CREATE MATERIALIZED VIEW daily_orders_by_state
AS SELECT state, order_date, count(*) order_count
FROM customer_orders
GROUP BY state, order_date;
""",
        {
            "orders": ["orders_source"],
            "customers": ["customers_source"],
            "customer_orders": ["orders", "customers"],
            "daily_orders_by_state": ["customer_orders"],
        },
    ),
    (
        """-- create a streaming table
CREATE STREAMING TABLE customers_us;

-- define the first append flow
CREATE FLOW append_customers_us_west
AS INSERT INTO customers_us
SELECT * FROM STREAM(customers_us_west);

-- define the second append flow
CREATE FLOW append_customers_us_east
AS INSERT INTO customers_us
SELECT * FROM STREAM(customers_us_east);
""",
        {
            "customers_us": [],
            "append_customers_us_west": ["customers_us_west"],
            "append_customers_us_east": ["customers_us_east"],
        },
    ),
]


@pytest.mark.parametrize(("text", "reads"), GUIDE)
def test_the_guides_texts_are_read_as_they_stand(
    tmp_path: Path, text: str, reads: dict[str, list[str]]
) -> None:
    found = parse(tmp_path, text)
    assert all(isinstance(each, Table | View) for each in found)
    said = {each.name: list(each.inputs) for each in found if isinstance(each, Table | View)}
    assert said == {f"silver.{name}": sources for name, sources in reads.items()}


def test_everything_that_lakeflow_adds(tmp_path: Path) -> None:
    text = """-- Bestellungen \U0001f600; all of them
CREATE OR REFRESH PRIVATE STREAMING TABLE orders (
  CONSTRAINT amount EXPECT (amount > 0 AND note <> ');') ON VIOLATION DROP ROW,
  CONSTRAINT `who?` EXPECT (customer IS NOT NULL
    OR guest) ON VIOLATION FAIL UPDATE, /* and */
  CONSTRAINT young EXPECT (age BETWEEN 0 AND 120)
) COMMENT 'it\\'s' TBLPROPERTIES ('headwater.decode' = 'json', 'headwater.schema' = 'a INT, note STRING',
  'headwater.contract' = 'freeze', 'headwater.timestamp' = 'sent_at')
AS SELECT o.* FROM STREAM(LIVE.raw) AS o WATERMARK o.sent_at DELAY OF INTERVAL '10' MINUTES WHERE note != 'é;';
"""
    table = one(tmp_path, text)
    assert (table.name, table.comment, table.inputs) == ("silver.orders", "it's", ("LIVE.raw",))
    assert [(rule.id, rule.action) for rule in table.expectations] == [
        ("amount", "drop"),
        ("who?", "fail"),
        ("young", "warn"),
    ]
    queries = [rule.kwargs["unexpected_rows_query"] for rule in table.expectations]
    assert queries[0].endswith("WHERE (amount > 0 AND note <> ');') IS NOT TRUE")
    assert queries[1].endswith("WHERE (customer IS NOT NULL\n    OR guest) IS NOT TRUE")
    assert [str(rule.where).rpartition("t.sql")[2] for rule in table.expectations] == [
        ":3: silver.orders",
        ":4: silver.orders",
        ":6: silver.orders",
    ]
    assert table.decode == Json("a INT, note STRING", "freeze", "sent_at")
    assert (table.event_time, table.delay) == ("sent_at", "10 minutes")
    assert table.sql is not None and table.sql.streams == ("LIVE.raw",)
    query = table.sql.of(["`_x`"])
    assert query.splitlines()[8].split() == [
        *("SELECT", "o.*", "FROM", "`_x`", "AS", "`o`", "WHERE", "note", "!=", "'é;'")
    ]
    assert query.index("SELECT") - query.rindex("\n", 0, query.index("SELECT")) - 1 == len("AS ")


@pytest.mark.parametrize("alias", ["AS q", "q", "AS `q`"])
@pytest.mark.parametrize("stream", ["raw", "bronze.raw", "(bronze.raw)"])
def test_a_watermark_stands_before_an_alias_or_behind_it(tmp_path: Path, stream: str, alias: str) -> None:
    text = f"CREATE STREAMING TABLE t AS SELECT q.a FROM STREAM {stream} {{}} WHERE q.a > 1"
    clause = "WATERMARK at DELAY OF INTERVAL 1 MINUTE"
    for placed in (f"{alias} {clause}", f"{clause} {alias}"):
        table = one(tmp_path, text.format(placed))
        assert (table.event_time, table.delay in ("1 minute", "1 minutes")) == ("at", True)
        assert (
            table.sql is not None
            and " ".join(table.sql.text.split()) == "SELECT q.a FROM {s0} AS `q` WHERE q.a > 1"
        )


def test_a_temporary_view_is_a_named_query(tmp_path: Path) -> None:
    text = "CREATE OR REPLACE TEMP VIEW few COMMENT 'c' AS SELECT a FROM STREAM raw WHERE a > 0;" + (
        "CREATE STREAMING TABLE t AS SELECT * FROM STREAM few"
    )
    view, table = parse(tmp_path, text)
    assert isinstance(view, View) and isinstance(table, Table)
    assert (view.name, view.comment, view.inputs) == ("silver.few", "c", ("raw",))
    assert view.sql is not None and view.sql.streams == ("raw",) and table.inputs == ("few",)


def test_a_topic_is_declared_by_read_kafka(tmp_path: Path) -> None:
    text = """CREATE OR REFRESH STREAMING TABLE raw COMMENT 'c' TBLPROPERTIES ('headwater.trigger' = '2s')
AS SELECT * FROM STREAM read_kafka(
  bootstrapServers => 'kafka:9092', subscribe => 'orders', startingOffsets => 'earliest')"""
    (found,) = parse(tmp_path, text, "bronze")
    assert isinstance(found, Topic)
    assert (found.name, found.topic, found.servers, found.comment) == (
        "bronze.raw",
        "orders",
        "kafka:9092",
        "c",
    )
    assert found.limits == Limits(trigger="2s")
    (plain,) = parse(
        tmp_path, "CREATE STREAMING TABLE raw AS SELECT * FROM STREAM read_kafka(subscribe => 'a')", "bronze"
    )
    assert isinstance(plain, Topic) and (plain.topic, plain.servers) == ("a", "")


KAFKA = "CREATE STREAMING TABLE t AS SELECT * FROM STREAM read_kafka("
REFUSED: list[tuple[str, Code, int, str]] = [
    (
        "CREATE STREAMING TABLE a" + SELECT + ";\n\nDROP TABLE a",
        "STATEMENT_NOT_SUPPORTED",
        3,
        "write CREATE STREAMING",
    ),
    ("\nCREATE LIVE TABLE t AS SELECT 1", "STATEMENT_NOT_SUPPORTED", 2, "write CREATE MATERIALIZED VIEW"),
    (
        "CREATE OR REFRESH STREAMING LIVE TABLE t AS SELECT 1",
        "STATEMENT_NOT_SUPPORTED",
        1,
        "write CREATE STREAMING TABLE",
    ),
    ("CREATE VIEW v AS SELECT 1", "STATEMENT_NOT_SUPPORTED", 1, "write CREATE TEMPORARY VIEW"),
    ("APPLY CHANGES INTO t FROM STREAM s KEYS (a) SEQUENCE BY b", "STATEMENT_NOT_SUPPORTED", 1, "max_by"),
    ("CREATE FLOW f AS AUTO CDC INTO t FROM STREAM s KEYS (a)", "STATEMENT_NOT_SUPPORTED", 1, "max_by"),
    (
        "CREATE FLOW f AS INSERT INTO ONCE t BY NAME SELECT * FROM s",
        "STATEMENT_NOT_SUPPORTED",
        1,
        "headwater backfill",
    ),
    ("CREATE FLOW f AS INSERT INTO t (a, b) SELECT * FROM STREAM s", "INSERT_BY_POSITION", 1, "BY NAME"),
    (
        "CREATE FLOW f AS INSERT OVERWRITE t SELECT * FROM STREAM s",
        "STATEMENT_NOT_SUPPORTED",
        1,
        "write INSERT INTO",
    ),
    ("SET spark.x = 1", "STATEMENT_NOT_SUPPORTED", 1, "conf/<environment>.yaml"),
    ("CREATE STREAMING TABLE t (\n a INT)" + SELECT, "STATEMENT_NOT_SUPPORTED", 2, "leave columns out"),
    (
        "CREATE STREAMING TABLE t (CONSTRAINT k PRIMARY KEY (a))" + SELECT,
        "STATEMENT_NOT_SUPPORTED",
        1,
        "headwater.keys",
    ),
    (
        "CREATE STREAMING TABLE t (CONSTRAINT k EXPECT)" + SELECT,
        "STATEMENT_NOT_SUPPORTED",
        1,
        "write EXPECT (condition)",
    ),
    (
        "CREATE STREAMING TABLE t (\nCONSTRAINT k EXPECT (a > 0)\nON VIOLATION SKIP)" + SELECT,
        "STATEMENT_NOT_SUPPORTED",
        3,
        "DROP ROW, or FAIL UPDATE",
    ),
    (
        "CREATE STREAMING TABLE t\nCLUSTER BY (a)" + SELECT,
        "STATEMENT_NOT_SUPPORTED",
        2,
        "headwater.cluster_by",
    ),
    (
        "CREATE STREAMING TABLE t\nPARTITIONED BY (a)" + SELECT,
        "STATEMENT_NOT_SUPPORTED",
        2,
        "headwater.cluster_by",
    ),
    (
        "CREATE MATERIALIZED VIEW t SCHEDULE EVERY 1 HOUR" + SELECT,
        "STATEMENT_NOT_SUPPORTED",
        1,
        "headwater.trigger",
    ),
    (
        "CREATE TEMPORARY VIEW t (CONSTRAINT k EXPECT (a > 0))" + SELECT,
        "STATEMENT_NOT_SUPPORTED",
        1,
        "expect it of",
    ),
    (
        "CREATE STREAMING TABLE t AS SELECT 1\nFROM STREAM s q WATERMARK at DELAY 1",
        "STATEMENT_NOT_SUPPORTED",
        2,
        "DELAY OF INTERVAL",
    ),
    (KAFKA + "subscribe => 'a,b')", "STATEMENT_NOT_SUPPORTED", 1, "a table for each"),
    (
        KAFKA + "subscribe => 'a',\n`kafka.security.protocol` => 'SSL')",
        "STATEMENT_NOT_SUPPORTED",
        2,
        "under kafka",
    ),
    (KAFKA + "subscribe => 'a') WHERE key IS NULL", "STATEMENT_NOT_SUPPORTED", 1, "in bronze/"),
    (KAFKA + "subscribe => 'a')", "WRONG_FOLDER", 1, "a table of bronze/"),
    (
        "CREATE STREAMING TABLE t AS SELECT * FROM STREAM read_files('x')",
        "STATEMENT_NOT_SUPPORTED",
        1,
        "hw.files",
    ),
    (
        "CREATE STREAMING TABLE t TBLPROPERTIES ('headwater.decode' = 'json', 'headwater.schema' = 'a INT')",
        "PROPERTY_INVALID",
        1,
        "decode in a table of its own",
    ),
]


@pytest.mark.parametrize(("text", "code", "line", "says"), REFUSED)
def test_what_cannot_be_is_refused_with_its_line_and_what_to_write(
    tmp_path: Path, text: str, code: Code, line: int, says: str
) -> None:
    with raises_code(code, file=tmp_path / "t.sql") as refused:
        parse(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path / 't.sql'}:{line}: ")
    assert says in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        (
            "'headwater.decode' = 'avro', 'headwater.schema' = 'a INT'",
            "headwater.decode = 'avro'; known: json",
        ),
        ("'headwater.schema' = 'a INT'", "headwater.decode = ''; known: json"),
        ("'headwater.decode' = 'json'", "write 'headwater.schema'"),
        (
            "'headwater.decode' = 'json', 'headwater.schema' = 'a INT', 'headwater.contract' = 'x'",
            "headwater.contract = 'x'; known: evolve, freeze, quarantine",
        ),
    ],
)
def test_a_decoder_that_cannot_be_is_refused(tmp_path: Path, properties: str, says: str) -> None:
    with raises_code("PROPERTY_INVALID") as refused:
        parse(tmp_path, f"CREATE STREAMING TABLE t TBLPROPERTIES ({properties}){SELECT}")
    assert says in str(refused.value)


def test_spark_names_the_line_of_the_file(tmp_path: Path) -> None:
    text = f"CREATE OR REFRESH STREAMING TABLE a{SELECT};\n\nCREATE STREAMING TABLE b AS\nSELECT a FROM ("
    with raises_code("SQL_INVALID") as refused:
        parse(tmp_path, text)
    assert "t.sql:3: " in str(refused.value) and "(line 4, pos " in str(refused.value)


def test_a_table_may_be_called_as_a_clause_is(tmp_path: Path) -> None:
    assert one(tmp_path, "CREATE STREAMING TABLE schedule" + SELECT).name == "silver.schedule"
    assert (
        one(tmp_path, "CREATE STREAMING TABLE IF NOT EXISTS silver.location" + SELECT).name
        == "silver.location"
    )
