"""Reports of buses, decoded; their suite lets each in once."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

REPORT = hw.json("bus_id STRING, route_id STRING, lat DOUBLE, lon DOUBLE, reported_at BIGINT")


@hw.table(source="bronze.bus_positions", decode=REPORT)
def bus_positions(reports: DataFrame) -> DataFrame:
    """One row per report: where a bus was (degrees), event_time in UTC."""
    return reports.withColumn("event_time", F.timestamp_millis("reported_at"))
