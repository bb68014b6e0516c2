"""System 1 as a batch: all of the topic, decoded and aggregated anew, in place of what was there.

python -m bench.architectures.batch FOLDER BOOTSTRAP SECONDS    # one run after the other, so far apart
"""

from __future__ import annotations

import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.project.conf import Conf
from headwater.runtime import sessions

READING = "hostname STRING, cpu STRING, usage DOUBLE, occurred_at BIGINT"


def readings(records: DataFrame) -> DataFrame:
    """Records of the topic that are readings, with their time; others are left out."""
    found = records.select(F.from_json(F.col("value").cast("string"), READING).alias("m")).select("m.*")
    good = found.where("hostname IS NOT NULL AND usage BETWEEN 0 AND 100 AND occurred_at > 0")
    return good.withColumn("event_time", F.timestamp_millis("occurred_at"))


def windows(metrics: DataFrame) -> DataFrame:
    """Average and maximum of five minutes, per host and core."""
    window = F.window("event_time", "5 minutes")
    return (
        metrics.groupBy(window, "hostname", "cpu")
        .agg(
            F.sum("usage").alias("sum"),
            F.count("usage").alias("n"),
            F.max("usage").alias("max_usage"),
            F.max("event_time").alias("last_event"),
        )
        .selectExpr(
            "window.start AS window_start",
            "window.end AS window_end",
            "hostname",
            "cpu",
            "sum / n AS avg_usage",
            "max_usage",
            "last_event",
        )
    )


def run(spark: SparkSession, folder: str, bootstrap: str) -> None:
    """One run over all history."""
    topic = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    records = topic.option("subscribe", "iot-data-input").load()
    readings(records).write.format("delta").mode("overwrite").save(f"{folder}/silver")
    silver = spark.read.format("delta").load(f"{folder}/silver")
    windows(silver).write.format("delta").mode("overwrite").save(f"{folder}/gold")


def main(folder: str, bootstrap: str, apart: float) -> None:
    """Run again and again."""
    spark = sessions.start(Conf())
    while True:
        began = time.monotonic()
        run(spark, folder, bootstrap)
        took = time.monotonic() - began
        print(f"{took:.2f}", flush=True)
        time.sleep(max(0.0, apart - took))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
