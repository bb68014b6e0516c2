"""Aggregates that are kept up to date by the rows that are new.

A definition `SELECT keys, aggregates FROM stream GROUP BY keys` is taken apart as Spark has analysed it
(`headwater.planner.group_by`). A batch of new rows is aggregated by the same keys (the partial result);
the table itself is the state it is merged into. So no watermark is needed, late rows correct their
group whenever they come, and the result does not depend on where batches were cut.

    output     partial columns       merged                       value
    count(x)   count                 t + s                        itself
    sum(x)     sum                   t + s (NULL: the other)      itself; too large for its type: an error
    min, max   min, max              least, greatest              itself
    avg(x)     sum as DOUBLE, count  t + s each                   sum / count
    max_by(x, y), min_by   x, y      those with the greater y     x
    max_by(x, y, k)        k of each the k greatest of both       the x of each

Of equal `y` the greatest `x` is taken (min_by: the least), so that the result does not depend on the order
of rows. What is not itself its own partial (avg, and `y`) is kept in the trailing struct column `_partial`.
Doubles that are compared have one NaN and one zero: Spark takes them for equal, where bits tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.common.scratch import quoted
from headwater.errors import Where
from headwater.planner import group_by
from headwater.planner.group_by import BY, BY_K, ENDS
from headwater.runtime import catalyst, jvm
from headwater.storage import stored
from headwater.storage.names import PARTIAL

WINDOW = "_window"  # of a row that is aggregated
LATE, ROWS = "_late", "_rows"  # whether rows come too late, and how many they are
BOUNDS = ("_start", "_end")  # of the window of a partial result

_FUNCTIONS: dict[str, Callable[[Column], Column]] = {
    "sum": F.sum,
    "count": F.count,
    "min": F.min,
    "max": F.max,
}
_FUNCTIONS |= {"max_by": F.max, "min_by": F.min}  # of structs that order as they shall
_FUNCTIONS |= {"avg_sum": lambda child: F.sum(child.cast("double")), "try_sum": F.try_sum}


@dataclass(frozen=True)
class Output:
    """A column of the table.

    Attributes:
        name: its name.
        kind: `key`, or an aggregate (see `headwater.planner.group_by`).
        window: of a key, what of the window it is: its `start`, its `end`, or `all` of it; else "".
        k: how many values `max_by_k` and `min_by_k` keep.
    """

    name: str
    kind: str
    window: str = ""
    k: int = 0


@dataclass(frozen=True)
class Aggregate:
    """A maintainable aggregate.

    Attributes:
        outputs: its columns in order, of which the keys identify a row.
        window: `time`, where it groups by a window of time; `session`, where that grows with its rows;
            else "".
    """

    outputs: tuple[Output, ...]
    window: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return tuple(output.name for output in self.outputs if output.kind == "key")

    @property
    def merges(self) -> bool:
        """Whether `merged` says it all; else partial results are put together by
        `headwater.planner.partials`."""
        return self.window != "session" and not any(output.k for output in self.outputs)

    def merged(self, columns: pa.Schema) -> dict[str, str]:
        """{column → its value after a merge}: SQL over the table `t` and the partial result `s`, which have
        these columns. A sum that is too large for its type makes the merge fail."""
        plain = [o for o in self.outputs if o.kind not in BY]
        values = {
            o.name: _merge(o.kind, f"t.{quoted(o.name)}", f"s.{quoted(o.name)}", columns.field(o.name).type)
            for o in plain
        }
        parts: list[str] = []
        for output in self.outputs:
            if output.kind == "avg":
                total, count = _text(f"{output.name}_sum"), _text(f"{output.name}_count")
                totals = _added(f"t.{PARTIAL}[{total}]", f"s.{PARTIAL}[{total}]", pa.float64())
                counts = f"(t.{PARTIAL}[{count}] + s.{PARTIAL}[{count}])"
                values[output.name] = f"CASE WHEN {counts} > 0 THEN {totals} / {counts} END"
                parts += [f"{total}, {totals}, {count}, {counts}"]
        for output in self.outputs:
            if output.kind in BY:
                name, by = quoted(output.name), _text(f"{output.name}_by")
                t_by, s_by = f"t.{PARTIAL}[{by}]", f"s.{PARTIAL}[{by}]"
                later = _later(output.kind, f"t.{name}", f"s.{name}", t_by, s_by)
                values[output.name] = f"CASE WHEN {later} THEN s.{name} ELSE t.{name} END"
                parts.append(f"{by}, CASE WHEN {later} THEN {s_by} ELSE {t_by} END")
        if parts:
            values[PARTIAL] = f"named_struct({', '.join(parts)})"
        return {name: value for name, value in values.items() if name not in self.keys}


def find(frame: DataFrame, where: Where) -> Aggregate | None:
    """How `frame` aggregates; None when it does not.

    Raises:
        ProjectError: it aggregates in a way that can't be maintained from new rows alone.
    """
    if not catalyst.has(catalyst.analysed(frame), "AGGREGATE"):
        return None
    taken = group_by.take(frame, where)
    group_by.check(taken, where)
    window = taken.window
    outputs = [
        Output(name, kind, group_by.of_window(inner, kind, window), group_by.k(inner) if kind in BY_K else 0)
        for name, kind, inner in taken.columns
    ]
    return Aggregate(
        tuple(outputs), "" if window is None else "time" if group_by.is_of_time(window) else "session"
    )


def rows(frame: DataFrame, where: Where) -> DataFrame:
    """The rows that `frame` aggregates, and what groups them; the window, if any, is `WINDOW` too."""
    taken = group_by.take(frame, where)
    found = catalyst.frame(frame.sparkSession, taken.below)
    return found if taken.window is None else found.select("*", catalyst.column(taken.window).alias(WINDOW))


def partial(
    frame: DataFrame,
    where: Where,
    marked: Callable[[DataFrame], DataFrame] | None = None,
    *,
    bounds: bool = False,
) -> DataFrame:
    """The partial result of the rows that `frame` aggregates: the table's columns, `_partial` at the end.

    Args:
        frame: the aggregate.
        where: what errors name.
        marked: gives its `rows` a column `LATE`; late rows and others are then aggregated apart, and `LATE`
            and `ROWS`, how many they are, follow. (To observe how many are late would keep Spark from reading
            the aggregate's columns alone.)
        bounds: whether the window's `_start` and `_end` follow.
    """
    taken = group_by.take(frame, where)
    columns: list[Column] = []
    grouping = list(map(catalyst.column, taken.grouping))
    if marked is None:
        below = catalyst.frame(frame.sparkSession, taken.below)
    else:
        below = marked(rows(frame, where))
        grouping.append(F.col(LATE))
        columns.append(F.count("*").alias(ROWS))
    if bounds:
        columns += [catalyst.column(taken.window).getField(end).alias(f"_{end}") for end in ENDS]
    for at, (_, kind, expression) in enumerate(taken.columns):
        if kind == "key":
            columns.append(catalyst.column(expression).alias(f"_{at}"))
            continue
        if kind in BY:
            columns.append(_by(expression, kind).alias(f"_{at}_by"))
            continue
        if kind in BY_K:
            columns.append(_by_k(expression, kind).alias(f"_{at}_by"))
            continue
        for function in ("avg_sum", "count") if kind == "avg" else (kind,):
            columns.append(aggregated(expression, function).alias(f"_{at}_{function}"))
    found = below.groupBy(*grouping).agg(*columns)
    outputs, parts, orders = [], [], []
    for at, (name, kind, _) in enumerate(taken.columns):
        if kind in BY:
            outputs.append(f"_{at}_by.value AS {catalyst.quoted(name)}")
            orders.append(f"_{at}_by.`by` AS {catalyst.quoted(f'{name}_by')}")
            continue
        if kind in BY_K:
            outputs.append(f"_{at}_by.value AS {catalyst.quoted(name)}")
            orders.append(f"_{at}_by AS {catalyst.quoted(f'{name}_by')}")
            continue
        if kind == "avg":
            total, count = f"_{at}_avg_sum", f"_{at}_count"
            outputs.append(f"CASE WHEN {count} > 0 THEN {total} / {count} END AS {catalyst.quoted(name)}")
            parts.append(
                f"{total} AS {catalyst.quoted(f'{name}_sum')}, {count} AS {catalyst.quoted(f'{name}_count')}"
            )
        else:
            outputs.append(f"_{at}{'' if kind == 'key' else f'_{kind}'} AS {catalyst.quoted(name)}")
    parts += orders
    outputs += [f"struct({', '.join(parts)}) AS {PARTIAL}"] if parts else []
    return found.selectExpr(*outputs, *(BOUNDS if bounds else ()), *((LATE, ROWS) if marked else ()))


def schema(frame: DataFrame, where: Where, *, bounds: bool = False) -> pa.Schema:
    """The columns of `partial`, as Arrow has them."""
    return stored.schema(partial(frame, where, bounds=bounds).schema)


def aggregated(expression: Any, function: str) -> Column:
    """What an aggregate adds up or chooses from, under another function of the same kind."""
    of = next(jvm.items(expression.aggregateFunction().children()))
    child = catalyst.column(catalyst.normalised(of) if function in ("min", "max") else of)
    condition = expression.filter()
    if condition.isDefined():
        child = F.when(catalyst.column(condition.get()), child)
    return _FUNCTIONS[function](child)


def outgrown(frame: DataFrame, where: Where) -> DataFrame:
    """One row: of each sum, by its name, whether it is too large for its type in some group."""
    taken = group_by.take(frame, where)
    sums = [(name, expression) for name, kind, expression in taken.columns if kind == "sum"]
    each = [
        aggregated(expression, function).alias(f"{function}_{at}")
        for at, (_, expression) in enumerate(sums)
        for function in ("try_sum", "count")
    ]
    below = catalyst.frame(frame.sparkSession, taken.below)
    groups = below.groupBy(*map(catalyst.column, taken.grouping)).agg(F.lit(0), *each)
    too_large = [
        F.expr(f"any(try_sum_{at} IS NULL AND count_{at} > 0)").alias(name)
        for at, (name, _) in enumerate(sums)
    ]
    return groups.agg(F.lit(0).alias("_"), *too_large).drop("_")


def _by(expression: Any, kind: str) -> Column:
    """The value and what it is chosen by, as a struct that orders as they shall."""
    return _FUNCTIONS[kind](_ordered(expression))


def _by_k(expression: Any, kind: str) -> Column:
    """The values and what they are chosen by, likewise."""
    pair = _ordered(expression)
    return F.call_function(kind.removesuffix("_k"), pair, pair, F.lit(group_by.k(expression)))


def _ordered(expression: Any) -> Column:
    of = map(catalyst.normalised, jvm.items(expression.aggregateFunction().children()))
    value, by, *_ = map(catalyst.column, of)
    seen = by.isNotNull()
    condition = expression.filter()
    if condition.isDefined():
        seen = seen & catalyst.column(condition.get())
    return F.when(seen, F.struct(by.alias("by"), value.alias("value")))


def _later(kind: str, t: str, s: str, t_by: str, s_by: str) -> str:
    """Whether the partial result's value takes the place of the table's."""
    if kind == "max_by":
        equal = f"{s} > {t} OR {t} IS NULL"
        return f"({t_by} IS NULL OR {s_by} > {t_by} OR ({s_by} = {t_by} AND ({equal})))"
    return f"({t_by} IS NULL OR {s_by} < {t_by} OR ({s_by} = {t_by} AND ({s} < {t} OR {s} IS NULL)))"


def _text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def _added(t: str, s: str, column: pa.DataType) -> str:
    """The sum of both: `+` wraps around, so what is not floating is added as a DECIMAL with a digit more."""
    total = f"{t} + {s}"
    if not pa.types.is_floating(column):
        digits, scale = (column.precision, column.scale) if pa.types.is_decimal(column) else (19, 0)
        wide = f"DECIMAL({digits + 1}, {scale})"
        kept = f"DECIMAL({digits}, {scale})" if pa.types.is_decimal(column) else "BIGINT"
        total = f"CAST(CAST({t} AS {wide}) + CAST({s} AS {wide}) AS {kept})"
    return f"(CASE WHEN {t} IS NULL THEN {s} WHEN {s} IS NULL THEN {t} ELSE {total} END)"


def _merge(kind: str, t: str, s: str, column: pa.DataType) -> str:
    if kind == "count":
        return f"({t} + {s})"
    if kind == "sum":
        return _added(t, s, column)
    bigger = {"min": "<", "max": ">"}.get(kind)
    return f"(CASE WHEN {t} IS NULL OR {s} {bigger} {t} THEN {s} ELSE {t} END)"
