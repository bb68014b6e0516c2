"""Transactions, decoded, each once; customers and accounts as they are, and as they were."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

TRANSACTION = hw.json(
    "transaction_id STRING, account_id STRING, customer_id STRING, type STRING, amount DECIMAL(18, 2), "
    "currency STRING, transfer_id STRING, merchant STRING, transaction_time BIGINT"
)
CUSTOMER = hw.json(
    "customer_id STRING, name STRING, segment STRING, city STRING, changed_at BIGINT",
    timestamp="sent_at",
    tombstones="customer_id",
)
ACCOUNT = hw.json(
    "account_id STRING, customer_id STRING, kind STRING, status STRING, changed_at BIGINT",
    timestamp="sent_at",
    tombstones="account_id",
)
CHANGED = "coalesce(timestamp_millis(changed_at), sent_at)"  # a deletion has Kafka's timestamp alone

merchants = hw.lookup(
    hw.from_postgres("warehouse", "ledger.merchants"),
    keys=["merchant"],
    columns="category STRING",
    ttl="10 minutes",
)


@hw.table(source="bronze.transactions", decode=TRANSACTION, lookup="merchants")
def transaction_events(transactions: DataFrame) -> DataFrame:
    """One row per transaction, as it was booked: event_time in UTC, amount in its currency, category of the
    merchant."""
    return transactions.withColumn("event_time", F.timestamp_millis("transaction_time"))


CUSTOMERS = {
    "source": "bronze.customers",
    "keys": ["customer_id"],
    "sequence_by": CHANGED,
    "column_list": ["customer_id", "name", "segment", "city"],
    "decode": CUSTOMER,
    "trigger": "5s",
}
ACCOUNTS = {
    "source": "bronze.accounts",
    "keys": ["account_id"],
    "sequence_by": CHANGED,
    "column_list": ["account_id", "customer_id", "kind", "status"],
    "decode": ACCOUNT,
    "trigger": "5s",
}
customers = hw.auto_cdc(**CUSTOMERS)
customers_history = hw.auto_cdc(**CUSTOMERS, scd=2)
accounts = hw.auto_cdc(**ACCOUNTS)
accounts_history = hw.auto_cdc(**ACCOUNTS, scd=2)
