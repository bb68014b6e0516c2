"""CPU metrics, decoded and enriched; and the alert that does not wait for a table."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

LAST_MILLISECOND = 253_402_300_799_999  # of the year 9999
READING = hw.json("hostname STRING, cpu STRING, usage DOUBLE, occurred_at BIGINT")


@hw.table(source=["bronze.iot_metrics", "reference.hosts"], decode=READING)
def cpu_metrics(metrics: DataFrame, hosts: DataFrame) -> DataFrame:
    """One row per reading: usage in percent (0-100), event_time in UTC, the host's site and threshold.

    A reading dated before 1970 or after 9999 has no event_time, and so is in no window.
    """
    possible = F.col("occurred_at").between(0, LAST_MILLISECOND)
    event_time = F.when(possible, F.timestamp_millis("occurred_at"))
    return metrics.withColumn("event_time", event_time).join(F.broadcast(hosts), "hostname", "left")


@hw.alert(topic="iot-filtered-alert", source="bronze.iot_metrics", decode=READING, key="hostname")
def cpu_alerts(metrics: DataFrame) -> DataFrame:
    """Readings above 90 percent; time_ltz in UTC."""
    possible = F.col("occurred_at").between(0, LAST_MILLISECOND)
    time = F.date_format(F.when(possible, F.timestamp_millis("occurred_at")), "yyyy-MM-dd HH:mm:ss.SSS")
    return metrics.where("usage > 90").select("hostname", time.alias("time_ltz"), "cpu", "usage")
