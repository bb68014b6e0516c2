"""Expressions of one row: Spark's → DuckDB's.

Where Spark raises an error DuckDB need not give the same: it raises one, too, and Spark is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headwater.planner.nodes import Node
from headwater.planner.translation.functions import FUNCTIONS
from headwater.planner.translation.kinds import (
    MICROSECONDS,
    VOID,
    Kind,
    Value,
    of_json,
    require,
)
from headwater.planner.translation.literals import literal
from headwater.planner.translation.moments import OF_TIMES
from headwater.planner.translation.texts import OF_TEXTS

_AS_IT_IS = ("KnownNullable", "KnownNotNull", "KnownFloatingPointNormalized", "SQLScalarFunction")
_KNOWN = {**FUNCTIONS, **OF_TEXTS, **OF_TIMES}


@dataclass(frozen=True)
class Scope:
    """The columns that expressions see.

    Attributes:
        columns: {id → type}; the column's name is `c` and the id.
        said: {SQL → the column that has it}: what groups rows.
        shared: what the innermost `With` names, as those of NULLIF and BETWEEN do; None: there is none.
        variables: {id → what it stands for} in functions of an array's items.
    """

    columns: Mapping[int, Kind]
    said: Mapping[str, Value] = field(default_factory=dict)
    shared: Value | None = None
    variables: Mapping[int, Value] = field(default_factory=dict)

    def of(self, node: Node) -> Value:
        """An expression.

        Raises:
            Untranslatable: DuckDB might give something else.
        """
        found = self._of(node)
        return self.said.get(found.sql, found)

    def all(self, nodes: Sequence[Node]) -> list[Value]:
        return [self.of(node) for node in nodes]

    def _of(self, node: Node) -> Value:
        if node.kind == "AttributeReference":
            require(node.id in self.columns, "a column from elsewhere")
            return Value(f"c{node.id}", self.columns[node.id])
        if node.kind == "NamedLambdaVariable":
            return self.variables[node.id]
        if node.kind == "ArrayTransform":
            return self._transformed(node)
        if node.kind == "Literal":
            return literal(node.fields["value"], of_json(node.fields["dataType"]))
        if node.kind == "Alias" or node.kind in _AS_IT_IS:
            return self.of(node.children[0])
        if node.kind == "With":
            require(len(node.children) == 2, "several names")  # JSON does not say which is which
            child, named = node.children
            return replace(self, shared=self.of(named.children[0])).of(child)
        if node.kind == "CommonExpressionRef":
            assert self.shared is not None
            return self.shared
        found = _KNOWN.get(node.kind)
        require(found is not None, node.kind)
        assert found is not None
        return found(node, self.all(node.children))

    def _transformed(self, node: Node) -> Value:
        """What a function gives of each item of an array."""
        argument, function = node.children
        body, *variables = function.children
        require(len(variables) == 1, "a function of an item and its place")
        (variable,), items = variables, self.of(argument)
        assert not isinstance(items.kind, str)
        item = Value(f"l{variable.id}", of_json(items.kind["elementType"]))
        found = replace(self, variables={**self.variables, variable.id: item}).of(body)
        require(found.kind not in (VOID, MICROSECONDS))
        kind = {"type": "array", "elementType": found.kind, "containsNull": True}
        return Value(f"list_transform({items.sql}, lambda {item.sql}: {found.sql})", kind)
