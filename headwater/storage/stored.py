"""How Spark's columns are stored: timestamps in UTC, and everything nullable, however deep."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def schema(columns: StructType) -> pa.Schema:
    """The columns as a Delta table holds them.

    Raises:
        PySparkException: a type that Arrow does not have.
    """
    return pa.schema([_nullable(field) for field in to_arrow_schema(columns, timezone="UTC")])


def read(file: str, columns: pa.Schema) -> pa.Table:
    """The rows of a file by a table's columns, see `fitted`."""
    return fitted(pq.read_table(file, partitioning=None), columns)


def fitted(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Rows of a file by a table's columns: NULL in those that it got after the file was written."""
    values = [
        rows[name] if name in rows.column_names else pa.nulls(len(rows), kind)
        for name, kind in zip(columns.names, columns.types, strict=True)
    ]
    return pa.table(values, names=columns.names).cast(columns)


def _nullable(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _type(field.type), nullable=True)


def _type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_nullable(kind.field(at)) for at in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _type(kind.item_type))
    return kind
