"""Page views, decoded."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

VIEW = hw.json("user_id STRING, page STRING, referrer STRING, viewed_at BIGINT")


@hw.table(source="bronze.page_views", decode=VIEW)
def page_views(views: DataFrame) -> DataFrame:
    """One row per view of a page: event_time in UTC."""
    return views.withColumn("event_time", F.timestamp_millis("viewed_at"))
