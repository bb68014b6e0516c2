"""People, auctions and bids, decoded. Times are UTC, prices are in cents."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

PERSON = hw.json(
    "id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING, "
    "date_time BIGINT, extra STRING"
)
AUCTION = hw.json(
    "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, date_time BIGINT, "
    "expires BIGINT, seller BIGINT, category BIGINT, extra STRING"
)
BID = hw.json(
    "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time BIGINT, extra STRING"
)


@hw.table(source="bronze.person", decode=PERSON)
def person(people: DataFrame) -> DataFrame:
    """One row per person who may sell and bid."""
    return people.withColumn("date_time", F.timestamp_millis("date_time"))


@hw.table(source="bronze.auction", decode=AUCTION)
def auction(auctions: DataFrame) -> DataFrame:
    """One row per auction: bids count from date_time to expires."""
    return auctions.withColumns(
        {"date_time": F.timestamp_millis("date_time"), "expires": F.timestamp_millis("expires")}
    )


@hw.table(source="bronze.bid", decode=BID)
def bid(bids: DataFrame) -> DataFrame:
    """One row per bid, which its place in Kafka tells from all others: a bid has no number of its own."""
    return bids.withColumns(
        {
            "date_time": F.timestamp_millis("date_time"),
            "partition": F.col("_source.partition"),
            "offset": F.col("_source.offset"),
        }
    )
