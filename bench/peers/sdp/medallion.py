"""System 1's tables, declared to Spark Declarative Pipelines: bronze and silver stream, gold is a view."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from bench.peers import streaming

spark = SparkSession.active()


@dp.table
def bronze() -> DataFrame:
    """Records of the topic, as they are."""
    return streaming.records(spark, os.environ["MEDALLION_BOOTSTRAP"])


@dp.table
def silver() -> DataFrame:
    """Readings, with their time, their host's site and threshold."""
    return streaming.silver(
        spark.readStream.table("bronze"), streaming.hosts(spark, os.environ["MEDALLION_HOSTS"])
    )


@dp.materialized_view
def gold() -> DataFrame:
    """Average, maximum and newest event of five minutes, per host and core."""
    return streaming.windows(spark.read.table("silver"))
