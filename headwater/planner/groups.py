"""A view's groups, kept by what rows add to them and what rows take from them.

A view's query is cut at a GROUP BY (`headwater.planner.cut`). What the groups there are made of stands in a
table beside the view, `<table>__state`:

    _part        0: a row for each group; n: a row for each value of a group that is counted DISTINCT
    g0, g1, ...  the group
    v0, v1, ...  the value: that of the row's part, the others are NULL
    rows         how many rows of the input it is made of: without any it goes
    x0, x1, ...  for each aggregate, in the groups' order: the count; of sum and avg the sum; the extreme; of
                 count(DISTINCT x) how many values, and in their part how many rows have the value
    n0, n1, ...  of sum and avg how many values are not NULL; so of an extreme, and in its values' part how
                 many rows have the value

Changed rows of the input go through the view's own query up to its GROUP BY (`rows`), count as +1 if they
are new and as -1 if they are gone, and are added to that. So a batch reads the changed rows, and of the state
the groups and values that they are of, however many rows a group has.

    aggregate                    what rows may do
    count, count(DISTINCT x)     come and go
    sum, avg of whole numbers    come and go
    sum of DECIMAL               come and go
    sum, avg of DOUBLE           come: what was added in another order can't be taken away again
    min, max                     come; and go, where each value is kept with how many rows have it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from headwater.planner import group_by
from headwater.planner.cut import Cut
from headwater.planner.group_by import DISTINCT, Taken
from headwater.planner.marked import TOLD_APART, is_binary
from headwater.runtime import catalyst, jvm
from headwater.storage import stored

PART, ROWS = "_part", "rows"
_WHOLE = ("BIGINT", "INT", "SMALLINT", "TINYINT")
_DOUBLES = ("DOUBLE", "FLOAT")


@dataclass(frozen=True)
class Output:
    """A column of the groups.

    Attributes:
        name: its name.
        kind: `key`, or an aggregate: `count`, `distinct`, `sum`, `avg`, `min` or `max`.
        column: of the state: its group's, or its aggregate's.
        counted: of a sum and an average, the state's column that counts the values; else "".
        value: the state's column of the values that are counted, of `distinct`, and of an extreme whose rows
            may go; else "".
    """

    name: str
    kind: str
    column: str
    counted: str = ""
    value: str = ""


@dataclass(frozen=True)
class Groups:
    """How a view's groups are kept.

    Attributes:
        source: the table whose rows are grouped; "": they are of what the query's inner part gives.
        innermost: where the query is cut; see `cut.of`.
        columns: the groups'.
        outputs: the same, in order.
        state: the columns of the state.
    """

    source: str
    innermost: bool
    columns: StructType
    outputs: tuple[Output, ...]
    state: pa.Schema

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that tell groups apart."""
        return tuple(output.name for output in self.outputs if output.kind == "key")

    @property
    def groups(self) -> list[str]:
        """The state's columns of these."""
        return [output.column for output in self.outputs if output.kind == "key"]

    @property
    def aggregates(self) -> list[Output]:
        """The columns that are no keys."""
        return [output for output in self.outputs if output.kind != "key"]

    @property
    def values(self) -> list[str]:
        """The state's columns of the values that are counted."""
        return list(dict.fromkeys(output.value for output in self.outputs if output.value))

    @property
    def keys(self) -> tuple[str, ...]:
        """What tells rows of the state apart."""
        return (PART, *self.groups, *self.values)


def find(spark: SparkSession, part: Cut, source: str, *, innermost: bool, appended: bool) -> Groups | None:
    """How a view's groups are kept by what rows add to and take from them; None: they can't be.

    Args:
        spark: the session.
        part: where the view's query is cut.
        source, innermost: see `Groups`.
        appended: whether the rows that it groups never change and never go.
    """
    taken = part.taken
    if not _are_kept(taken, appended):
        return None
    outputs = _outputs(taken, appended)
    state = whole(spark, taken, outputs).schema
    columns = part.groups(spark).schema.toNullable()
    found = Groups(source, innermost, columns, outputs, stored.schema(state))
    return found if all(_tells_apart(state[key].dataType) for key in found.keys) else None


def rows(spark: SparkSession, taken: Taken, outputs: Sequence[Output]) -> DataFrame:
    """The rows that a query groups: `g…`, `x…` and `v…` of each; of what counts, `x…` is 1 or 0.

    Args:
        spark: the session.
        taken: the GROUP BY, taken apart.
        outputs: the groups' columns.
    """
    columns: list[Column] = []
    values: dict[str, Column] = {}
    for output, (_, kind, expression) in zip(outputs, taken.columns, strict=True):
        if kind == "key":
            columns.append(catalyst.column(expression).alias(output.column))
            continue
        of = _of(expression)
        child = catalyst.column(catalyst.normalised(of) if kind in ("min", "max") else of)
        condition = expression.filter()
        passes = catalyst.column(condition.get()) if condition.isDefined() else F.lit(True)
        counts = F.when(passes & child.isNotNull(), 1).otherwise(0)
        value = counts if kind in ("count", DISTINCT) else F.when(passes, child)
        columns.append(value.alias(output.column))
        if output.value:
            values[output.value] = child.alias(output.value)
    return catalyst.frame(spark, taken.below).select(*columns, *values.values())


def whole(spark: SparkSession, taken: Taken, outputs: Sequence[Output]) -> DataFrame:
    """The state of a query over all rows of its input; see `rows`."""
    aggregates = [output for output in outputs if output.kind != "key"]
    groups = [output.column for output in outputs if output.kind == "key"]
    values = list(dict.fromkeys(output.value for output in aggregates if output.value))
    found = rows(spark, taken, outputs)
    counted = [(output.counted, F.count(output.column)) for output in aggregates if output.counted]
    totals = [(output.column, _total(output, found)) for output in aggregates] + counted
    part = found.groupBy(*groups).agg(F.count("*").alias(ROWS), *(each.alias(name) for name, each in totals))
    kinds = {field.name: field.dataType for field in (*found.schema, *part.schema)}
    listed = [*groups, *values, ROWS, *(name for name, _ in totals)]

    def laid(number: int, made: DataFrame) -> DataFrame:
        """A part in the order of the state's columns."""
        columns = (F.col(name) if name in made.columns else F.lit(None).cast(kinds[name]) for name in listed)
        return made.select(
            F.lit(number).alias(PART), *(each.alias(name) for name, each in zip(listed, columns, strict=True))
        )

    parts = [laid(0, part)]
    for number, value in enumerate(values, start=1):
        having = [
            F.count(each.column).alias(each.counted)
            if each.counted
            else F.sum(each.column).alias(each.column)
            for each in aggregates
            if each.value == value
        ]
        made = found.where(F.col(value).isNotNull()).groupBy(*groups, value)
        parts.append(laid(number, made.agg(F.count("*").alias(ROWS), *having)))
    return reduce(DataFrame.unionAll, parts)


def _total(output: Output, found: DataFrame) -> Column:
    """What the state has of an aggregate over a group."""
    of = F.col(output.column)
    if output.kind == DISTINCT:
        return F.count_distinct(F.when(of == 1, F.col(output.value)))
    if output.kind in ("min", "max"):
        return F.min(of) if output.kind == "min" else F.max(of)
    if output.kind == "count":
        return F.coalesce(F.sum(of), F.lit(0).cast("bigint"))  # one group there is of no rows, too
    is_whole = output.counted and found.schema[output.column].dataType.simpleString().upper() in _WHOLE
    return F.sum(of.cast("decimal(38, 0)") if is_whole else of)


def _are_kept(taken: Taken, appended: bool) -> bool:
    """Whether a GROUP BY has only groups and aggregates that rows may change so; see above."""
    window = taken.window
    if window is not None and not group_by.is_of_time(window):
        return False
    keys = [expression for _, kind, expression in taken.columns if kind == "key"]
    if not all(any(group_by.tells(e, group) for e in keys) for group in taken.grouping):
        return False
    if not all(any(group_by.tells(e, group) for group in taken.grouping) for e in keys):
        return False
    return all(
        _is_kept(kind, _of(expression).dataType(), appended)
        for _, kind, expression in taken.columns
        if kind != "key"
    )


def _is_kept(kind: str, of: Any, appended: bool) -> bool:
    """Whether rows may change an aggregate of values of a type of Spark's."""
    type_of = str(of.sql()).upper()
    if kind in ("count", DISTINCT):
        return True
    if kind in ("min", "max"):
        return not type_of.startswith(("STRUCT", "ARRAY", "MAP")) and " COLLATE " not in type_of
    if kind not in ("sum", "avg"):
        return False
    if type_of in _WHOLE or (kind == "sum" and type_of.startswith("DECIMAL")):
        return True
    return appended and type_of in _DOUBLES


def _tells_apart(kind: DataType) -> bool:
    """Whether equal values of a type are the same to Spark, DuckDB and Delta."""
    return is_binary(kind) and kind.typeName() in (*TOLD_APART, "decimal")


def _outputs(taken: Taken, appended: bool) -> tuple[Output, ...]:
    found: list[Output] = []
    distinct: list[Any] = []
    groups = aggregates = 0
    for name, kind, expression in taken.columns:
        if kind == "key":
            found.append(Output(name, kind, f"g{groups}"))
            groups += 1
            continue
        value = ""
        goes = kind in ("min", "max") and not appended
        if kind == DISTINCT or goes:
            of = _of(expression)
            at = next((at for at, e in enumerate(distinct) if catalyst.is_same_value(e, of)), len(distinct))
            distinct += [of] if at == len(distinct) else []
            value = f"v{at}"
        counted = f"n{aggregates}" if kind in ("sum", "avg") or goes else ""
        found.append(Output(name, kind, f"x{aggregates}", counted, value))
        aggregates += 1
    return tuple(found)


def _of(expression: Any) -> Any:
    """What an aggregate is of; of those that have more than that, the first."""
    return next(jvm.items(expression.aggregateFunction().children()))
