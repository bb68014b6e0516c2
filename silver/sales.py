"""Purchases, decoded; its suite lets each purchase_id in once."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

PURCHASE = hw.json("purchase_id STRING, item_id STRING, quantity INT, amount DOUBLE, purchase_time BIGINT")


@hw.table(source="bronze.purchases", decode=PURCHASE)
def purchases(purchases: DataFrame) -> DataFrame:
    """One row per purchase: amount in euros for the whole quantity, event_time in UTC."""
    return purchases.withColumn("event_time", F.timestamp_millis("purchase_time"))
