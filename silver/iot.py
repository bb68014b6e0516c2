"""CPU metrics, decoded and enriched; and the alert that does not wait for a table."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

READING = hw.json("hostname STRING, cpu STRING, usage DOUBLE, occurred_at BIGINT")


@hw.table(source=["bronze.iot_metrics", "reference.hosts"], decode=READING)
def cpu_metrics(metrics: DataFrame, hosts: DataFrame) -> DataFrame:
    """One row per reading: usage in percent (0-100), event_time in UTC, the host's site and threshold."""
    return metrics.withColumn("event_time", F.timestamp_millis("occurred_at")).join(
        F.broadcast(hosts), "hostname", "left"
    )


@hw.alert(topic="iot-filtered-alert", source="bronze.iot_metrics", decode=READING, key="hostname")
def cpu_alerts(metrics: DataFrame) -> DataFrame:
    """Readings above 90 percent; time_ltz in UTC."""
    time = F.date_format(F.timestamp_millis("occurred_at"), "yyyy-MM-dd HH:mm:ss.SSS")
    return metrics.where("usage > 90").select("hostname", time.alias("time_ltz"), "cpu", "usage")
