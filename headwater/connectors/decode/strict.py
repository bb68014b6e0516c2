"""What Spark's `from_json` takes without a word, told apart: in plain expressions, after its one parse.

It makes text of a number that stands for a STRING, wraps 200 into a TINYINT, takes 1e999 as Infinity
and a number for a time. So the fields of these types are read as a wider one (`wider`), looked at
(`fits`), and brought to their own (`own`).
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

_TEXT = (StringType, DateType, TimestampType)
_DAY = r"^\d{4}-\d\d-\d\d\z"
_TIME = r"^\d{4}-\d\d-\d\d([ T]\d\d(:\d\d(:\d\d(\.\d{1,6})?)?)?(Z|[+-]\d\d(:?\d\d)?)?)?\z"


def wider(kind: DataType) -> DataType:
    """The type by which a field of type `kind` is read."""
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, wider(field.dataType)) for field in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(wider(kind.elementType))
    if isinstance(kind, _TEXT):
        return VariantType()
    return ShortType() if isinstance(kind, ByteType) else kind


def fits(column: Column, kind: DataType) -> Column:
    """Whether a column that was read as `wider(kind)` holds a value of `kind`, or none."""
    return F.coalesce(_fits(column, kind), F.lit(True))


def own(column: Column, kind: DataType) -> Column:
    """A column that was read as `wider(kind)`, as `kind`."""
    if isinstance(kind, StructType):
        parts = [own(column.getField(field.name), field.dataType).alias(field.name) for field in kind]
        return F.when(column.isNotNull(), F.struct(*parts))
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda element: own(element, kind.elementType))
    if isinstance(kind, (DateType, TimestampType)):
        return column.cast("string").try_cast(kind)
    return column.cast(kind) if wider(kind) != kind else column


def _fits(column: Column, kind: DataType) -> Column:
    if isinstance(kind, StructType):
        parts = [fits(column.getField(field.name), field.dataType) for field in kind]
        return reduce(Column.__and__, parts, F.lit(True))
    if isinstance(kind, ArrayType):
        return F.forall(column, lambda element: fits(element, kind.elementType))
    if isinstance(kind, _TEXT):
        text = F.schema_of_variant(column).isin("STRING", "VOID")
        if isinstance(kind, StringType):
            return text
        form = _DAY if isinstance(kind, DateType) else _TIME
        said = F.coalesce(column.cast("string").rlike(form), F.lit(True))
        return text & said & (own(column, kind).isNotNull() | column.cast("string").isNull())
    if isinstance(kind, ByteType):
        return column.between(-128, 127)
    if isinstance(kind, (FloatType, DoubleType)):
        return F.abs(column) < float("inf")
    return F.lit(True)
