"""Aggregates that are kept up to date by the rows that are new.

A definition `SELECT keys, aggregates FROM stream GROUP BY keys` is taken apart as Spark has analysed
it. A batch of new rows is aggregated by the same keys (the partial result); the table itself is the
state it is merged into. So no watermark is needed, late rows correct their group whenever they come,
and the result does not depend on where batches were cut.

    output     partial columns       merged                       value
    count(x)   count                 t + s                        itself
    sum(x)     sum                   t + s (NULL: the other)      itself
    min, max   min, max              least, greatest              itself
    avg(x)     sum, count            t + s each                   sum / count
    max_by(x, y), min_by   x, y      those with the greater y     x
    max_by(x, y, k)        k of each the k greatest of both       the x of each

Of equal `y` the greatest `x` is taken (min_by: the least), so that the result does not depend on the order
of rows. What is not itself its own partial (avg, and `y`) is kept in the trailing struct column `_partial`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.errors import ProjectError, Where
from headwater.runtime import catalyst, jvm
from headwater.storage import stored
from headwater.storage.names import PARTIAL

WINDOW = "_window"  # of a row that is aggregated
ENDS = ("start", "end")
LATE, ROWS = "_late", "_rows"  # whether rows come too late, and how many they are
BOUNDS = ("_start", "_end")  # of the window of a partial result

_KINDS = {"Sum": "sum", "Count": "count", "Min": "min", "Max": "max", "Average": "avg"}
_KINDS |= {"MaxBy": "max_by", "MinBy": "min_by", "MaxMinByK": "max_by_k"}
_BY = {"max_by": F.max, "min_by": F.min}
_BY_K = ("max_by_k", "min_by_k")
_FUNCTIONS = {"sum": F.sum, "count": F.count, "min": F.min, "max": F.max}


@dataclass(frozen=True)
class Output:
    """A column of the table.

    Attributes:
        name: its name.
        kind: `key`, or an aggregate (one of `_KINDS`).
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

    def merged(self) -> dict[str, str]:
        """{column → its value after a merge}: SQL over the table `t` and the partial result `s`."""
        plain = [o for o in self.outputs if o.kind not in _BY]
        values = {o.name: _merge(o.kind, f't."{o.name}"', f's."{o.name}"') for o in plain}
        parts: list[str] = []
        for name in (o.name for o in self.outputs if o.kind == "avg"):
            total = _merge("sum", f"t.{PARTIAL}['{name}_sum']", f"s.{PARTIAL}['{name}_sum']")
            count = _merge("count", f"t.{PARTIAL}['{name}_count']", f"s.{PARTIAL}['{name}_count']")
            values[name] = f"CASE WHEN {count} > 0 THEN {total} / {count} END"
            parts += [f"'{name}_sum', {total}, '{name}_count', {count}"]
        for output in self.outputs:
            if output.kind in _BY:
                name, by = output.name, f"{PARTIAL}['{output.name}_by']"
                later = _later(output.kind, f't."{name}"', f's."{name}"', f"t.{by}", f"s.{by}")
                values[name] = f'CASE WHEN {later} THEN s."{name}" ELSE t."{name}" END'
                parts.append(f"'{name}_by', CASE WHEN {later} THEN s.{by} ELSE t.{by} END")
        if parts:
            values[PARTIAL] = f"named_struct({', '.join(parts)})"
        return {name: value for name, value in values.items() if name not in self.keys}


def find(frame: DataFrame, where: Where) -> Aggregate | None:
    """How `frame` aggregates; None when it does not.

    Raises:
        ProjectError: it aggregates in a way that can't be maintained from new rows alone.
    """
    found = [node for node in catalyst.nodes(catalyst.analysed(frame)) if catalyst.kind(node) == "Aggregate"]
    if not found:
        return None
    taken = _take(frame, where)
    _check(taken, where)
    window = taken.window
    outputs = [
        Output(name, kind, _of_window(inner, kind, window), _k(inner) if kind in _BY_K else 0)
        for name, kind, inner in taken.columns
    ]
    return Aggregate(tuple(outputs), "" if window is None else "time" if _is_of_time(window) else "session")


def rows(frame: DataFrame, where: Where) -> DataFrame:
    """The rows that `frame` aggregates, and what groups them; the window, if any, is `WINDOW` too."""
    taken = _take(frame, where)
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
    taken = _take(frame, where)
    columns: list[Column] = []
    below = catalyst.frame(frame.sparkSession, taken.below)
    grouping = list(map(catalyst.column, taken.grouping))
    if marked is not None:
        below = marked(rows(frame, where))
        grouping.append(F.col(LATE))
        columns.append(F.count("*").alias(ROWS))
    if bounds:
        columns += [catalyst.column(taken.window).getField(end).alias(f"_{end}") for end in ENDS]
    for at, (_, kind, expression) in enumerate(taken.columns):
        if kind == "key":
            columns.append(catalyst.column(expression).alias(f"_{at}"))
            continue
        if kind in _BY:
            columns.append(_by(expression, kind).alias(f"_{at}_by"))
            continue
        if kind in _BY_K:
            columns.append(_by_k(expression, kind).alias(f"_{at}_by"))
            continue
        for function in ("sum", "count") if kind == "avg" else (kind,):
            columns.append(_aggregated(expression, function).alias(f"_{at}_{function}"))
    found = below.groupBy(*grouping).agg(*columns)
    outputs, parts, orders = [], [], []
    for at, (name, kind, _) in enumerate(taken.columns):
        if kind in _BY:
            outputs.append(f"_{at}_by.value AS {catalyst.quoted(name)}")
            orders.append(f"_{at}_by.`by` AS {catalyst.quoted(f'{name}_by')}")
            continue
        if kind in _BY_K:
            outputs.append(f"_{at}_by.value AS {catalyst.quoted(name)}")
            orders.append(f"_{at}_by AS {catalyst.quoted(f'{name}_by')}")
            continue
        if kind == "avg":
            total, count = f"CAST(_{at}_sum AS DOUBLE)", f"_{at}_count"
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


@dataclass(frozen=True)
class _Taken:
    """An aggregate taken apart: what it groups by, its columns (name, kind, expression), its input."""

    grouping: list[Any]
    columns: list[tuple[str, str, Any]]
    below: Any

    @property
    def window(self) -> Any | None:
        """Which of its groups is the window."""
        return next((group for group in self.grouping if _is_window(group)), None)


@lru_cache(maxsize=4)
def _take(frame: DataFrame, where: Where) -> _Taken:
    """An aggregate, taken apart; of one batch's frame that is asked for more than once, and takes 15 ms."""
    plan = catalyst.analysed(frame)
    above: list[Any] = []
    while catalyst.kind(plan) in ("Project", "SubqueryAlias"):
        if catalyst.kind(plan) == "Project":
            above.append(plan)
        plan = plan.child()
    if catalyst.kind(plan) != "Aggregate":
        what = {**catalyst.ACROSS_ROWS, **_OTHERS}.get(catalyst.kind(plan), catalyst.kind(plan))
        raise ProjectError(
            f"{where}: {what} above or beside GROUP BY can't be maintained",
            code="AGGREGATE_NOT_OUTERMOST",
            table=where.table,
            file=where.file,
            hint="aggregate at the top, and filter in a table below",
        )
    grouping = list(jvm.items(plan.groupingExpressions()))
    columns = [_column(e, where) for e in jvm.items(plan.aggregateExpressions())]
    for project in reversed(above):
        columns = [_renamed(e, columns, where) for e in jvm.items(project.projectList())]
    return _Taken(grouping, columns, plan.child())


def _check(taken: _Taken, where: Where) -> None:
    """Refuse an aggregate whose groups can't be told from its columns, or that is none of plain groups."""
    if catalyst.kind(taken.below) == "Expand":
        raise ProjectError(
            f"{where}: ROLLUP, CUBE and GROUPING SETS are not supported",
            code="GROUPING_SETS_NOT_SUPPORTED",
            table=where.table,
            file=where.file,
            hint="make a table for each",
        )
    if any(catalyst.kind(node) == "Aggregate" for node in catalyst.nodes(taken.below)):
        raise ProjectError(
            f"{where}: an aggregate of an aggregate",
            code="AGGREGATE_OF_AGGREGATE",
            table=where.table,
            file=where.file,
            hint="make the inner one a table of its own",
        )
    covered = [e for _, kind, e in taken.columns if kind == "key"]
    window = taken.window
    if window is not None and not _is_of_time(window):
        for name, kind, inner in taken.columns:
            if kind == "key" and not _of_window(inner, kind, window) and _mentions(inner, window):
                raise ProjectError(
                    f"{where}: {name} = {inner.sql()} computes with a session, which still grows",
                    code="COMPUTES_WITH_SESSION",
                    table=where.table,
                    file=where.file,
                    hint="do that in a view",
                )
    for group in taken.grouping:
        if not any(_tells(e, group) for e in covered):
            raise ProjectError(
                f"{where}: GROUP BY {group.sql()} is not among its columns",
                code="GROUP_NOT_SELECTED",
                table=where.table,
                file=where.file,
                hint="add it to SELECT",
            )


_OTHERS = {"Filter": "a filter (HAVING, or WHERE with a subquery)", "Join": "a join", "Union": "UNION"}


def _column(expression: Any, where: Where) -> tuple[str, str, Any]:
    name = str(expression.name())
    inner = expression.child() if catalyst.kind(expression) == "Alias" else expression
    aggregates = [e for e in catalyst.within(inner) if catalyst.kind(e) == "AggregateExpression"]
    if not aggregates:
        return name, "key", inner
    text = str(inner.sql())
    if catalyst.kind(inner) != "AggregateExpression":
        raise ProjectError(
            f"{where}: {name} = {text} computes with an aggregate",
            code="COMPUTES_WITH_AGGREGATE",
            table=where.table,
            file=where.file,
            hint="do that in a query or a table below",
        )
    function = inner.aggregateFunction()
    kind = _KINDS.get(catalyst.kind(function))
    if kind in _BY_K:
        kind = f"{function.prettyName()}_k"
    children = list(jvm.items(function.children()))
    if (
        kind is None
        or inner.isDistinct()
        or len(children) != (3 if kind in _BY_K else 2 if kind in _BY else 1)
    ):
        raise ProjectError(
            f"{where}: {name} = {text} can't be maintained from new rows alone",
            code="AGGREGATE_NOT_MAINTAINABLE",
            table=where.table,
            file=where.file,
            hint=f"known: {', '.join(_KINDS.values())}",
        )
    if kind == "avg" and "decimal" in str(function.dataType().sql()).lower():
        raise ProjectError(
            f"{where}: {name} = {text}: avg of DECIMAL is not supported",
            code="AGGREGATE_NOT_MAINTAINABLE",
            table=where.table,
            file=where.file,
            hint="keep sum and count",
        )
    if kind in _BY and any(_is_nested(child) for child in children):
        raise ProjectError(
            f"{where}: {name} = {text}: of a STRUCT, ARRAY or MAP it can't be maintained",
            code="AGGREGATE_NOT_MAINTAINABLE",
            table=where.table,
            file=where.file,
        )
    return name, kind, inner


def _is_nested(expression: Any) -> bool:
    return catalyst.kind(expression.dataType()).startswith(("StructType", "ArrayType", "MapType"))


def _renamed(expression: Any, columns: list[tuple[str, str, Any]], where: Where) -> tuple[str, str, Any]:
    """A column of a projection above the aggregate: one of the aggregate's, or a field of one, renamed."""
    name = str(expression.name())
    inner = expression.child() if catalyst.kind(expression) == "Alias" else expression
    below = {column[0]: column for column in columns}
    if catalyst.kind(inner) == "AttributeReference" and str(inner.name()) in below:
        return (name, *below[str(inner.name())][1:])
    if catalyst.kind(inner) == "GetStructField" and catalyst.kind(inner.child()) == "AttributeReference":
        _, kind, source = below[str(inner.child().name())]
        if kind == "key":
            return name, kind, inner.withNewChildren(jvm.gateway().jvm.PythonUtils.toSeq([source]))
    raise ProjectError(
        f"{where}: {name} = {inner.sql()} computes with an aggregate's columns",
        code="COMPUTES_WITH_AGGREGATE",
        table=where.table,
        file=where.file,
        hint="do that in a query",
    )


def _is_of_time(group: Any) -> bool:
    """Whether it is Spark's `window`, or a column of that name and type: see `headwater.project.windows`."""
    if catalyst.metadata_key(group, "spark.timeWindow"):
        return True
    return catalyst.kind(group) == "AttributeReference" and (
        str(group.name()),
        str(group.dataType().sql()),
    ) == (
        "window",
        "STRUCT<start: TIMESTAMP, end: TIMESTAMP>",
    )


def _is_window(group: Any) -> bool:
    return _is_of_time(group) or catalyst.metadata_key(group, "spark.sessionWindow")


def _of_window(expression: Any, kind: str, window: Any | None) -> str:
    """What of the window a key is; see `Output`."""
    if kind != "key" or window is None:
        return ""
    if bool(expression.semanticEquals(window)):
        return "all"
    if catalyst.kind(expression) == "GetStructField" and bool(expression.child().semanticEquals(window)):
        return ENDS[int(expression.ordinal())]
    return ""


def _mentions(expression: Any, group: Any) -> bool:
    return any(bool(part.semanticEquals(group)) for part in catalyst.within(expression))


def _tells(expression: Any, group: Any) -> bool:
    """Whether rows of two groups differ in it: it is the group, or one end of its window."""
    if catalyst.kind(expression) == "GetStructField" and _is_window(group):
        return bool(expression.child().semanticEquals(group))
    return bool(expression.semanticEquals(group))


def _aggregated(expression: Any, function: str) -> Column:
    child = catalyst.column(next(jvm.items(expression.aggregateFunction().children())))
    condition = expression.filter()
    if condition.isDefined():
        child = F.when(catalyst.column(condition.get()), child)
    return _FUNCTIONS[function](child)


def _by(expression: Any, kind: str) -> Column:
    """The value and what it is chosen by, as a struct that orders as they shall."""
    return _BY[kind](_ordered(expression))


def _by_k(expression: Any, kind: str) -> Column:
    """The values and what they are chosen by, likewise."""
    pair = _ordered(expression)
    return F.call_function(kind.removesuffix("_k"), pair, pair, F.lit(_k(expression)))


def _k(expression: Any) -> int:
    *_, k = jvm.items(expression.aggregateFunction().children())
    return int(k.eval(None))


def _ordered(expression: Any) -> Column:
    value, by, *_ = map(catalyst.column, jvm.items(expression.aggregateFunction().children()))
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


def _merge(kind: str, t: str, s: str) -> str:
    if kind == "count":
        return f"({t} + {s})"
    if kind == "sum":
        return f"(CASE WHEN {t} IS NULL THEN {s} WHEN {s} IS NULL THEN {t} ELSE {t} + {s} END)"
    bigger = {"min": "<", "max": ">"}.get(kind)
    return f"(CASE WHEN {t} IS NULL OR {s} {bigger} {t} THEN {s} ELSE {t} END)"
