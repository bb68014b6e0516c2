"""A query as Spark has analysed it → SQL with which DuckDB gives the same rows."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from headwater.common.scratch import quoted
from headwater.planner import nodes
from headwater.planner.translation.kinds import MICROSECONDS, Untranslatable
from headwater.planner.translation.relations import relation
from headwater.runtime import catalyst, jvm

_RULES = ("ReplaceExpressions",)  # of Spark's optimiser: for a name what it stands for


def translate(result: DataFrame) -> str | None:
    """The SQL of a query over inputs of `headwater.planner.marked`, in their order `in0`, `in1`, …; its
    columns are the query's, in order. None: DuckDB might give others."""
    if result.sparkSession.conf.get("spark.sql.session.timeZone") != "UTC":
        return None
    plan = nodes.rewritten(result, _RULES)
    try:
        if _collates(plan) or _has_sessions(plan):
            return None
        found = relation(nodes.Node.of_plan(plan))
    except (Untranslatable, Py4JError):
        return None
    if len(found.columns) != len(result.columns) or MICROSECONDS in found.columns.values():
        return None
    columns = ", ".join(
        f"c{id} AS {quoted(name)}" for id, name in zip(found.columns, result.columns, strict=True)
    )
    return f"SELECT {columns} FROM ({found.sql})"


def _has_sessions(plan: Any) -> bool:
    """Whether rows are grouped by sessions: Spark puts those together that touch, which the plan says by a
    mark alone that JSON leaves out."""
    return "session_window" in str(plan.toString()) and any(
        catalyst.metadata_key(group, "spark.sessionWindow")
        for node in catalyst.nodes(plan)
        if catalyst.kind(node) == "Aggregate"
        for group in jvm.items(node.groupingExpressions())
    )


def _collates(plan: Any) -> bool:
    """Whether texts are compared other than by their bytes: of a cast JSON does not say it."""
    return " as string" in str(plan.toString()) and any(
        " COLLATE " in str(expression.sql())
        for node in catalyst.nodes(plan)
        for expression in jvm.items(node.expressions())
    )
