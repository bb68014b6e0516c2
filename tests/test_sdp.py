"""Texts of Spark Declarative Pipelines and of Lakeflow: what is taken from them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from raising import raises_code

from headwater.errors.codes import Code
from headwater.errors.several import SeveralErrors
from headwater.operations.validation import validate
from headwater.planner.changes import plan
from headwater.project import sql
from headwater.project.definitions import Declaration, Json, Limits, Table, Topic, View
from headwater.testing import Project

SELECT = " AS SELECT * FROM STREAM raw"


def parse(tmp_path: Path, text: str, layer: str = "silver") -> list[Declaration]:
    path = tmp_path / "t.sql"
    path.write_text(text, encoding="utf-8")
    return sql.parse(path, layer)


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
AS SELECT o.* FROM STREAM(LIVE.raw) AS o WATERMARK o.sent_at DELAY OF INTERVAL '10' MINUTES WHERE note > 'é;';
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
        *("SELECT", "o.*", "FROM", "`_x`", "AS", "`o`", "WHERE", "note", ">", "'é;'")
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
    ("CREATE FLOW f AS AUTO CDC INTO t FROM STREAM s KEYS (a)", "STATEMENT_NOT_SUPPORTED", 1, "SEQUENCE BY"),
    ("\nAPPLY CHANGES INTO t FROM STREAM s SEQUENCE BY b", "STATEMENT_NOT_SUPPORTED", 2, "KEYS (column)"),
    ("APPLY CHANGES INTO t FROM STREAM s", "STATEMENT_NOT_SUPPORTED", 1, "KEYS (column)"),
    ("AUTO CDC INTO t KEYS (a) SEQUENCE BY b", "STATEMENT_NOT_SUPPORTED", 1, "FROM STREAM source"),
    ("AUTO CDC FROM STREAM s KEYS (a) SEQUENCE BY b", "STATEMENT_NOT_SUPPORTED", 1, "INTO table"),
    ("AUTO CDC INTO t FROM SNAPSHOT s KEYS (a)", "STATEMENT_NOT_SUPPORTED", 1, "which delivery"),
    (
        "AUTO CDC INTO t FROM STREAM s WHERE a KEYS (a) SEQUENCE BY b",
        "STATEMENT_NOT_SUPPORTED",
        1,
        "KEYS (column)",
    ),
    (
        "AUTO CDC INTO t FROM STREAM s KEYS (a)\nKEYS (a) SEQUENCE BY b",
        "STATEMENT_NOT_SUPPORTED",
        2,
        "say it once",
    ),
    ("AUTO CDC INTO t FROM STREAM s KEYS (a + 1) SEQUENCE BY b", "STATEMENT_NOT_SUPPORTED", 1, "names alone"),
    (
        "AUTO CDC INTO t FROM STREAM s KEYS (a) SEQUENCE BY b STORED AS SCD TYPE 3",
        "STATEMENT_NOT_SUPPORTED",
        1,
        "STORED AS SCD TYPE 1, or 2",
    ),
    (
        "AUTO CDC INTO t FROM STREAM s KEYS (a) APPLY AS TRUNCATE WHEN c SEQUENCE BY b STORED AS SCD TYPE 2",
        "STATEMENT_NOT_SUPPORTED",
        1,
        "leave one of the two out",
    ),
    (
        "AUTO CDC INTO t FROM STREAM s KEYS (a) SEQUENCE BY b TRACK HISTORY ON c",
        "STATEMENT_NOT_SUPPORTED",
        1,
        "leave one of the two out",
    ),
    (
        "CREATE STREAMING TABLE t FLOW AUTO CDC INTO u FROM STREAM s KEYS (a) SEQUENCE BY b",
        "STATEMENT_NOT_SUPPORTED",
        1,
        "leave INTO out",
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


def test_each_statement_that_is_wrong_by_itself_is_said(tmp_path: Path) -> None:
    text = f"""CREATE STREAMING TABLE gold.a{SELECT};
CREATE STREAMING TABLE b{SELECT};
CREATE STREAMING TABLE c TBLPROPERTIES ('headwater.emit' = 'x'){SELECT}"""
    with pytest.raises(SeveralErrors) as refused:
        parse(tmp_path, text)
    assert [error.code for error in refused.value.errors] == ["WRONG_FOLDER", "PROPERTY_INVALID"]


def test_each_statement_that_is_none_is_said(tmp_path: Path) -> None:
    text = """CREATE FLOW f AS AUTO CDC INTO y FROM STREAM orders KEYS (id);
CREATE MATERIALIZED VIEW z AS SELECT a FROM (;
CREATE STREAMING TABLE q CLUSTER BY (a) AS SELECT a FROM STREAM orders"""
    with pytest.raises(SeveralErrors) as refused:
        parse(tmp_path, text)
    assert [str(error).partition(" ")[0].rpartition("/")[2] for error in refused.value.errors] == [
        "t.sql:1:",
        "t.sql:2:",
        "t.sql:3:",
    ]


@pytest.mark.parametrize("text", ["'x FROM", "`x FROM", "1 /* x"])
def test_what_does_not_end_is_said_with_the_line_in_which_it_begins(tmp_path: Path, text: str) -> None:
    told = "CREATE STREAMING TABLE a AS SELECT 'two\nlines' FROM STREAM b;\n\nCREATE STREAMING TABLE c AS\n"
    with raises_code("SQL_INVALID", match=r"t\.sql:5: .* does not end; end it"):
        parse(tmp_path, f"{told}SELECT {text}\n;\n\n")


def test_a_table_may_be_called_as_a_clause_is(tmp_path: Path) -> None:
    assert one(tmp_path, "CREATE STREAMING TABLE schedule" + SELECT).name == "silver.schedule"
    assert (
        one(tmp_path, "CREATE STREAMING TABLE IF NOT EXISTS silver.location" + SELECT).name
        == "silver.location"
    )


SHOP = {
    "bronze/raw.sql": """CREATE STREAMING TABLE raw AS SELECT * FROM STREAM read_kafka(subscribe => 'orders');
CREATE STREAMING TABLE other AS SELECT * FROM STREAM read_kafka(subscribe => 'more');""",
    "silver/orders.sql": """-- what comes, checked
CREATE OR REFRESH STREAMING TABLE orders (
  CONSTRAINT positive EXPECT (amount > 0) ON VIOLATION DROP ROW,
  CONSTRAINT named EXPECT (customer IS NOT NULL)
) TBLPROPERTIES ('headwater.decode' = 'json',
  'headwater.schema' = 'id INT, customer STRING, amount INT, at TIMESTAMP')
AS SELECT id, customer, amount, at FROM STREAM(raw);

CREATE TEMPORARY VIEW large AS SELECT customer, amount, at FROM STREAM orders WHERE amount >= 100;
CREATE STREAMING TABLE few AS SELECT * FROM STREAM large;
CREATE STREAMING TABLE guessed AS
SELECT from_json(CAST(value AS STRING), 'id INT').id AS id FROM STREAM other;
""",
    "silver/all_orders.sql": """CREATE STREAMING TABLE all_orders;
CREATE FLOW from_orders AS INSERT INTO all_orders SELECT id, amount, 'first' AS shop FROM STREAM(orders);
CREATE FLOW from_others AS INSERT INTO all_orders
SELECT id, 0 AS amount, 'second' AS shop FROM STREAM(guessed);""",
    "gold/reports.sql": """CREATE MATERIALIZED VIEW copied AS SELECT * FROM orders;
CREATE MATERIALIZED VIEW totals (CONSTRAINT known EXPECT (customer IS NOT NULL AND customer <> '{x}'))
AS SELECT customer, sum(amount) AS total FROM orders GROUP BY customer;
CREATE STREAMING TABLE per_minute TBLPROPERTIES ('headwater.emit' = 'final')
AS SELECT window.start AS minute, sum(amount) AS total
FROM STREAM few AS f WATERMARK at DELAY OF INTERVAL 1 MINUTE GROUP BY window(at, '1 minute');""",
}


def order(id: int, customer: str | None, amount: int | None, minute: int = 0) -> dict[str, object]:
    return {"id": id, "customer": customer, "amount": amount, "at": f"2026-01-01T00:{minute:02}:00Z"}


def test_a_project_of_such_texts_runs(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Project(SHOP, tmp_path, spark=interpreted, at="2026-01-01T00:30:00Z")
    tables = case.definitions.tables
    assert tables["silver.few"].carries and not tables["silver.all_orders"].flows[0].carries
    records = [
        order(1, "ann", 100),
        order(2, None, 150),
        order(3, "bob", -1),
        order(4, "bob", None),
        order(5, "cy", 7),
    ]
    case.send("orders", [*records, order(1, "ann", 100), b"no JSON", order(6, "ann", 200, 5)])
    case.send("more", [{"id": 7}, b"no JSON"]).step()
    assert case.rows("silver.orders", "id, customer, amount") == [
        *[(1, "ann", 100)] * 2,
        (2, None, 150),
        (5, "cy", 7),
        (6, "ann", 200),
    ]
    (batch,) = case.batches("silver.orders")
    assert (batch.dropped, dict(batch.failed)) == (2, {"malformed": 1, "positive": 2, "named": 1})
    assert case.rows("quarantine.silver_orders", "value, rules") == [(b"no JSON", ["malformed"])]
    assert case.rows("gold.copied", "id, customer, amount") == case.rows(
        "silver.orders", "id, customer, amount"
    )
    assert case.rows("gold.totals") == [("ann", 400), ("cy", 7), (None, 150)]
    assert case.rows("silver.few", "customer, amount, _source.offset") == [
        ("ann", 100, 0),
        ("ann", 100, 5),
        ("ann", 200, 7),
        (None, 150, 1),
    ]
    assert case.rows("silver.all_orders", "id, amount, shop")[-2:] == [(7, 0, "second"), (None, 0, "second")]
    case.end()
    assert [total for _, total in case.rows("gold.per_minute", "minute, total")] == [350, 200]
    (judged,) = validate.run(case.definitions, "gold.totals", docs=tmp_path / "docs").validations
    (outcome,) = judged.outcomes
    assert (outcome.expectation, outcome.status, outcome.action) == (*("known", "failed", "warn"),), (
        outcome.message
    )
    assert outcome.observed_value == "1"
    warned = {line.table: line.warnings for line in plan(case.definitions) if line.warnings}
    said = "silver/orders.sql:12: from_json makes NULL of a record of bronze.other"
    assert list(warned) == ["silver.guessed"] and said in str(warned)


def test_what_is_wrong_with_a_query_has_the_line_of_the_file(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    wrong = """CREATE OR REFRESH STREAMING TABLE fine AS SELECT id FROM STREAM orders;
CREATE STREAMING TABLE wrong AS
  SELECT id,
    nothing FROM STREAM orders"""
    case = Project({**SHOP, "silver/wrong.sql": wrong}, tmp_path, spark=interpreted)
    with raises_code("DEFINITION_FAILED", table="silver.wrong", file="wrong.sql") as refused:
        case.step()
    said = str(refused.value)
    assert "wrong.sql:4: silver.wrong: " in said and "; line 4 pos 4; mend" in said and "SQLSTATE" not in said
