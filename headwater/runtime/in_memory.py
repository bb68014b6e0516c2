"""DataFrames of rows in memory."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

_BATCH = 50_000  # rows; more are several partitions


def frame(spark: SparkSession, rows: pa.Table, columns: StructType) -> DataFrame:
    """Rows as a DataFrame.

    As `SparkSession.createDataFrame`, which asks Spark for seven settings first, the same in all sessions.

    Args:
        spark: the session.
        rows: the rows.
        columns: what they are to Spark.
    """
    SparkSession._activeSession = spark
    spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
    whole = rows if len(rows) else rows.schema.empty_table()  # Spark wants a chunk of each column
    made: DataFrame = spark._create_from_arrow_table(whole, columns, "UTC", False, False, _BATCH)
    return made


def empty(spark: SparkSession, columns: StructType) -> DataFrame:
    """A DataFrame without rows."""
    schema = to_arrow_schema(columns, timezone="UTC", error_on_duplicated_field_names_in_struct=True)
    return frame(spark, schema.empty_table(), columns)
