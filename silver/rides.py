"""Lift rides, decoded; its suite lets each passage of a gate in once."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

RIDE = hw.json("resort_id STRING, lift_id STRING, skier_id STRING, ride_time BIGINT")


@hw.table(source="bronze.lift_rides", decode=RIDE)
def lift_rides(rides: DataFrame) -> DataFrame:
    """One row per ride: event_time in UTC."""
    return rides.withColumn("event_time", F.timestamp_millis("ride_time"))
