"""A query, cut at a GROUP BY: the rows that it groups, the groups, and what it makes of these above.

    SELECT category, round(sum(price) / count(*), 2) AS mean FROM ... GROUP BY category HAVING max(price) > 10

The groups are a relation by themselves, with the columns `k0`, `k1`, ... by which rows are grouped (a window
of time is two: its start and its end) and `c0`, `c1`, ... for each aggregate that the query has of them, here
the sum, the count and the maximum. What the query makes of these is a query over that relation, and over the
tables that it reads beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater.errors import ProjectError, Where
from headwater.planner import group_by, nodes
from headwater.planner.group_by import Taken
from headwater.runtime import catalyst, jvm

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_LOCAL = ("Project", "Filter", "SubqueryAlias")  # a row of these is made of one row below

Place = tuple[int, ...]  # of a node in a plan: which child, from the root on


@dataclass(frozen=True)
class Cut:
    """Where a query is cut.

    Attributes:
        plan: the query's, as Spark has analysed it.
        places: the GROUP BY; several, if the query has the same more than once.
        taken: it, taken apart.
        is_local: whether a row of the query's result is made of one group.
    """

    plan: Any
    places: tuple[Place, ...]
    taken: Taken
    is_local: bool

    def groups(self, spark: SparkSession) -> DataFrame:
        """The groups."""
        keys, values = (
            [
                catalyst.column(e).alias(name)
                for name, kind, e in self.taken.columns
                if (kind == "key") is wanted
            ]
            for wanted in (True, False)
        )
        rows = catalyst.frame(spark, self.taken.below)
        return rows.groupBy(*keys).agg(*values) if values else rows.select(*keys).distinct()

    def over(self, spark: SparkSession, groups: DataFrame) -> DataFrame:
        """What the query makes of groups."""
        plan, below = self.plan, catalyst.analysed(groups)
        for place in self.places:
            plan = _replaced(plan, place, _over(_at(plan, place), below))
        return catalyst.frame(spark, plan)


def of(result: DataFrame, where: Where, *, innermost: bool) -> Cut | None:
    """A query, cut at the GROUP BY that no other is above, or below; None: there is none, or several.

    Args:
        result: what the query gives.
        where: what errors name.
        innermost: whether no other may be below.
    """
    plan = nodes.rewritten(result, ())
    if not catalyst.has(plan, "AGGREGATE"):
        return None
    found = list(_aggregates(plan, innermost))
    if not found or any(not catalyst.is_same(node, found[0][1]) for _, node in found[1:]):
        return None
    try:
        taken = _taken(found[0][1], where)
    except ProjectError:  # an aggregate that can't be kept
        return None
    places = tuple(place for place, _ in found)
    return Cut(plan, places, taken, len(places) == 1 and _is_local(plan, places[0]))


def _aggregates(node: Any, innermost: bool, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """The plan's GROUP BYs that no other is above, or below."""
    if catalyst.kind(node) == "Aggregate" and (not innermost or not catalyst.has(node.child(), "AGGREGATE")):
        yield place, node
        return
    if catalyst.has(node, "AGGREGATE"):
        for at, child in enumerate(jvm.items(node.children())):
            yield from _aggregates(child, innermost, (*place, at))


def subqueries(part: Cut) -> Iterator[Any]:
    """The leaves of the plans of the subqueries in a GROUP BY, or below it."""
    for node in catalyst.nodes(_at(part.plan, part.places[0])):
        for subquery in jvm.items(node.subqueries()):
            yield from jvm.items(subquery.collectLeaves())


def _is_local(plan: Any, place: Place) -> bool:
    """Whether all that is above a node makes a row of one row."""
    return all(catalyst.kind(_at(plan, place[:depth])) in _LOCAL for depth in range(len(place)))


def _at(plan: Any, place: Place) -> Any:
    for child in place:
        plan = plan.children().apply(child)
    return plan


def _replaced(plan: Any, place: Place, node: Any) -> Any:
    """A plan with another node at a place."""
    if not place:
        return node
    children = list(jvm.items(plan.children()))
    children[place[0]] = _replaced(children[place[0]], place[1:], node)
    return plan.withNewChildren(jvm.sequence(children))


def _taken(node: Any, where: Where) -> Taken:
    keys = [(f"k{at}", "key", key) for at, (_, key) in enumerate(_keys(node))]
    values = [
        (name := f"c{at}", *group_by.kept(name, expression, where))
        for at, expression in enumerate(_values(node))
    ]
    return Taken(list(jvm.items(node.groupingExpressions())), [*keys, *values], node.child())


def _keys(node: Any) -> list[tuple[Any, Any]]:
    """What a GROUP BY groups by: (the group, a key of it)."""
    found = []
    for group in jvm.items(node.groupingExpressions()):
        keys = [group]
        if group_by.is_of_time(group):
            field = jvm.java_class(f"{_EXPRESSIONS}GetStructField")
            none = jvm.java_class("scala.Option").empty()
            keys = [field(group, at, none) for at in range(len(group_by.ENDS))]
        found += [(group, key) for key in keys]
    return found


def _values(node: Any) -> list[Any]:
    """The aggregates that a GROUP BY computes, each once."""
    found: list[Any] = []
    for expression in jvm.items(node.aggregateExpressions()):
        if catalyst.has(expression, "AGGREGATE_EXPRESSION"):
            found += [
                each
                for each in catalyst.within(expression)
                if catalyst.kind(each) == "AggregateExpression"
                and not any(catalyst.is_same_value(each, one) for one in found)
            ]
    return found


def _over(node: Any, groups: Any) -> Any:
    """A GROUP BY's columns, made of groups."""
    given = {str(column.name()): column for column in jvm.items(groups.output())}
    keys = [(group, key, given[f"k{at}"]) for at, (group, key) in enumerate(_keys(node))]
    known = [(key, column) for _, key, column in keys]
    known += [(group, _window(keys, group)) for group, key, _ in keys if key is not group]
    known += [(value, given[f"c{at}"]) for at, value in enumerate(_values(node))]
    named = []
    for each in jvm.items(node.aggregateExpressions()):
        made = _made(each.child() if catalyst.kind(each) == "Alias" else each, known)
        named.append(catalyst.renamed(made, each))
    return jvm.java_class("org.apache.spark.sql.catalyst.plans.logical.Project")(jvm.sequence(named), groups)


def _window(keys: list[tuple[Any, Any, Any]], group: Any) -> Any:
    """A window of time, of its two ends."""
    literal = getattr(jvm.java_class(f"{_EXPRESSIONS}Literal$"), "MODULE$")
    ends = [column for of, _, column in keys if of is group]
    parts = [
        each for name, end in zip(group_by.ENDS, ends, strict=True) for each in (literal.apply(name), end)
    ]
    return jvm.java_class(f"{_EXPRESSIONS}CreateNamedStruct")(jvm.sequence(parts))


def _made(expression: Any, known: list[tuple[Any, Any]]) -> Any:
    """An expression, made of what is known in place of what that stands for."""
    for of, column in known:
        is_value = catalyst.kind(of) == "AggregateExpression"
        if catalyst.is_same_value(expression, of) if is_value else bool(expression.semanticEquals(of)):
            return column
    children = list(jvm.items(expression.children()))
    made = [_made(child, known) for child in children]
    if all(one is other for one, other in zip(children, made, strict=True)):
        return expression
    return expression.withNewChildren(jvm.sequence(made))
