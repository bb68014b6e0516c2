"""A bank's transactions, customers and accounts as they arrive: one row per Kafka record."""

import headwater as hw

transactions = hw.topic("transactions", partitions=5)
customers = hw.topic("customers", compacted=True)
accounts = hw.topic("accounts", compacted=True)
