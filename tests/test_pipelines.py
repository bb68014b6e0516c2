"""Python written for Spark Declarative Pipelines: it loads as it stands, and its tables are what it says."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import pytest
from pyspark.sql import SparkSession
from raising import raises_code

from headwater.errors import HeadwaterError
from headwater.errors.codes import Code
from headwater.errors.several import SeveralErrors
from headwater.project.definitions import Table, Topic
from headwater.project.load import Project as Loaded
from headwater.project.load import load_project
from headwater.testing import Project

CONF = "kafka:\n  bootstrap.servers: localhost:9092\nspark:\n  shop.most: 10\n"
HEAD = """from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
"""
RAW = '''
@dp.table
def raw() -> DataFrame:
    """Orders, as they came."""
    return (
        spark.readStream
        .format("kafka")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "orders")
        .load()
    )
'''
ORDERS = '''
@dp.table
def orders() -> DataFrame:
    """One row per order."""
    value = F.from_json(F.col("value").cast("string"), "id BIGINT, state STRING, amount DOUBLE")
    return spark.readStream.table("raw").select(value.alias("v"), "ingested_at").select("v.*", "ingested_at")
'''


def files(**texts: str) -> dict[str, str]:
    """A project of these Python files, `<layer>__<name>`."""
    found = {name.replace("__", "/") + ".py": HEAD + dedent(text) for name, text in texts.items()}
    return {"conf/local.yaml": CONF, **found}


def written(root: Path, texts: Mapping[str, str]) -> Path:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def loaded(root: Path, **texts: str) -> Loaded:
    return load_project(written(root, files(**texts)))


class Orders(Project):
    """A project that gets orders."""

    def __init__(self, root: Path, spark: SparkSession, **texts: str) -> None:
        super().__init__(files(**{"bronze__raw": RAW, "silver__orders": ORDERS, **texts}), root, spark=spark)

    def order(self, *orders: tuple[int, str, float | None]) -> None:
        self.send("orders", [{"id": id, "state": state, "amount": amount} for id, state, amount in orders])
        self.step()


def test_each_kind_of_definition_is_declared(tmp_path: Path) -> None:
    project = loaded(
        tmp_path,
        bronze__raw=RAW,
        silver__orders=ORDERS,
        silver__large="""
        dp.create_streaming_table("picked", comment="Picked", table_properties={"delta.appendOnly": "true"})

        @dp.append_flow(target="picked")
        def large() -> DataFrame:
            return spark.readStream.table("orders").where("amount > 100")

        @dp.append_flow(target="picked", name="small_ones")
        def small() -> DataFrame:
            return spark.readStream.table("orders").where("amount < 1")
        """,
        gold__totals="""
        @dp.materialized_view(name="totals", comment="By state", table_properties={"headwater.trigger": "5s"})
        def anything() -> DataFrame:
            return spark.read.table("orders").groupBy("state").count()
        """,
    )
    raw, orders, picked, totals = map(
        project.definition, ("bronze.raw", "silver.orders", "silver.picked", "gold.totals")
    )
    assert isinstance(raw, Topic) and (raw.topic, raw.comment) == ("orders", "Orders, as they came.")
    assert isinstance(orders, Table) and not orders.view
    assert (orders.sources, orders.comment) == (("bronze.raw",), "One row per order.")
    assert isinstance(picked, Table) and picked.comment == "Picked" and picked.sources == ("silver.orders",)
    assert [flow.name for flow in picked.flows] == ["silver.large", "silver.small_ones"]
    assert picked.properties == {"delta.appendOnly": "true"}
    assert isinstance(totals, Table) and totals.view and totals.sources == ("silver.orders",)
    assert (totals.comment, totals.limits.trigger) == ("By state", "5s")


def test_rows_go_from_a_topic_to_a_view(tmp_path: Path, spark: SparkSession) -> None:
    project = Orders(
        tmp_path,
        spark,
        silver__dear='''
        @dp.temporary_view
        def dear() -> DataFrame:
            return spark.read.table("orders").where(F.col("amount") > 10)
        ''',
        gold__totals='''
        @dp.materialized_view
        def totals() -> DataFrame:
            return spark.table("dear").groupBy("state").agg(F.sum("amount").alias("amount"))

        @dp.materialized_view(table_properties={"headwater.keys": "id"})
        def ranked() -> DataFrame:
            orders = spark.table("orders")
            totals = spark.table("totals")
            joined = orders.join(totals, orders.state == totals.state, "left")
            return joined.select(orders.id, orders["state"], totals.amount)
        ''',
    )  # fmt: skip
    project.order((1, "CA", 20.0), (2, "NY", 5.0), (3, "CA", 11.5))
    assert sorted(project.rows("gold.totals")) == [("CA", 31.5)]
    project.order((4, "NY", 12.0))
    assert sorted(project.rows("gold.totals")) == [("CA", 31.5), ("NY", 12.0)]
    assert sorted(project.rows("gold.ranked", "id, state, amount")) == [
        (1, "CA", 31.5),
        (2, "NY", 12.0),
        (3, "CA", 31.5),
        (4, "NY", 12.0),
    ]
    assert "silver.dear" not in project.lake.places()


EXPECTED = (
    '@dp.expect("positive", "amount > 0")',
    '@dp.expect_or_drop("known", "state IS NOT NULL")',
    "@dp.table",
)


@pytest.mark.parametrize("order", list(itertools.permutations(EXPECTED)), ids=lambda order: order[0][:14])
def test_decorators_stand_in_any_order(tmp_path: Path, order: tuple[str, ...]) -> None:
    body = 'def kept() -> DataFrame:\n    return spark.readStream.table("orders")\n'
    project = loaded(tmp_path, bronze__raw=RAW, silver__orders=ORDERS, silver__kept="\n".join([*order, body]))
    rules = project.suites["silver.kept"].rules
    assert {(rule.id, rule.action) for rule in rules} == {("positive", "warn"), ("known", "drop")}
    assert {rule.where.file for rule in rules} == {str(tmp_path / "silver/kept.py")}


def test_expectations_warn_drop_and_fail(tmp_path: Path, spark: SparkSession) -> None:
    project = Orders(
        tmp_path,
        spark,
        silver__kept="""
        @dp.table
        @dp.expect_all({"small": "amount < 100", "round": "amount = round(amount)"})
        @dp.expect_all_or_drop({"positive": "amount > 0"})
        @dp.expect_or_fail("there", "id IS NOT NULL")
        def kept() -> DataFrame:
            return spark.readStream.table("orders")

        dp.create_streaming_table("fed", expect_all_or_drop={"cheap": "amount < 50"})

        @dp.append_flow(target="fed")
        def of_kept() -> DataFrame:
            return spark.readStream.table("kept")
        """,
    )
    project.order((1, "CA", 200.0), (2, "NY", -1.0), (3, "NY", 1.5), (4, "TX", None))
    assert sorted(project.rows("silver.kept", "id")) == [(1,), (3,)]
    assert sorted(project.rows("silver.fed", "id")) == [(3,)]
    (batch,) = [event for event in project.events if event.get("flow") == "silver.kept"]
    assert batch["failed"] == {"small": 2, "round": 2, "positive": 2} and batch["dropped"] == 2
    project.send("orders", [{"state": "CA", "amount": 1.0}])
    with raises_code("EXPECTATION_FAILED"):
        project.step()


def test_a_loop_declares_tables_by_what_it_holds(tmp_path: Path, spark: SparkSession) -> None:
    project = Orders(
        tmp_path,
        spark,
        gold__regional="""
        for state in ["CA", "NY"]:
            @dp.table(name=f"{state.lower()}_orders")
            def regional(state_filter=state) -> DataFrame:
                return spark.table("orders").filter(f"state = '{state_filter}'").select("id")

        def of(state):
            @dp.materialized_view(name=f"count_{state}")
            def counted() -> DataFrame:
                return spark.table("orders").where(F.col("state") == state).groupBy("state").count()

        of("ca")
        of("NY")
        """,
    )
    project.order((1, "CA", 1.0), (2, "NY", 2.0), (3, "CA", 3.0))
    assert sorted(project.rows("gold.ca_orders")) == [(1,), (3,)]
    assert sorted(project.rows("gold.ny_orders")) == [(2,)]
    assert sorted(project.rows("gold.count_NY")) == [("NY", 1)]
    assert sorted(project.rows("gold.count_ca")) == []
    prints = {name: project.tables[name].fingerprint for name in ("gold.ca_orders", "gold.ny_orders")}
    assert len(set(prints.values())) == 2


def test_what_a_topic_gives_may_be_transformed_at_once(tmp_path: Path, spark: SparkSession) -> None:
    text = """
    @dp.table
    def payments() -> DataFrame:
        raw = spark.readStream.format("kafka").options(subscribe="payments", maxOffsetsPerTrigger=7).load()
        return raw.selectExpr("CAST(value AS STRING) AS text", "topic", "offset")

    @dp.table
    def long_ones() -> DataFrame:
        raw = spark.readStream.format("kafka").option("subscribe", "orders").load()
        return raw.select(F.length("value").alias("n")).where("n > 40")
    """
    project = Orders(tmp_path, spark, silver__payments=text)
    found = project.definitions.topics
    assert {name: topic.topic for name, topic in found.items()} == {
        "bronze.raw": "orders",
        "bronze.payments": "payments",
    }
    assert project.definitions.tables["silver.payments"].limits.max_rows_per_batch == 7
    project.send("payments", ["one", "two"]).order((1, "CA", 2.0), (2, "A state of many letters", 1.0))
    assert sorted(project.rows("silver.payments")) == [("one", "payments", 0), ("two", "payments", 1)]
    assert [n > 40 for (n,) in project.rows("silver.long_ones")] == [True]


def test_the_forms_of_the_programming_guide(tmp_path: Path) -> None:
    text = """
    @dp.materialized_view
    def basic_mv() -> DataFrame:
        return spark.table("silver.orders")

    @dp.materialized_view(name="trips_mv")
    def named_mv() -> DataFrame:
        return spark.table("silver.orders")

    @dp.temporary_view
    def basic_tv() -> DataFrame:
        return spark.table("silver.orders")

    @dp.table
    def basic_st() -> DataFrame:
        return spark.readStream.table("silver.orders")

    @dp.materialized_view
    def customer_orders() -> DataFrame:
        return (
            spark.table("orders")
            .join(spark.table("basic_tv"), "id")
            .select("id", "amount", F.col("ingested_at").cast("date").alias("order_date"))
        )

    @dp.materialized_view
    def daily_orders_by_state() -> DataFrame:
        return (
            spark.table("customer_orders")
            .groupBy("state", "order_date")
            .count()
            .withColumnRenamed("count", "order_count")
        )

    for region in ["north america", "asia"]:
        @dp.table(name=f"{region.lower().replace(' ', '_')}_customer_orders")
        def regional_customer_orders(region_filter=region) -> DataFrame:
            orders = spark.table("customer_orders")
            regions = spark.table("basic_tv")
            return orders.join(regions, orders.id == regions.id).filter(f"region = '{region_filter}'")

    dp.create_streaming_table("customers_us")

    @dp.append_flow(target = "customers_us")
    def append_customers_us_west() -> DataFrame:
        return spark.readStream.table("basic_st")

    @dp.append_flow(target = "customers_us")
    def append_customers_us_east() -> DataFrame:
        return spark.readStream.table("silver.orders")
    """
    project = loaded(tmp_path, bronze__raw=RAW, silver__orders=ORDERS, gold__guide=text)
    orders, joined = ("silver.orders",), ("gold.customer_orders", "silver.orders")
    assert {table.name: (table.view, table.sources) for table in project.tables.values()} == {
        "silver.orders": (False, ("bronze.raw",)),
        "gold.basic_mv": (True, orders),
        "gold.trips_mv": (True, orders),
        "gold.basic_st": (False, orders),
        "gold.customer_orders": (True, orders),
        "gold.daily_orders_by_state": (True, ("gold.customer_orders",)),
        "gold.north_america_customer_orders": (True, joined),
        "gold.asia_customer_orders": (True, joined),
        "gold.customers_us": (False, ("gold.basic_st", "silver.orders")),
    }
    assert [flow.name for flow in project.tables["gold.customers_us"].flows] == [
        "gold.append_customers_us_west",
        "gold.append_customers_us_east",
    ]


def test_a_table_that_decodes_has_a_quarantine(tmp_path: Path, spark: SparkSession) -> None:
    text = """
    DECODED = {"headwater.decode": "json", "headwater.schema": "id BIGINT, amount DOUBLE"}

    @dp.table(table_properties=DECODED)
    @dp.expect_or_drop("positive", "amount > 0")
    def decoded() -> DataFrame:
        return spark.readStream.table("raw").select("id", "amount")
    """
    project = Orders(tmp_path, spark, silver__decoded=text)
    project.send("orders", ["no JSON", {"id": 1, "amount": 2.0}, {"id": 2, "amount": -2.0}]).step()
    assert sorted(project.rows("silver.decoded", "id, _source.offset")) == [(1, 1)]
    assert len(project.rows("quarantine.silver_decoded", "reason")) == 1


def test_a_topic_is_kept_in_bronze_once(tmp_path: Path) -> None:
    plain = """
    @dp.table
    def copied() -> DataFrame:
        return spark.readStream.format("kafka").option("subscribe", "{topic}").load()
    """
    text = plain.format(topic="orders") + plain.format(topic="web.clicks").replace("copied", "clicks")
    named = plain.format(topic="mails").replace("copied", "mails").replace("load()", "load().select('value')")
    project = loaded(tmp_path, bronze__raw=RAW, silver__copied=text, gold__more=text, bronze__mails=named)
    assert {topic.name: (topic.topic, topic.servers) for topic in project.topics.values()} == {
        "bronze.raw": ("orders", "localhost:9092"),
        "bronze.web_clicks": ("web.clicks", ""),
        "bronze.mails_records": ("mails", ""),
    }
    assert {name: table.sources for name, table in project.tables.items()} == {
        "silver.copied": ("bronze.raw",),
        "silver.clicks": ("bronze.web_clicks",),
        "gold.copied": ("bronze.raw",),
        "gold.clicks": ("bronze.web_clicks",),
        "bronze.mails": ("bronze.mails_records",),
    }


def test_settings_are_those_of_the_environment(tmp_path: Path, spark: SparkSession) -> None:
    text = """
    LEAST = int(spark.conf.get("shop.least", "2"))

    @dp.table
    def few() -> DataFrame:
        most = spark.conf.get("shop.most")
        return spark.readStream.table("orders").where(f"id BETWEEN {LEAST} AND {most}")
    """
    project = Orders(tmp_path, spark, silver__few=text)
    project.order((1, "CA", 1.0), (2, "CA", 1.0), (11, "CA", 1.0))
    assert sorted(project.rows("silver.few", "id")) == [(2,)]
    was = project.tables["silver.few"].fingerprint
    project.change("conf/local.yaml", "10", "20")
    assert project.tables["silver.few"].fingerprint != was


def test_sql_and_python_read_each_other(tmp_path: Path, spark: SparkSession) -> None:
    text = """
    @dp.temporary_view
    def dear() -> DataFrame:
        return spark.readStream.table("orders").where("amount > 10")

    @dp.materialized_view
    def counted() -> DataFrame:
        return spark.table("dear_ones").groupBy("state").count()
    """
    project = Orders(tmp_path, spark, silver__dear=text)
    project.write(
        {"silver/dear_ones.sql": "CREATE STREAMING TABLE dear_ones AS SELECT id, state FROM STREAM dear d"}
    ).restart()
    project.order((1, "CA", 20.0), (2, "NY", 5.0), (3, "CA", 11.5))
    assert sorted(project.rows("silver.dear_ones")) == [(1, "CA"), (3, "CA")]
    assert sorted(project.rows("silver.counted")) == [("CA", 2)]


def test_a_watermark_tells_the_time_of_windows(tmp_path: Path, spark: SparkSession) -> None:
    windows = """
    @dp.table(table_properties={"headwater.emit": "final"})
    def per_minute() -> DataFrame:
        orders = spark.readStream.table("timed").withWatermark("at", "10 seconds")
        grouped = orders.groupBy(F.window("at", "1 minute").alias("w"), "state").agg(F.count("*").alias("n"))
        return grouped.select(F.col("w.start").alias("start"), "state", "n")
    """
    timed = """
    import headwater as hw

    @hw.table(source="bronze.raw", decode=hw.json("at TIMESTAMP, state STRING"))
    def timed(raw):
        return raw.drop("_rescued")
    """
    project = Orders(tmp_path, spark, silver__timed=timed, gold__windows=windows)
    table = project.definitions.tables["gold.per_minute"]
    assert (table.event_time, table.delay, table.emit) == ("at", "10 seconds", "final")
    at = [project.clock.now() - timedelta(seconds=seconds) for seconds in (300, 299, 120)]
    project.send("orders", [{"at": each.isoformat(), "state": "CA"} for each in at]).step()
    assert [row[1:] for row in project.rows("gold.per_minute")][-1] == ("CA", 1) or [
        n for _, _, n in project.rows("gold.per_minute")
    ] == [2]


def test_sql_is_run_where_it_reads(tmp_path: Path, spark: SparkSession) -> None:
    text = """
    @dp.temporary_view()
    def cheap() -> DataFrame:
        text = "SELECT id, state, '{x}' AS x FROM STREAM orders o WHERE o.amount < :most"
        return spark.sql(text, args={"most": 10})

    @dp.table
    def cheap_ones() -> DataFrame:
        return spark.readStream.table("cheap")

    @dp.materialized_view
    def names() -> DataFrame:
        names = spark.createDataFrame([("CA", "California")], "state STRING, name STRING")
        numbers = spark.range(2)
        orders = spark.sql("WITH ours AS (SELECT * FROM silver.cheap_ones) SELECT state FROM ours LIMIT 5")
        return orders.join(F.broadcast(names), "state").crossJoin(numbers).groupBy("name").count()
    """
    project = Orders(tmp_path, spark, silver__cheap=text)
    project.order((1, "CA", 20.0), (2, "NY", 5.0), (3, "CA", 1.5))
    assert sorted(project.rows("silver.cheap_ones")) == [(2, "NY", "{x}"), (3, "CA", "{x}")]
    assert sorted(project.rows("silver.names")) == [("California", 2)]


def test_functions_of_any_style_show_what_they_read(tmp_path: Path, spark: SparkSession) -> None:
    text = """
    from functools import reduce
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import broadcast, col, udf
    from pyspark.sql.types import StringType
    from pyspark.sql.window import Window

    session = SparkSession.builder.appName("x").getOrCreate()
    assert SparkSession.active() is session
    POSITIVE = col("amount") > 0

    @udf(returnType=StringType())
    def lower(text):
        return text.lower()

    def of(name):
        return session.readStream.table(name)

    @dp.table
    def lowered() -> DataFrame:
        orders = of("orders")
        for name in orders.columns:
            orders = orders.withColumnRenamed(name, name)
        orders = orders.where(POSITIVE).select("id", lower("state").alias("state"))
        return orders.transform(lambda df: df.na.fill("none", [*orders.columns, *["state"]]).na.drop())

    @dp.materialized_view
    def several() -> DataFrame:
        parts = [spark.table("orders"), spark.read.table("lowered")]
        whole = reduce(DataFrame.unionByName, [part.select("id", "state") for part in parts])
        ranked = whole.withColumn("place", F.row_number().over(Window.partitionBy("id").orderBy("state")))
        names = broadcast(spark.table("names"))
        return ranked.join(names, "state", "left").filter(F.col("place").isNotNull())

    @dp.materialized_view(schema="state STRING NOT NULL, name STRING")
    def names() -> DataFrame:
        orders = spark.table("orders")
        return orders.select("state", F.concat(F.lit("state "), "state").alias("name")).distinct()
    """
    project = Orders(tmp_path, spark, silver__several=text)
    assert project.definitions.tables["silver.several"].sources == (
        "silver.orders",
        "silver.lowered",
        "silver.names",
    )
    project.order((1, "CA", 20.0), (2, "NY", -5.0))
    assert sorted(project.rows("silver.lowered")) == [(1, "ca")]
    assert sorted(project.rows("silver.several", "id, state, place, name")) == [
        (1, "CA", 1, "state CA"),
        (1, "ca", 2, None),
        (2, "NY", 1, "state NY"),
    ]


def test_what_was_not_read_when_it_was_loaded_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    text = """
    @dp.materialized_view
    def late() -> DataFrame:
        orders = spark.table("orders")
        return orders.join(spark.table("other"), "id") if "id" in orders.columns else orders
    """
    project = Orders(tmp_path, spark, silver__late=text)
    with raises_code("READ_NOT_FORESEEN", match="late.py:8: silver.late reads other", table="silver.late"):
        _ = project.tables


def test_a_schema_that_the_rows_do_not_have_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    text = """
    @dp.table(schema="id INT, state STRING")
    def other() -> DataFrame:
        return spark.readStream.table("orders").select("id", "state")
    """
    project = Orders(tmp_path, spark, silver__other=text)
    with raises_code("SCHEMA_DIFFERS", match="in id", table="silver.other"):
        _ = project.tables


REFUSED: list[tuple[str, str, Code, str]] = [
    ('return spark.read.csv("/landing/x.csv")', "spark.read.csv", "CALL_NOT_SUPPORTED", "hw.files"),
    ('return spark.read.format("json").load("/x")', "load", "CALL_NOT_SUPPORTED", "hw.files"),
    ('return spark.readStream.format("cloudFiles").load("/x")', "load", "CALL_NOT_SUPPORTED", "hw.files"),
    ('return spark.readStream.format("rate").load()', "load", "CALL_NOT_SUPPORTED", "kafka"),
    ('return spark.read.format("kafka").load()', "load", "CALL_NOT_SUPPORTED", "readStream"),
    ('spark.sql("CREATE TABLE x (a INT)")', "SQL", "CALL_NOT_SUPPORTED", "SELECT"),
    ('spark.sql("DROP TABLE orders")', "SQL", "CALL_NOT_SUPPORTED", "SELECT"),
    ('spark.sql("INSERT INTO x SELECT * FROM orders")', "SQL", "CALL_NOT_SUPPORTED", "SELECT"),
    ('return spark.sql("SELECT * FROM {x}", x=1)', "by name", "CALL_NOT_SUPPORTED", "args"),
    ('spark.table("orders").collect()', "collect", "CALL_NOT_SUPPORTED", "query"),
    ('n = spark.table("orders").count()', "count", "CALL_NOT_SUPPORTED", "query"),
    ('x = spark.table("orders").select("id").toPandas()', "toPandas", "CALL_NOT_SUPPORTED", "query"),
    (
        'x = spark.table("orders").stat.approxQuantile("id", [0.5], 0)',
        "approxQuantile",
        "CALL_NOT_SUPPORTED",
        "query",
    ),
    ('x = spark.table("orders").rdd', "rdd", "CALL_NOT_SUPPORTED", "query"),
    (
        'x = spark.table("orders").groupBy("state").pivot("id").count()',
        "pivots",
        "CALL_NOT_SUPPORTED",
        "values",
    ),
    ('spark.table("orders").write.saveAsTable("x")', "write", "CALL_NOT_SUPPORTED", "sink"),
    ('spark.readStream.table("orders").writeStream.start()', "writeStream", "CALL_NOT_SUPPORTED", "sink"),
    ('spark.table("orders").cache()', "cache", "CALL_NOT_SUPPORTED", "leave it out"),
    ('spark.table("orders").createTempView("x")', "createTempView", "CALL_NOT_SUPPORTED", "temporary_view"),
    ('spark.udf.register("f", len)', "spark.udf", "CALL_NOT_SUPPORTED", "F.udf"),
    ('spark.catalog.dropTempView("x")', "spark.catalog", "CALL_NOT_SUPPORTED", "declared"),
    ("spark.sparkContext.parallelize([1])", "sparkContext", "CALL_NOT_SUPPORTED", "DataFrames"),
    (
        'return spark.readStream.option("startingVersion", 1).table("orders")',
        "option",
        "CALL_NOT_SUPPORTED",
        "out",
    ),
    (
        "from pyspark.sql import SparkSession; SparkSession.active()",
        "session",
        "CALL_NOT_SUPPORTED",
        "use spark",
    ),
    ("return KAFKA.load()", "not one topic", "KAFKA_READ_INVALID", "subscribe"),
    (
        'return KAFKA.option("subscribe", "a,b").load()',
        "not one topic",
        "KAFKA_READ_INVALID",
        "a table for each",
    ),
    (
        'return KAFKA.option("subscribePattern", "a.*").load()',
        "subscribepattern",
        "KAFKA_READ_INVALID",
        "topic",
    ),
    (
        'return KAFKA.options(subscribe="a", startingOffsets="latest").load()',
        "latest",
        "KAFKA_READ_INVALID",
        "--start",
    ),
    (
        'return KAFKA.options(subscribe="a", endingOffsets="x").load()',
        "endingoffsets",
        "KAFKA_READ_INVALID",
        "under kafka",
    ),
    (
        'return spark.table("orders").limit(int(spark.conf.get("shop.least")))',
        "shop.least",
        "CALL_NOT_SUPPORTED",
        "conf/",
    ),
    ('spark.conf.set("a", "b")', "spark.conf.set", "CALL_NOT_SUPPORTED", "conf/"),
]


@pytest.mark.parametrize(("line", "says", "code", "hint"), REFUSED, ids=[line for line, *_ in REFUSED])
def test_what_a_function_may_not_do_is_refused_by_its_line(
    tmp_path: Path, line: str, says: str, code: Code, hint: str
) -> None:
    line = line.replace("KAFKA", 'spark.readStream.format("kafka")')
    wrong = f"@dp.table\ndef wrong() -> DataFrame:\n    x = 1\n    {line}\n"
    root = written(tmp_path, files(bronze__raw=RAW, silver__orders=ORDERS, silver__wrong=wrong))
    with raises_code(code, match=says, table="silver.wrong", file="silver/wrong.py") as error:
        load_project(root)
    assert f"wrong.py:{HEAD.count(chr(10)) + 4}: silver.wrong " in str(error.value)
    assert error.value.hint and hint in error.value.hint


TOP_LEVEL: list[tuple[str, str, Code]] = [
    ('regions = spark.table("orders").collect()', "while the file is loaded", "CALL_NOT_SUPPORTED"),
    ('dp.create_sink("x", "kafka", {})', "create_sink", "CALL_NOT_SUPPORTED"),
    ('dp.create_auto_cdc_from_snapshot_flow(target="a", source="b")', "which delivery", "CALL_NOT_SUPPORTED"),
    ('dp.create_auto_cdc_flow("a", "b", "k", "at")', "a list of columns", "ARGUMENT_NOT_SUPPORTED"),
    ('dp.create_auto_cdc_flow("a", "b", ["k"], 1)', "1 is no text", "ARGUMENT_NOT_SUPPORTED"),
    ('dp.create_streaming_table("x", path="/x")', "path", "ARGUMENT_NOT_SUPPORTED"),
    ('dp.create_streaming_table("x", format="parquet")', "parquet", "ARGUMENT_NOT_SUPPORTED"),
    ('dp.create_streaming_table("x", spark_conf={"a": "b"})', "spark_conf", "ARGUMENT_NOT_SUPPORTED"),
    ('dp.create_streaming_table("x", cluster_by=["a"])', "cluster_by", "ARGUMENT_NOT_SUPPORTED"),
    ('dp.create_streaming_table("x", schema="a INT")', "schema", "ARGUMENT_NOT_SUPPORTED"),
    ('dp.create_streaming_table(3)', "name=3", "ARGUMENT_NOT_SUPPORTED"),
    ('dp.table("x")', "'x'", "ARGUMENT_NOT_SUPPORTED"),
    ('dp.table(schema_="a INT")(len)', "schema_", "ARGUMENT_NOT_SUPPORTED"),
    ('@dp.table(once=True)\ndef x(): ...', "once = True", "ARGUMENT_NOT_SUPPORTED"),
    ('dp.expect("x", F)(len)', "expects", "ARGUMENT_NOT_SUPPORTED"),
    ('dp.expect("x", "a > 1")(len)', "declares nothing", "CALL_NOT_SUPPORTED"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "says", "code"), TOP_LEVEL, ids=[line for line, *_ in TOP_LEVEL])
def test_what_a_file_may_not_say_is_refused_by_its_line(
    tmp_path: Path, line: str, says: str, code: Code
) -> None:
    root = written(tmp_path, files(bronze__raw=RAW, silver__orders=ORDERS, silver__wrong=line + "\n"))
    with raises_code(code, match=says, file="silver/wrong.py") as error:
        load_project(root)
    assert f"wrong.py:{HEAD.count(chr(10)) + 1}: " in str(error.value)


MISREAD: list[tuple[str, Code]] = [
    ('@dp.materialized_view\ndef x(): return spark.readStream.table("orders")', "VIEW_READS_STREAM"),
    (
        'dp.create_streaming_table("t")\n@dp.append_flow(target="t")\ndef x(): return spark.table("orders")',
        "STREAM_MISSING",
    ),
    ('@dp.append_flow(target="t")\ndef x(): return spark.readStream.table("orders")', "FLOW_WITHOUT_TABLE"),
    ('dp.create_streaming_table("t")', "TABLE_NOT_FED"),
    ('@dp.table\ndef x(): return spark.readStream.table("ordesr")', "UNKNOWN_SOURCE"),
    ('@dp.table(name="gold.x")\ndef x(): return spark.readStream.table("orders")', "WRONG_FOLDER"),
    ('@dp.table\ndef orders(): return spark.readStream.table("raw")', "NAME_TWICE"),
    ('@dp.table\ndef x(): return spark.readStream.table("x")', "UNKNOWN_SOURCE"),
    ("@dp.materialized_view\ndef x(): return spark.range(10)", "VIEW_READS_NOTHING"),
    ("@dp.table\ndef x(): return undefined", "DEFINITION_FAILED"),
    (
        '@dp.temporary_view\n@dp.expect("x", "id > 1")\ndef x(): return spark.table("orders")',
        "ACTION_NOT_POSSIBLE",
    ),
]


@pytest.mark.parametrize(("text", "code"), MISREAD, ids=[f"{code}: {text[:40]}" for text, code in MISREAD])
def test_what_cannot_be_read_so_is_refused(tmp_path: Path, text: str, code: Code) -> None:
    root = written(tmp_path, files(bronze__raw=RAW, silver__orders=ORDERS, silver__wrong=text + "\n"))
    with pytest.raises(HeadwaterError) as error:
        load_project(root)
    assert code in {each.code for each in getattr(error.value, "errors", [error.value])}


def test_all_that_is_wrong_in_a_file_is_said(tmp_path: Path) -> None:
    text = """
    @dp.table
    def one() -> DataFrame:
        return spark.read.csv("/x")

    @dp.table
    def two() -> DataFrame:
        return spark.table("orders").collect()
    """
    root = written(tmp_path, files(bronze__raw=RAW, silver__orders=ORDERS, silver__wrong=text))
    with pytest.raises(SeveralErrors) as error:
        load_project(root)
    assert [each.table for each in error.value.errors] == ["silver.one", "silver.two"]


def test_loading_starts_no_spark_and_leaves_pyspark_as_it_was(tmp_path: Path) -> None:
    written(tmp_path, files(bronze__raw=RAW, silver__orders=ORDERS))
    script = f"""
from pathlib import Path
from pyspark import SparkContext
from pyspark.sql import SparkSession, functions
from headwater.project.load import load_project
was = functions.broadcast, SparkSession.__dict__["active"], SparkSession.Builder.getOrCreate
assert list(load_project(Path({str(tmp_path)!r})).tables) == ["silver.orders"]
assert SparkContext._active_spark_context is None and SparkSession.getActiveSession() is None
assert was == (functions.broadcast, SparkSession.__dict__["active"], SparkSession.Builder.getOrCreate)
from pyspark import pipelines
assert pipelines.__name__ == "pyspark.pipelines" and not hasattr(pipelines, "expect")
"""
    subprocess.run([sys.executable, "-c", script], check=True)
