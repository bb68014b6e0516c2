"""A query of few rows, carried out by DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headwater.common import database, scratch
from headwater.planner import marked
from headwater.planner.translation.translated import translate


class Carried:
    """A function of DataFrames that DuckDB carries out for Spark.

    Args:
        spark: where the function is analysed.
        inputs: {what it reads → its columns}.
        function: gives a query over these.

    Attributes:
        columns: what it gives, to Spark.
    """

    def __init__(
        self,
        spark: SparkSession,
        inputs: Mapping[str, StructType],
        function: Callable[[Mapping[str, DataFrame]], DataFrame],
    ) -> None:
        self._given = {name: _naive(_schema(columns)) for name, columns in inputs.items()}
        frames = {name: marked.frame(spark, at, columns) for at, (name, columns) in enumerate(inputs.items())}
        result = function(frames)
        self.columns = result.schema
        self._made = _schema(self.columns)
        collated = any(" collate " in columns.simpleString() for columns in inputs.values())  # however deep
        self._sql = None if collated else translate(result)
        if self({name: columns.empty_table() for name, columns in self._given.items()}) is None:
            self._sql = None  # DuckDB knows something by another name, or another type

    @property
    def is_known(self) -> bool:
        """Whether DuckDB knows all of it, and so what it gives of most rows."""
        return self._sql is not None

    def __call__(self, rows: Mapping[str, pa.Table]) -> pa.Table | None:
        """What the query gives of these rows, as Spark gives it; None: ask Spark."""
        if self._sql is None:
            return None
        with scratch.connection(sum(each.nbytes for each in rows.values())) as connection:
            for at, (name, columns) in enumerate(self._given.items()):
                scratch.give(connection, f"in{at}", rows[name].select(columns.names).cast(columns))
            try:
                return database.table(connection, self._sql).cast(self._made)
            except (duckdb.Error, pa.ArrowInvalid):
                return None


def _schema(columns: StructType) -> pa.Schema:
    return to_arrow_schema(columns, timezone="UTC", error_on_duplicated_field_names_in_struct=True)


def _naive(schema: pa.Schema) -> pa.Schema:
    """The same columns, times being what they are in UTC."""
    return pa.schema([field.with_type(_without_zone(field.type)) for field in schema])


def _without_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_zone(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_zone(kind.value_type)))
    return kind
