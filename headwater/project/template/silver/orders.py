"""Orders, decoded; what a row must be says quality/silver.orders.json."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

ORDER = hw.json("order_id STRING, item STRING, quantity INT, price DOUBLE, ordered_at BIGINT")


@hw.table(source="bronze.orders", decode=ORDER)
def orders(orders: DataFrame) -> DataFrame:
    """One row per order: amount in euros, event_time in UTC."""
    return orders.withColumns(
        {
            "amount": F.round(F.col("quantity") * F.col("price"), 2),
            "event_time": F.timestamp_millis("ordered_at"),
        }
    )
