"""The records as they arrive: one row per Kafka record, untouched."""

import headwater as hw

orders = hw.topic("orders", partitions=2)  # the table bronze.orders
