"""From an analysed plan of Spark to `headwater.planner.reach.tree`.

Its subqueries are read as the joins that Spark's optimiser makes of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pyspark.sql import DataFrame

from headwater.planner import marked, nodes
from headwater.planner.nodes import Node, conditions
from headwater.planner.reach.tree import Column, Joined, Kept, Kind, Order, Part, Read, United, Whole
from headwater.runtime import catalyst

_RULES = ("PullupCorrelatedPredicates", "RewritePredicateSubquery", "RewriteCorrelatedScalarSubquery")

_JOINS: dict[str, Kind] = {"Inner": "inner", "Cross": "inner", "FullOuter": "full"}
_OF_LEFT = ("LeftOuter", "LeftSemi", "LeftAnti", "ExistenceJoin", "LeftSingle")
_ORDERS = ("LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual")
_WHOLE_ROWS = ("Distinct", "Union", "Except", "Intersect")
_LEAVES = ("LocalRelation", "Range", "OneRowRelation")
_ACROSS = {**catalyst.ACROSS_ROWS, "Expand": "GROUPING SETS, ROLLUP or CUBE"}


def part_of(
    result: DataFrame, sources: Sequence[str], unchanging: Sequence[str]
) -> tuple[Part, dict[Column, str]]:
    """What a query's result is made of, and {column → its name} of the result.

    Args:
        result: the query over inputs as `marked.frame` makes them.
        sources: their names.
        unchanging: those that are read as a whole where they have changed.
    """
    plan = nodes.rewritten(result, _RULES)
    if catalyst.has(plan, "PLAN_EXPRESSION"):
        return Whole("a subquery that is no join"), {}
    root = Node.of_plan(plan)
    if unread := next((kind for kind in _kinds(root) if kind not in _KINDS), ""):
        return Whole(_ACROSS.get(unread, unread)), {}
    return _Reading(sources, unchanging, _asked(root)).part(root), dict(
        zip(_output(root), result.columns, strict=True)
    )


def _kinds(node: Node) -> Iterator[str]:
    """The kinds of a plan's nodes, the root's first."""
    yield node.kind
    for child in node.children:
        yield from _kinds(child)


class _Reading:
    """Reads a plan; see `part_of`."""

    def __init__(self, sources: Sequence[str], unchanging: Sequence[str], asked: Counter[int]) -> None:
        self._sources, self._unchanging, self._asked = sources, unchanging, asked
        self._reads = 0

    def part(self, node: Node) -> Part:
        """What a node of the plan is."""
        return _KINDS[node.kind](self, node)

    def _same(self, node: Node) -> Part:
        return self.part(node.children[0])

    def _input(self, node: Node) -> Part:
        source, columns = marked.read(node, self._sources)
        changes = bool(source) and source not in self._unchanging
        self._reads += 1
        return Read(self._reads - 1, source, cast(Mapping[Column, str], columns), changes=changes)

    def _constant(self, node: Node) -> Part:
        self._reads += 1
        return Read(self._reads - 1, "", {}, changes=False)

    def _projected(self, node: Node) -> Part:
        return Kept(self._same(node), dict(_columns(node.expressions("projectList"))))

    def _grouped(self, node: Node) -> Part:
        groups = {
            column for e in node.expressions("groupingExpressions") if (column := _column(e)) is not None
        }
        if not node.fields["groupingExpressions"]:
            return Whole("an aggregate without GROUP BY")
        found = _columns(node.expressions("aggregateExpressions"))
        return Kept(self._same(node), {column: of for column, of in found if of in groups})

    def _over(self, node: Node, field: str = "partitionSpec") -> Part:
        if not node.fields[field]:
            return Whole("a window function without PARTITION BY")
        columns = [_column(e) for e in node.expressions(field)]
        return Kept(self._same(node), {column: column for column in columns if column is not None})

    def _deduplicated(self, node: Node) -> Part:
        return self._over(node, "keys")

    def _united(self, node: Node) -> Part:
        outputs = [_output(child) for child in node.children]
        by_position = dict(zip(outputs[0], zip(*outputs, strict=True), strict=True))
        return United(
            tuple(self.part(child) for child in node.children), cast(Mapping[Column, Any], by_position)
        )

    def _joined(self, node: Node) -> Part:
        said = node.fields["joinType"]
        kind = str(said.get("object") or said.get("product-class")).rpartition(".")[2].rstrip("$")
        left, right = node.children
        if kind == "RightOuter":
            left, right, kind = right, left, "LeftOuter"
        if kind not in _JOINS and kind not in _OF_LEFT:
            return Whole(f"a join ({kind})")
        ours, theirs = {*_output(left)}, {*_output(right)}
        pairs: list[tuple[int, int]] = []
        for condition in conditions(node):
            if condition.kind != "EqualTo":
                continue
            one, other = map(marked.number_of, condition.children)
            if one is None or other is None:
                continue
            if one in ours and other in theirs:
                pairs.append((one, other))
            elif one in theirs and other in ours:
                pairs.append((other, one))
        orders = [order for condition in conditions(node) if (order := self._order(condition)) is not None]
        across = [each for each in orders if (each.less in ours) is not (each.more in ours)]
        kind = _JOINS.get(kind, "left")
        return Joined(kind, self.part(left), self.part(right), tuple(pairs), tuple(across))

    def _order(self, condition: Node) -> Order | None:
        """See `_order`; and whether nothing else asks for the greater column."""
        found = _order(condition)
        if found is None:
            return None
        here = _columns_of(condition).count(cast(int, found.more))
        return replace(found, sole=self._asked[cast(int, found.more)] == here)


def _asked(root: Node) -> Counter[int]:
    """{column → how often a plan asks for it}: in an expression, in what it gives, or in rows that it
    compares as a whole. To hand it on is none."""
    found = Counter(column for column in _output(root) if isinstance(column, int))
    todo = [root]
    while todo:
        node = todo.pop()
        todo += node.children
        if node.kind in _WHOLE_ROWS:
            for child in node.children:
                found.update(column for column in _output(child) if isinstance(column, int))
        for name, field in node.fields.items():
            if node.kind in _LEAVES and name == "output":
                continue
            handed_on = node.kind == "Project" and name == "projectList"
            found.update(_columns_in([flat for flat in field if len(flat) > 1] if handed_on else field))
    return found


def _columns_in(field: Any) -> Iterator[int]:
    """The columns that the expressions of a field of a node have, each as often as it stands there."""
    if isinstance(field, Mapping):
        if str(field.get("class", "")).endswith(".AttributeReference"):
            yield int(field["exprId"]["id"])
            return
        for each in field.values():
            yield from _columns_in(each)
    elif isinstance(field, Sequence) and not isinstance(field, str):
        for each in field:
            yield from _columns_in(each)


def _columns_of(expression: Node) -> list[int]:
    """The columns that an expression has, each as often as it stands there."""
    own = [expression.id] if expression.kind == "AttributeReference" else []
    return own + [column for child in expression.children for column in _columns_of(child)]


def _order(condition: Node) -> Order | None:
    """The order of two columns that a condition asks for, or that one of them is NULL."""
    if condition.kind == "Or":
        for one, other in (condition.children, reversed(condition.children)):
            found = _order(other) if one.kind == "IsNull" else None
            if found is not None and (column := marked.number_of(one.children[0])) in (
                found.less,
                found.more,
            ):
                return Order(found.less, found.more, column)
        return None
    if condition.kind not in _ORDERS:
        return None
    less, more = map(marked.number_of, condition.children)
    if condition.kind.startswith("Greater"):
        less, more = more, less
    return None if less is None or more is None else Order(less, more)


_KINDS: dict[str, Callable[[_Reading, Node], Part]] = {
    **dict.fromkeys(
        (
            "Filter",
            "Sort",
            "SubqueryAlias",
            "View",
            "ResolvedHint",
            "Repartition",
            "RepartitionByExpression",
            "Distinct",
            "Generate",
        ),
        _Reading._same,
    ),
    **dict.fromkeys(("Union", "Except", "Intersect"), _Reading._united),
    "LocalRelation": _Reading._input,
    "OneRowRelation": _Reading._constant,
    "Range": _Reading._constant,
    "Project": _Reading._projected,
    "Aggregate": _Reading._grouped,
    "Window": _Reading._over,
    "Deduplicate": _Reading._deduplicated,
    "Join": _Reading._joined,
}


def _output(node: Node) -> list[Column]:
    """The columns of a node of a plan, in order."""
    if node.kind in ("Project", "Aggregate"):
        field = "projectList" if node.kind == "Project" else "aggregateExpressions"
        return [each.id for each in node.expressions(field)]
    if node.kind in ("LocalRelation", "Range"):
        return [each.id for each in node.expressions("output")]
    below = [_output(child) for child in node.children[:1]]
    if node.kind == "Join":
        kind = str(node.fields["joinType"])
        is_filter = any(each in kind for each in ("LeftSemi", "LeftAnti", "ExistenceJoin"))
        below += [] if is_filter else [_output(node.children[1])]
    more = {"Window": "windowExpressions", "Generate": "generatorOutput"}.get(node.kind)
    below += [[each.id for each in node.expressions(more)]] if more else []
    return [column for part in below for column in part]


def _columns(named: Sequence[Node]) -> Iterator[tuple[Column, Column]]:
    """Of named expressions those that are columns of what they are made of: (column, the one that it is)."""
    for each in named:
        of = _column(each.children[0] if each.kind == "Alias" else each)
        if of is not None:
            yield each.id, of


def _column(expression: Node) -> Column | None:
    """The column that an expression is; None where it computes."""
    if expression.kind == "AttributeReference":
        return expression.id
    if expression.kind == "Coalesce" and len(expression.children) == 2:
        left, right = map(_column, expression.children)
        if isinstance(left, int) and isinstance(right, int):
            return left, right
    return None
