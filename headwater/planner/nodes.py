"""Spark's plans as trees that are read here.

A plan writes itself as JSON in one call; to ask for one column after the other takes 0.3 ms each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from headwater.runtime import catalyst, jvm

_ESCAPED = '"escapeChar":null'  # a character, which Spark leaves out of its JSON
_OPTIMISER = "org.apache.spark.sql.catalyst.optimizer."


@dataclass(frozen=True)
class Node:
    """A node of a plan or of an expression, with its fields as Spark writes them."""

    kind: str
    fields: Mapping[str, Any]
    children: tuple[Node, ...]

    @classmethod
    def of(cls, flat: Sequence[Mapping[str, Any]]) -> Node:
        """A tree from its nodes, each before its children."""
        left = iter(flat)

        def take() -> Node:
            fields = next(left)
            kind = fields["class"].rpartition(".")[2].rstrip("$")
            return cls(kind, fields, tuple(take() for _ in range(fields["num-children"])))

        return take()

    @classmethod
    def of_plan(cls, plan: Any) -> Node:
        """The tree of an analysed plan."""
        text = str(plan.toJSON())
        if _ESCAPED in text and " ESCAPE '" in catalyst.text(plan):
            text = text.replace(_ESCAPED, _ESCAPED.replace("null", '"?"'))
        return cls.of(json.loads(text))

    def expressions(self, field: str) -> list[Node]:
        """Those of a field that has a list of them."""
        return [Node.of(flat) for flat in self.fields[field]]

    def expressions_of(self, field: str) -> list[Node]:
        """The one of a field, if it has one."""
        found = self.fields.get(field)
        return [Node.of(found)] if found else []

    @property
    def id(self) -> int:
        return int(self.fields["exprId"]["id"])


def rewritten(result: DataFrame, rules: Sequence[str]) -> Any:
    """The analysed plan of a query without CTEs, after these rules of Spark's optimiser."""
    plan = jvm.java_class(f"{_OPTIMISER}InlineCTE")(True, False).apply(catalyst.analysed(result))
    for rule in rules:
        plan = getattr(jvm.java_class(f"{_OPTIMISER}{rule}$"), "MODULE$").apply(plan)
    return plan


def computed(node: Node) -> dict[int, list[Node]]:
    """{column that a node computes row by row → the expressions, one of which it is in a row}.

    A projection has one for each column; sliding windows several (`Expand`), a row being in several of them.
    """
    if node.kind == "Project":
        aliases = (each for each in node.expressions("projectList") if each.kind == "Alias")
        return {each.id: [each.children[0]] for each in aliases}
    if node.kind != "Expand":
        return {}
    found = {column.id: list[Node]() for column in node.expressions("output")}
    for projection in node.fields["projections"]:
        for expressions, flat in zip(found.values(), projection, strict=True):
            expressions.append(Node.of(flat))
    is_passed_on = {
        column
        for column, (first, *_) in found.items()
        if first.kind == "AttributeReference" and first.id == column
    }
    return {column: expressions for column, expressions in found.items() if column not in is_passed_on}


def conditions(node: Node) -> Iterator[Node]:
    """What must hold of the rows of a join or a filter, part by part."""
    return _all_of(node.expressions_of("condition"))


def _all_of(conditions: Sequence[Node]) -> Iterator[Node]:
    """All that must hold together."""
    for each in conditions:
        if each.kind == "And":
            yield from _all_of(each.children)
        else:
            yield each
