"""One project, whose files `spark-pipelines run` and `headwater run --once` both run, to equal rows.

Spark's command needs a few packages of its own (`spark_pipelines.lock`), which the test puts into a folder.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

import pytest
from commands import ran
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

from headwater import query
from headwater.runtime import jars

ORDERS = 2_000
LOCK = Path(__file__).with_name("spark_pipelines.lock")
PROGRAMS = Path(sys.executable).parent
TABLES = {
    "silver.orders": "id, customer, side, amount, placed_at",
    "silver.large_orders": "id, customer, amount",
    "silver.trades": "id, customer, amount",
    "gold.per_customer": "customer, orders, total, latest",
    "gold.ranked": "customer, total, place",
    "gold.positions": "customer, held, large",
}
FILES = {
    "conf/local.yaml": "kafka: {{bootstrap.servers: '{servers}'}}\n",
    "spark-pipeline.yml": """name: orders
storage: file://{root}/storage
libraries:
  - glob: {{include: bronze/**}}
  - glob: {{include: silver/**}}
  - glob: {{include: gold/**}}
""",
    "bronze/raw.py": """from pyspark import pipelines as dp


@dp.table
def raw_orders():
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", "{servers}")
        .option("subscribe", "{topic}")
        .option("startingOffsets", "earliest")
        .load()
    )
""",
    "silver/orders.sql": """CREATE STREAMING TABLE orders COMMENT 'One row per order' AS
SELECT v.id, v.customer, v.side, v.amount, v.placed_at
FROM (
  SELECT from_json(
    CAST(value AS STRING), 'id BIGINT, customer STRING, side STRING, amount INT, placed_at TIMESTAMP'
  ) AS v
  FROM STREAM(raw_orders)
) WHERE v.id IS NOT NULL;

CREATE TEMPORARY VIEW large AS SELECT id, customer, amount FROM STREAM orders WHERE amount >= 100;

CREATE STREAMING TABLE large_orders AS SELECT * FROM STREAM large;

CREATE STREAMING TABLE trades;

CREATE FLOW bought AS INSERT INTO trades BY NAME
SELECT id, customer, amount FROM STREAM orders WHERE side = 'buy';

CREATE FLOW sold AS INSERT INTO trades BY NAME
SELECT id, customer, -amount AS amount FROM STREAM orders WHERE side = 'sell';
""",
    "gold/totals.sql": """CREATE MATERIALIZED VIEW per_customer AS
SELECT customer, count(*) AS orders, sum(amount) AS total, max(placed_at) AS latest
FROM orders GROUP BY customer;

CREATE MATERIALIZED VIEW ranked AS
SELECT customer, total, rank() OVER (ORDER BY total DESC, customer) AS place FROM per_customer;
""",
    "gold/positions.py": """from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


@dp.materialized_view(comment="What each customer holds, and how many large orders it made")
def positions() -> DataFrame:
    held = spark.read.table("trades").groupBy("customer").agg(F.sum("amount").alias("held"))
    large = spark.read.table("large_orders").groupBy("customer").agg(F.count("*").alias("large"))
    return held.join(large, "customer", "left")
""",
}
DEFAULTS = """spark.driver.extraClassPath {jars}
spark.sql.warehouse.dir file://{root}/warehouse
spark.sql.sources.default delta
spark.sql.extensions io.delta.sql.DeltaSparkSessionExtension
spark.sql.catalog.spark_catalog org.apache.spark.sql.delta.catalog.DeltaCatalog
spark.databricks.delta.snapshotPartitions 1
spark.sql.session.timeZone UTC
spark.sql.shuffle.partitions 1
spark.ui.enabled false
"""


@pytest.fixture
def project(tmp_path: Path, broker: str) -> Path:
    """The project, in whose topic of two partitions are orders, some of which are broken."""
    topic, seed = f"orders-{tmp_path.name}", random.randrange(10**9)
    print(f"seed {seed}")
    admin, producer = AdminClient({"bootstrap.servers": broker}), Producer({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result()
    draw = random.Random(seed)
    for number in range(ORDERS):
        order = {
            "id": number,
            "customer": draw.choice("abcdefg"),
            "side": draw.choice(["buy", "sell"]),
            "amount": draw.randrange(1, 300),
            "placed_at": f"2026-01-01T00:{draw.randrange(60):02}:00Z",
        }
        producer.produce(topic, json.dumps(order) if draw.random() > 0.02 else "{")
    assert producer.flush(30) == 0
    root = tmp_path / "project"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text.format(servers=broker, topic=topic, root=root))
    return root


@pytest.mark.torture
def test_both_run_it_to_equal_rows(project: Path, tmp_path: Path) -> None:
    packages, settings = tmp_path / "packages", tmp_path / "settings"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes")
    ran(*pip, "--target", packages, "-r", LOCK, cwd=tmp_path)
    settings.mkdir()
    classes = ":".join(map(str, jars.spark_jars()))
    (settings / "spark-defaults.conf").write_text(DEFAULTS.format(jars=classes, root=project))
    ran(
        PROGRAMS / "spark-pipelines",
        *("run", "--spec", "spark-pipeline.yml", "--remote", "local[2]"),
        cwd=project,
        PATH=f"{PROGRAMS}:{os.environ['PATH']}",
        PYTHONPATH=str(packages),
        PYSPARK_PYTHON=sys.executable,
        SPARK_CONF_DIR=str(settings),
    )
    ran(PROGRAMS / "headwater", "run", "--once", cwd=project)
    for table, columns in TABLES.items():
        name = table.partition(".")[2]
        ours = query.run(f"SELECT {columns} FROM {table} ORDER BY ALL", project=project)
        spark = DeltaTable(project / "warehouse" / name).to_pyarrow_table()
        theirs = spark.select(columns.split(", ")).to_pylist()
        assert len(ours.rows) == len(theirs) > 0, table
        assert ours.rows == sorted(tuple(row.values()) for row in theirs), table
