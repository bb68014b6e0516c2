"""A GROUP BY as Spark has analysed it, taken apart: its groups, its columns, and what it can't have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyspark.sql import DataFrame

from headwater.errors import ProjectError, Where
from headwater.runtime import catalyst, jvm

ENDS = ("start", "end")  # of a window

# Spark's classes, and what the definitions call them.
_KINDS = {"Sum": "sum", "Count": "count", "Min": "min", "Max": "max", "Average": "avg"}
_KINDS |= {"MaxBy": "max_by", "MinBy": "min_by", "MaxMinByK": "max_by_k"}
BY = ("max_by", "min_by")  # choose a value by another
BY_K = ("max_by_k", "min_by_k")  # and these several
_EXTREMES = ("min", "max")
DISTINCT = "distinct"  # count(DISTINCT x): not to be told from new rows alone


@dataclass(frozen=True)
class Taken:
    """An aggregate taken apart: what it groups by, its columns (name, kind, expression), its input."""

    grouping: list[Any]
    columns: list[tuple[str, str, Any]]
    below: Any

    @property
    def window(self) -> Any | None:
        """Which of its groups is the window."""
        return next((group for group in self.grouping if _is_window(group)), None)


@lru_cache(maxsize=4)
def take(frame: DataFrame, where: Where) -> Taken:
    """An aggregate, taken apart; of one batch's frame that is asked for more than once, and takes 15 ms."""
    plan = catalyst.analysed(frame)
    above: list[Any] = []
    while (kind := catalyst.kind(plan)) in ("Project", "SubqueryAlias"):
        if kind == "Project":
            above.append(plan)
        plan = plan.child()
    if kind != "Aggregate":
        what = {**catalyst.ACROSS_ROWS, **_OTHERS}.get(kind, kind)
        raise ProjectError(
            f"{where}: {what} above or beside GROUP BY can't be maintained",
            code="AGGREGATE_NOT_OUTERMOST",
            where=where,
            hint="aggregate at the top, and filter in a table below",
        )
    grouping, output = (list(jvm.items(e)) for e in (plan.groupingExpressions(), plan.aggregateExpressions()))
    columns = [_column(e, where) for e in output]
    for project in reversed(above):
        below = dict(zip(map(catalyst.id_of, output), columns, strict=True))
        output = list(jvm.items(project.projectList()))
        columns = [_renamed(e, below, where) for e in output]
    return Taken(grouping, columns, plan.child())


def check(taken: Taken, where: Where) -> None:
    """Refuse an aggregate whose groups can't be told from its columns, or that is none of plain groups."""
    if catalyst.kind(taken.below) == "Expand":
        raise ProjectError(
            f"{where}: ROLLUP, CUBE and GROUPING SETS are not supported",
            code="GROUPING_SETS_NOT_SUPPORTED",
            where=where,
            hint="make a table for each",
        )
    if catalyst.has(taken.below, "AGGREGATE"):
        raise ProjectError(
            f"{where}: an aggregate of an aggregate",
            code="AGGREGATE_OF_AGGREGATE",
            where=where,
            hint="make the inner one a table of its own",
        )
    for name, kind, inner in taken.columns:
        if kind == DISTINCT:
            raise _not_of_new_rows(name, inner, where)
    for name, kind, inner in taken.columns:
        if kind == "key" and catalyst.has(inner, "PLAN_EXPRESSION"):
            raise ProjectError(
                f"{where}: {name} is looked up by a subselect, and would tell groups apart as it changes",
                code="AGGREGATE_NOT_MAINTAINABLE",
                where=where,
                hint="join it in a table below, or do it in a view",
            )
    covered = [e for _, kind, e in taken.columns if kind == "key"]
    window = taken.window
    if window is not None and not is_of_time(window):
        for name, kind, inner in taken.columns:
            if kind == "key" and not of_window(inner, kind, window) and _mentions(inner, window):
                raise ProjectError(
                    f"{where}: {name} = {inner.sql()} computes with a session, which still grows",
                    code="COMPUTES_WITH_SESSION",
                    where=where,
                    hint="do that in a view",
                )
    for group in taken.grouping:
        if is_collated(group):
            raise ProjectError(
                f"{where}: GROUP BY {group.sql()} is by a collation; tables tell texts apart by bytes",
                code="AGGREGATE_NOT_MAINTAINABLE",
                where=where,
                hint="group by lower(…), or do it in a view",
            )
        if not any(tells(e, group) for e in covered):
            raise ProjectError(
                f"{where}: GROUP BY {group.sql()} is not among its columns",
                code="GROUP_NOT_SELECTED",
                where=where,
                hint="add it to SELECT",
            )


_OTHERS = {"Filter": "a filter (HAVING, or WHERE with a subquery)", "Join": "a join", "Union": "UNION"}


def _column(expression: Any, where: Where) -> tuple[str, str, Any]:
    name = str(expression.name())
    inner = expression.child() if catalyst.kind(expression) == "Alias" else expression
    if not catalyst.has(inner, "AGGREGATE_EXPRESSION"):
        return name, "key", inner
    text = str(inner.sql())
    if catalyst.kind(inner) != "AggregateExpression":
        raise ProjectError(
            f"{where}: {name} = {text} computes with an aggregate",
            code="COMPUTES_WITH_AGGREGATE",
            where=where,
            hint="do that in a query or a table below",
        )
    return (name, *kept(name, inner, where))


def kept(name: str, inner: Any, where: Where) -> tuple[str, Any]:
    """An aggregate, and of which kind it is.

    Raises:
        ProjectError: it is none of those that can be kept.
    """
    text, function = str(inner.sql()), inner.aggregateFunction()
    kind = _KINDS.get(catalyst.kind(function))
    if kind in BY_K:
        kind = f"{function.prettyName()}_k"
    children = list(jvm.items(function.children()))
    if kind == "count" and inner.isDistinct() and len(children) == 1:
        return DISTINCT, inner
    if kind is None or inner.isDistinct() or len(children) != (3 if kind in BY_K else 2 if kind in BY else 1):
        raise _not_of_new_rows(name, inner, where)
    if kind == "avg" and str(function.dataType().sql()) != "DOUBLE":
        raise ProjectError(
            f"{where}: {name} = {text}: avg of DECIMAL or INTERVAL is not supported",
            code="AGGREGATE_NOT_MAINTAINABLE",
            where=where,
            hint="keep sum and count",
        )
    if kind in (*_EXTREMES, *BY, *BY_K) and any(map(is_collated, children)):
        raise ProjectError(
            f"{where}: {name} = {text}: by a collation it can't be maintained",
            code="AGGREGATE_NOT_MAINTAINABLE",
            where=where,
        )
    if kind in BY and any(_is_nested(child) for child in children):
        raise ProjectError(
            f"{where}: {name} = {text}: of a STRUCT, ARRAY or MAP it can't be maintained",
            code="AGGREGATE_NOT_MAINTAINABLE",
            where=where,
        )
    return kind, inner


def _not_of_new_rows(name: str, inner: Any, where: Where) -> ProjectError:
    return ProjectError(
        f"{where}: {name} = {inner.sql()} can't be maintained from new rows alone",
        code="AGGREGATE_NOT_MAINTAINABLE",
        where=where,
        hint=f"known: {', '.join(_KINDS.values())}",
    )


def is_collated(expression: Any) -> bool:
    """Whether texts in a value are equal, or in an order, otherwise than by their bytes."""
    return " COLLATE " in str(expression.dataType().sql()).upper()


def _is_nested(expression: Any) -> bool:
    return catalyst.kind(expression.dataType()).startswith(("StructType", "ArrayType", "MapType"))


def _renamed(
    expression: Any, below: Mapping[int, tuple[str, str, Any]], where: Where
) -> tuple[str, str, Any]:
    """A column of a projection above the aggregate: one of those below, by their ids, or a field of one."""
    name = str(expression.name())
    inner = expression.child() if catalyst.kind(expression) == "Alias" else expression
    if catalyst.kind(inner) == "AttributeReference" and catalyst.id_of(inner) in below:
        return (name, *below[catalyst.id_of(inner)][1:])
    if catalyst.kind(inner) == "GetStructField" and catalyst.kind(inner.child()) == "AttributeReference":
        _, kind, source = below[catalyst.id_of(inner.child())]
        if kind == "key":
            return name, kind, inner.withNewChildren(jvm.sequence([source]))
    raise ProjectError(
        f"{where}: {name} = {inner.sql()} computes with an aggregate's columns",
        code="COMPUTES_WITH_AGGREGATE",
        where=where,
        hint="do that in a query",
    )


def is_of_time(group: Any) -> bool:
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
    return is_of_time(group) or catalyst.metadata_key(group, "spark.sessionWindow")


def of_window(expression: Any, kind: str, window: Any | None) -> str:
    """What of the window a key is; see `aggregate.Output`."""
    if kind != "key" or window is None:
        return ""
    if bool(expression.semanticEquals(window)):
        return "all"
    if catalyst.kind(expression) == "GetStructField" and bool(expression.child().semanticEquals(window)):
        return ENDS[int(expression.ordinal())]
    return ""


def _mentions(expression: Any, group: Any) -> bool:
    return any(bool(part.semanticEquals(group)) for part in catalyst.within(expression))


def tells(expression: Any, group: Any) -> bool:
    """Whether rows of two groups differ in it: it is the group, or one end of its window."""
    if catalyst.kind(expression) == "GetStructField" and _is_window(group):
        return bool(expression.child().semanticEquals(group))
    return bool(expression.semanticEquals(group))


def k(expression: Any) -> int:
    """How many values `max_by` and `min_by` keep, as their third argument says."""
    *_, k = jvm.items(expression.aggregateFunction().children())
    return int(k.eval(None))
