"""System 1 by plain Structured Streaming: three queries, one after the other, each over the former's table.

    python -m bench.peers.streaming FOLDER BOOTSTRAP HOSTS TOLD TURN…

Each turn drains the topic into tables below FOLDER/<turn>; a line on how it went is written to the file TOLD.
Silver's expectations are a WHERE; gold's windows are Spark's state, merged into the table.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.runtime import jars

CORES = 2
SETTINGS = {  # Spark's defaults but for these
    "spark.driver.memory": "4g",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.ui.enabled": "false",
}
READING = "hostname STRING, cpu STRING, usage DOUBLE, occurred_at BIGINT"
EXPECTED = """hostname IS NOT NULL AND cpu RLIKE '^cpu[1-9][0-9]*$'
AND occurred_at BETWEEN 0 AND 253402300799999 AND (usage IS NULL OR usage BETWEEN 0 AND 100)"""
SAME = "t.window_start = s.window_start AND t.hostname = s.hostname AND t.cpu = s.cpu"
Write = Callable[[DataFrame, int], None]


def main(folder: str, bootstrap: str, known: str, told: str, *turns: str) -> None:
    """Drain the topic as often as there are turns, in one process."""
    spark = _session()
    with Path(told).open("w") as out:
        for turn in turns:
            began = time.time()
            drain(spark, f"{folder}/{turn}", bootstrap, known)
            print(json.dumps({"turn": turn, "began": began, "ended": time.time()}), file=out, flush=True)
    spark.stop()


def drain(spark: SparkSession, folder: str, bootstrap: str, known: str) -> None:
    """Bronze, silver and gold of all that the topic has, one after the other."""
    _run(records(spark, bootstrap), folder, "bronze")
    raw = spark.readStream.format("delta").load(f"{folder}/bronze")
    _run(silver(raw, hosts(spark, known)), folder, "silver")
    gold = windows(spark.readStream.format("delta").load(f"{folder}/silver"))
    _run(gold, folder, "gold", partial(_merge, spark, f"{folder}/gold"))


def records(spark: SparkSession, bootstrap: str) -> DataFrame:
    """The topic, from its beginning."""
    topic = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return topic.option("subscribe", "iot-data-input").option("startingOffsets", "earliest").load()


def hosts(spark: SparkSession, file: str) -> DataFrame:
    """The hosts that are known."""
    return spark.read.schema("hostname STRING, site STRING, alert_threshold DOUBLE").csv(file, header=True)


def silver(raw: DataFrame, known: DataFrame) -> DataFrame:
    """Records that are readings, with their time, their host's site and threshold."""
    read = raw.select(
        F.from_json(F.col("value").cast("string"), READING).alias("m"), "topic", "partition", "offset"
    )
    good = read.select("m.*", "topic", "partition", "offset").where(EXPECTED)
    timed = good.withColumn("event_time", F.timestamp_millis("occurred_at"))
    return timed.join(F.broadcast(known), "hostname", "left")


def windows(metrics: DataFrame) -> DataFrame:
    """Average, maximum and newest event of five minutes, per host and core."""
    of = metrics.groupBy(F.window("event_time", "5 minutes"), "hostname", "cpu")
    found = of.agg(
        F.avg("usage").alias("avg_usage"),
        F.max("usage").alias("max_usage"),
        F.max("event_time").alias("last_event"),
    )
    return found.selectExpr(
        *("window.start AS window_start", "window.end AS window_end", "hostname", "cpu"),
        *("avg_usage", "max_usage", "last_event"),
    )


def _run(rows: DataFrame, folder: str, name: str, write: Write | None = None) -> None:
    query = rows.writeStream.option("checkpointLocation", f"{folder}/checkpoints/{name}")
    query = query.trigger(availableNow=True)
    if write is None:
        query.format("delta").start(f"{folder}/{name}").awaitTermination()
    else:
        query.outputMode("update").foreachBatch(write).start().awaitTermination()


def _merge(spark: SparkSession, table: str, rows: DataFrame, _batch: int) -> None:
    if not DeltaTable.isDeltaTable(spark, table):
        rows.write.format("delta").save(table)
        return
    merged = DeltaTable.forPath(spark, table).alias("t").merge(rows.alias("s"), SAME)
    merged.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


def _session() -> SparkSession:
    builder = SparkSession.builder.master(f"local[{CORES}]")
    builder = builder.config("spark.driver.extraClassPath", os.pathsep.join(map(str, jars.spark_jars())))
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    main(*sys.argv[1:])
