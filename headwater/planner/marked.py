"""Inputs without rows, whose columns are found again in the plan of a query over them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StringType, StructField, StructType

from headwater.planner.nodes import Node
from headwater.runtime import catalyst, in_memory

# In the names of an input's columns: which one it is; of those that can't tell rows apart, another.
_MARK, _OTHER = "headwater", "headwater-other"

# Types whose equal values are the same to Spark, DuckDB and the log's bounds: not so NaN and nested ones.
WHOLE_NUMBERS = ("byte", "short", "integer", "long")
TOLD_APART = (*WHOLE_NUMBERS, "boolean", "string", "date", "timestamp", "timestamp_ntz")


def frame(spark: SparkSession, number: int, columns: StructType) -> DataFrame:
    """An input without rows.

    Args:
        spark: the session.
        number: which of the definition's sources.
        columns: its columns.
    """
    named = {
        f"{_MARK if is_binary(field.dataType) else _OTHER}:{number}:{field.name}": field for field in columns
    }
    fields = [StructField(name, field.dataType, field.nullable) for name, field in named.items()]
    empty = in_memory.empty(spark, StructType(fields))
    return empty.select(*(catalyst.named(name).alias(field.name) for name, field in named.items()))


def read(node: Node, sources: Sequence[str]) -> tuple[str, dict[int, str]]:
    """The input that a leaf of a plan reads ("": none), and {column → its name} of those that tell its rows
    apart."""
    columns: dict[int, str] = {}
    source = ""
    for column in node.expressions("output") if "output" in node.fields else ():  # else it has one row
        said = str(column.fields["name"])
        if found := named(said):
            source = sources[found[0]]
            if said.startswith(f"{_MARK}:") and _is_told_apart(column):
                columns[column.id] = found[1]
    return source, columns


def named(column: str) -> tuple[int, str] | None:
    """Which input a column of a leaf is of, and its name there; None: it is of none."""
    mark, number, name = (*column.split(":", 2), "", "")[:3]
    return (int(number), name) if mark in (_MARK, _OTHER) else None


def is_binary(kind: DataType) -> bool:
    """Whether texts of this type, if it is one, are equal where their bytes are: no other collation."""
    return not isinstance(kind, StringType) or kind.collation == "UTF8_BINARY"


def number_of(expression: Node) -> int | None:
    """The column that an expression is, a number also where it is made a wider one; None: it computes."""
    if expression.kind == "Cast" and expression.fields["dataType"] in WHOLE_NUMBERS:
        (inner,) = expression.children
        is_number = inner.kind == "AttributeReference" and inner.fields["dataType"] in WHOLE_NUMBERS
        return inner.id if is_number else None
    return expression.id if expression.kind == "AttributeReference" else None


def _is_told_apart(column: Node) -> bool:
    kind = column.fields["dataType"]
    return isinstance(kind, str) and (kind in TOLD_APART or kind.startswith("decimal"))
