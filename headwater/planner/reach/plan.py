"""From an analysed plan of Spark to `headwater.planner.reach.tree`.

The plan is read as the JSON that Spark writes of it, in one call: to ask for one column after the other takes
0.3 ms each. Its subqueries are read as the joins that Spark's optimiser makes of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StringType, StructField, StructType

from headwater.planner.reach.tree import Column, Joined, Kept, Kind, Part, Read, United, Whole
from headwater.runtime import catalyst, in_memory, jvm

# In the names of an input's columns: which one it is; of those that can't tell rows apart, another.
_MARK, _OTHER = "headwater", "headwater-other"
_OPTIMISER = "org.apache.spark.sql.catalyst.optimizer."
_RULES = ("PullupCorrelatedPredicates", "RewritePredicateSubquery", "RewriteCorrelatedScalarSubquery")

# Types whose equal values are the same to Spark, DuckDB and the log's bounds: not so NaN and nested ones.
_WHOLE_NUMBERS = ("byte", "short", "integer", "long")
TOLD_APART = (*_WHOLE_NUMBERS, "boolean", "string", "date", "timestamp", "timestamp_ntz")

_JOINS: dict[str, Kind] = {"Inner": "inner", "Cross": "inner", "FullOuter": "full"}
_OF_LEFT = ("LeftOuter", "LeftSemi", "LeftAnti", "ExistenceJoin", "LeftSingle")
_ACROSS = {**catalyst.ACROSS_ROWS, "Expand": "GROUPING SETS, ROLLUP or CUBE"}


@dataclass(frozen=True)
class _Node:
    """A node of a plan or of an expression, with its fields as Spark writes them."""

    kind: str
    fields: Mapping[str, Any]
    children: tuple[_Node, ...]

    @classmethod
    def of(cls, flat: Sequence[Mapping[str, Any]]) -> _Node:
        """A tree from its nodes, each before its children."""
        left = iter(flat)

        def take() -> _Node:
            fields = next(left)
            kind = fields["class"].rpartition(".")[2].rstrip("$")
            return cls(kind, fields, tuple(take() for _ in range(fields["num-children"])))

        return take()

    def expressions(self, field: str) -> list[_Node]:
        return [_Node.of(flat) for flat in self.fields[field]]

    @property
    def id(self) -> int:
        return int(self.fields["exprId"]["id"])


def marked(spark: SparkSession, number: int, columns: StructType) -> DataFrame:
    """An input without rows, that a plan can be asked for.

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


def part_of(
    result: DataFrame, sources: Sequence[str], unchanging: Sequence[str]
) -> tuple[Part, dict[Column, str]]:
    """What a query's result is made of, and {column → its name} of the result.

    Args:
        result: the query over inputs as `marked` makes them.
        sources: their names.
        unchanging: those that are read as a whole where they have changed.
    """
    plan = jvm.java_class(f"{_OPTIMISER}InlineCTE")(True, False).apply(catalyst.analysed(result))
    for rule in _RULES:
        plan = getattr(jvm.java_class(f"{_OPTIMISER}{rule}$"), "MODULE$").apply(plan)
    if catalyst.has(plan, "PLAN_EXPRESSION"):
        return Whole("a subquery that is no join"), {}
    root = _Node.of(json.loads(plan.toJSON()))
    if unread := next((kind for kind in _kinds(root) if kind not in _KINDS), ""):
        return Whole(_ACROSS.get(unread, unread)), {}
    return _Reading(sources, unchanging).part(root), dict(zip(_output(root), result.columns, strict=True))


def _kinds(node: _Node) -> Iterator[str]:
    """The kinds of a plan's nodes, the root's first."""
    yield node.kind
    for child in node.children:
        yield from _kinds(child)


def is_binary(kind: DataType) -> bool:
    """Whether texts of this type, if it is one, are equal where their bytes are: no other collation."""
    return not isinstance(kind, StringType) or kind.collation == "UTF8_BINARY"


class _Reading:
    """Reads a plan; see `part_of`."""

    def __init__(self, sources: Sequence[str], unchanging: Sequence[str]) -> None:
        self._sources, self._unchanging = sources, unchanging
        self._reads = 0

    def part(self, node: _Node) -> Part:
        """What a node of the plan is."""
        return _KINDS[node.kind](self, node)

    def _same(self, node: _Node) -> Part:
        return self.part(node.children[0])

    def _input(self, node: _Node) -> Part:
        columns: dict[Column, str] = {}
        source = ""
        for column in node.expressions("output"):
            mark, number, name = (*str(column.fields["name"]).split(":", 2), "", "")[:3]
            if mark in (_MARK, _OTHER):
                source = self._sources[int(number)]
                if mark == _MARK and _is_told_apart(column):
                    columns[column.id] = name
        self._reads += 1
        return Read(self._reads - 1, source, columns, changes=bool(source) and source not in self._unchanging)

    def _constant(self, node: _Node) -> Part:
        self._reads += 1
        return Read(self._reads - 1, "", {}, changes=False)

    def _projected(self, node: _Node) -> Part:
        return Kept(self._same(node), dict(_columns(node.expressions("projectList"))))

    def _grouped(self, node: _Node) -> Part:
        groups = {
            column for e in node.expressions("groupingExpressions") if (column := _column(e)) is not None
        }
        if not node.fields["groupingExpressions"]:
            return Whole("an aggregate without GROUP BY")
        found = _columns(node.expressions("aggregateExpressions"))
        return Kept(self._same(node), {column: of for column, of in found if of in groups})

    def _over(self, node: _Node, field: str = "partitionSpec") -> Part:
        if not node.fields[field]:
            return Whole("a window function without PARTITION BY")
        columns = [_column(e) for e in node.expressions(field)]
        return Kept(self._same(node), {column: column for column in columns if column is not None})

    def _deduplicated(self, node: _Node) -> Part:
        return self._over(node, "keys")

    def _united(self, node: _Node) -> Part:
        outputs = [_output(child) for child in node.children]
        by_position = dict(zip(outputs[0], zip(*outputs, strict=True), strict=True))
        return United(
            tuple(self.part(child) for child in node.children), cast(Mapping[Column, Any], by_position)
        )

    def _joined(self, node: _Node) -> Part:
        said = node.fields["joinType"]
        kind = str(said.get("object") or said.get("product-class")).rpartition(".")[2].rstrip("$")
        left, right = node.children
        if kind == "RightOuter":
            left, right, kind = right, left, "LeftOuter"
        if kind not in _JOINS and kind not in _OF_LEFT:
            return Whole(f"a join ({kind})")
        ours, theirs = {*_output(left)}, {*_output(right)}
        pairs: list[tuple[int, int]] = []
        for condition in _all_of(_condition(node)):
            if condition.kind != "EqualTo":
                continue
            one, other = map(_number, condition.children)
            if one is None or other is None:
                continue
            if one in ours and other in theirs:
                pairs.append((one, other))
            elif one in theirs and other in ours:
                pairs.append((other, one))
        return Joined(_JOINS.get(kind, "left"), self.part(left), self.part(right), tuple(pairs))


_KINDS: dict[str, Callable[[_Reading, _Node], Part]] = {
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


def _output(node: _Node) -> list[Column]:
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


def _columns(named: Sequence[_Node]) -> Iterator[tuple[Column, Column]]:
    """Of named expressions those that are columns of what they are made of: (column, the one that it is)."""
    for each in named:
        of = _column(each.children[0] if each.kind == "Alias" else each)
        if of is not None:
            yield each.id, of


def _column(expression: _Node) -> Column | None:
    """The column that an expression is; None where it computes."""
    if expression.kind == "AttributeReference":
        return expression.id
    if expression.kind == "Coalesce" and len(expression.children) == 2:
        left, right = map(_column, expression.children)
        if isinstance(left, int) and isinstance(right, int):
            return left, right
    return None


def _number(expression: _Node) -> int | None:
    """As `_column`; a whole number also where it is made a wider one, to be compared."""
    if expression.kind == "Cast" and expression.fields["dataType"] in _WHOLE_NUMBERS:
        (inner,) = expression.children
        is_number = inner.kind == "AttributeReference" and inner.fields["dataType"] in _WHOLE_NUMBERS
        return inner.id if is_number else None
    return expression.id if expression.kind == "AttributeReference" else None


def _condition(join: _Node) -> list[_Node]:
    """The condition of a join; none where it has none."""
    found = join.fields.get("condition")
    return [_Node.of(found)] if found else []


def _all_of(conditions: Sequence[_Node]) -> Iterator[_Node]:
    """All that must hold together."""
    for each in conditions:
        if each.kind == "And":
            yield from _all_of(each.children)
        else:
            yield each


def _is_told_apart(column: _Node) -> bool:
    kind = column.fields["dataType"]
    return isinstance(kind, str) and (kind in TOLD_APART or kind.startswith("decimal"))
