"""The inner part of a view that aggregates what it has aggregated: a table of its own, `<table>__1`.

    SELECT category, avg(final) FROM (SELECT id, category, max(price) AS final ... GROUP BY id, category)
    GROUP BY category

A changed row of an input touches one group of the inner part and, by that, one of the few of the outer: to
compute that anew would read much of the input. So what the inner part gives is kept, by the rows that changes
touch (`headwater.planner.reach`); and the outer groups by what its rows add to them and take from them
(`headwater.planner.groups`).

The columns are `k0`, `k1`, ... by which the inner part groups, its keys, and `c0`, `c1`, ... which it gives.
An inner part of one table whose rows never change is kept as the outer groups are: the table beside the view
then has what the inner groups are made of, and a batch reads no other row of the input than the new ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.planner.group_by import Taken
from headwater.planner.groups import Groups
from headwater.planner.reach import Reach
from headwater.runtime import catalyst, jvm

_LOCAL = ("Project", "Filter", "SubqueryAlias")  # a row of these is made of one row below
_PLANS = "org.apache.spark.sql.catalyst.plans.logical."


@dataclass(frozen=True)
class Stage:
    """A table that a view keeps of its inner part.

    Attributes:
        columns: its columns; `stored`: as they are stored.
        keys: those that tell its rows apart.
        reach: how it is kept by the rows that changes touch; None: by its `groups`.
        groups: how these are kept; the table then has what they are made of.
    """

    columns: StructType
    stored: pa.Schema
    keys: tuple[str, ...]
    reach: Reach | None
    groups: Groups | None = None


@dataclass(frozen=True)
class Inner:
    """The inner part of an aggregate, in its plan.

    Attributes:
        plan: the part: an aggregate too.
        above: the nodes of the plan between the two, from above.
    """

    plan: Any
    above: tuple[Any, ...]

    def rows(self, spark: SparkSession) -> DataFrame:
        """What it gives: the columns of the stage."""
        groups = [catalyst.column(group) for group in jvm.items(self.plan.groupingExpressions())]
        keys = [group.alias(f"k{at}") for at, group in enumerate(groups)]
        given = [
            catalyst.column(each.child() if catalyst.kind(each) == "Alias" else each).alias(f"c{at}")
            for at, each in enumerate(jvm.items(self.plan.aggregateExpressions()))
        ]
        found = catalyst.frame(spark, self.plan.child()).groupBy(*keys).agg(*given)
        return found

    def over(self, taken: Taken, rows: DataFrame) -> Taken:
        """The outer aggregate over some rows of the stage."""
        given = {str(column.name()): column for column in jvm.items(catalyst.analysed(rows).output())}
        named = [
            catalyst.renamed(given[f"c{at}"], column)
            for at, column in enumerate(jvm.items(self.plan.output()))
        ]
        plan = jvm.java_class(f"{_PLANS}Project")(jvm.sequence(named), catalyst.analysed(rows))
        for node in reversed(self.above):
            plan = node.withNewChildren(jvm.sequence([plan]))
        return replace(taken, below=plan)


def inner(taken: Taken) -> Inner | None:
    """The inner part of an aggregate that is over the rows of another one; None: it is over others."""
    above, node = [], taken.below
    while (kind := catalyst.kind(node)) in _LOCAL:
        above.append(node)
        node = node.child()
    if kind != "Aggregate" or not node.groupingExpressions().length():
        return None
    if any(
        catalyst.has(expression, "PLAN_EXPRESSION")
        for each in above
        for expression in jvm.items(each.expressions())
    ):
        return None
    return Inner(node, tuple(above))
