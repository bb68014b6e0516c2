"""Functions of many rows: of groups, and of windows."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.planner.nodes import Node
from headwater.planner.translation.expressions import Scope
from headwater.planner.translation.kinds import (
    FLOATING,
    MOST_DIGITS,
    WHOLE,
    Kind,
    Untranslatable,
    Value,
    digits,
    duck,
    is_exact,
    is_plain,
    of_json,
    require,
    text,
)

_RANKS = {"RowNumber": "row_number", "Rank": "rank", "DenseRank": "dense_rank"}
_SHIFTS = {"Lag": "lag", "Lead": "lead"}
_EXTREMES = {"Max": "max", "Min": "min"}
_BY = {"MaxBy": "Max", "MinBy": "Min"}
_ENDS = {"UnboundedPreceding": "UNBOUNDED PRECEDING", "UnboundedFollowing": "UNBOUNDED FOLLOWING"}
_ENDS |= {"CurrentRow": "CURRENT ROW"}


class Grouped(Scope):
    """What the columns of a GROUP BY see: what groups the rows, and aggregates of these."""

    def _of(self, node: Node) -> Value:
        if node.kind == "AggregateExpression":
            return aggregate(Scope(self.columns, self.said, self.shared, self.variables), node)
        return super()._of(node)


def aggregate(scope: Scope, node: Node) -> Value:
    """An aggregate of rows.

    Raises:
        Untranslatable: DuckDB might give something else.
    """
    function, *condition = node.children
    values, is_distinct = scope.all(function.children), bool(node.fields["isDistinct"])
    only = f" FILTER (WHERE {scope.of(condition[0]).sql})" if condition else ""
    if function.kind == "Count":
        return _counted(values, only, is_distinct=is_distinct)
    require(not is_distinct, "DISTINCT")
    if function.kind in _BY:
        value, order = values
        return _chosen(_BY[function.kind], value, order, only)
    if function.kind == "MaxMinByK":
        return _several(function, values, only)
    if function.kind not in (*_EXTREMES, "Sum", "Average"):
        raise Untranslatable(function.kind)
    (value,) = values
    if function.kind in _EXTREMES:
        if not isinstance(value.kind, str):
            return _chosen(function.kind, value, value, only)
        require(is_plain(value.kind))
        return Value(f"{_EXTREMES[function.kind]}({value.sql}){only}", value.kind)
    if value.kind in FLOATING or (function.kind == "Average" and value.kind in WHOLE):
        called = "sum" if function.kind == "Sum" else "avg"
        return Value(f"{called}(CAST({value.sql} AS DOUBLE)){only}", "double")
    require(function.kind == "Sum", "an average of decimals")
    kind: Kind = "long"
    if value.kind not in WHOLE:
        found = digits(value.kind)
        require(found is not None, "a sum")
        assert found is not None
        require(found[0] + 10 <= MOST_DIGITS, "a sum that DuckDB lets have too many digits")
        kind = f"decimal({found[0] + 10},{found[1]})"
    return Value(f"CAST(sum({value.sql}){only} AS {duck(kind)})", kind)


def _counted(values: Sequence[Value], only: str, *, is_distinct: bool) -> Value:
    if is_distinct:
        (value,) = values if len(values) == 1 else (None,)
        require(value is not None and is_exact(value.kind) and is_plain(value.kind), "DISTINCT")
        assert value is not None
        return Value(f"count(DISTINCT {value.sql}){only}", "long")
    known = " AND ".join(f"({value.sql}) IS NOT NULL" for value in values)
    return Value(f"count(CASE WHEN {known} THEN 1 END){only}", "long")


def _chosen(extreme: str, value: Value, order: Value, only: str) -> Value:
    """The value of the row with the greatest, or least, `order`; rows without one are left out."""
    ends = "DESC NULLS LAST" if extreme == "Max" else "ASC NULLS FIRST"
    by = ", ".join(f"{each} {ends}" for each in _ordered(order))
    known = f"{order.sql} IS NOT NULL"
    condition = only.replace("WHERE ", f"WHERE {known} AND ", 1) if only else f" FILTER (WHERE {known})"
    return Value(f"first({value.sql} ORDER BY {by}){condition}", value.kind)


def _several(function: Node, values: Sequence[Value], only: str) -> Value:
    """The values of as many rows with the greatest, or least, orders."""
    value, order, _ = values
    number = function.children[2]
    require(number.kind == "Literal" and "reverse" in function.fields, "how many")
    found = _chosen("Min" if function.fields["reverse"] else "Max", value, order, only)
    listed = found.sql.replace("first(", "list(", 1)
    kind = {"type": "array", "elementType": value.kind, "containsNull": True}
    return Value(f"({listed})[1:{int(number.fields['value'])}]", kind)


def _ordered(value: Value) -> list[str]:
    """What a value is ordered by, one after the other, NULL being the least."""
    if isinstance(value.kind, str):
        require(is_plain(value.kind), "an order")
        return [value.sql]
    require(value.kind["type"] == "struct", "an order of arrays")
    found = [f"({value.sql} IS NOT NULL)"]
    for each in value.kind["fields"]:
        part = Value(f"struct_extract({value.sql}, {text(each['name'])})", of_json(each["type"]))
        found += _ordered(part)
    return found


def windowed(scope: Scope, node: Node) -> Value:
    """A function over a window.

    Raises:
        Untranslatable: DuckDB might give something else.
    """
    require(node.kind == "Alias" and node.children[0].kind == "WindowExpression", node.kind)
    function, window = node.children[0].children
    parts = [window.children[at] for at in window.fields["partitionSpec"]]
    orders = [window.children[at] for at in window.fields["orderSpec"]]
    frame = window.children[int(window.fields["frameSpecification"])]
    by = scope.all(parts)
    require(all(is_exact(each.kind) for each in by), "floats that part rows")
    over = f"PARTITION BY {', '.join(each.sql for each in by)} " if by else ""
    over += f"ORDER BY {', '.join(ordered(scope, each) for each in orders)} " if orders else ""
    if function.kind in _RANKS:
        return Value(f"CAST({_RANKS[function.kind]}() OVER ({over}) AS INTEGER)", "integer")
    if function.kind in _SHIFTS:
        return _shifted(scope, function, over)
    require(function.kind == "AggregateExpression" and not function.fields["isDistinct"], function.kind)
    require(function.children[0].kind not in _BY, "a choice over a window")
    found = aggregate(scope, function)
    require(isinstance(found.kind, str) and not found.sql.startswith("first("))
    return _over(found, f"{over}{_frame(frame)}")


def _over(found: Value, over: str) -> Value:
    """An aggregate, over a window: what is cast stays so."""
    if found.sql.startswith("CAST(sum("):
        inner, _, kind = found.sql.removeprefix("CAST(").rpartition(" AS ")
        return Value(f"CAST({inner} OVER ({over}) AS {kind}", found.kind)
    return Value(f"{found.sql} OVER ({over})", found.kind)


def _shifted(scope: Scope, function: Node, over: str) -> Value:
    value, by, otherwise = scope.all(function.children)
    require(not function.fields["ignoreNulls"] and function.children[1].kind == "Literal")
    require(otherwise.kind in ("void", value.kind))
    by = Value(str(int(function.children[1].fields["value"])), "integer")
    return Value(
        f"{_SHIFTS[function.kind]}({value.sql}, {by.sql}, {otherwise.sql}) OVER ({over})", value.kind
    )


def ordered(scope: Scope, node: Node) -> str:
    """What rows are ordered by, and how; parts of a struct as it is, NULL being the least of them."""
    require(node.kind == "SortOrder", node.kind)
    first, *parts = _ordered(scope.of(node.children[0]))
    direction = "DESC" if "Descending" in node.fields["direction"]["object"] else "ASC"
    nulls = "LAST" if "NullsLast" in node.fields["nullOrdering"]["object"] else "FIRST"
    if parts:  # the first says whether there is a struct
        nulls = "FIRST" if direction == "ASC" else "LAST"
        require(nulls in node.fields["nullOrdering"]["object"].upper(), "an order of structs")
    return ", ".join(f"{each} {direction} NULLS {nulls}" for each in (first, *parts))


def _frame(node: Node) -> str:
    require(node.kind == "SpecifiedWindowFrame", node.kind)
    rows = "RowFrame" in node.fields["frameType"]["object"]
    ends = [_end(each, rows=rows) for each in node.children]
    return f"{'ROWS' if rows else 'RANGE'} BETWEEN {ends[0]} AND {ends[1]}"


def _end(node: Node, *, rows: bool) -> str:
    if node.kind in _ENDS:
        return _ENDS[node.kind]
    sign, inner = (-1, node.children[0]) if node.kind == "UnaryMinus" else (1, node)
    require(rows and inner.kind == "Literal", "a frame of a range")
    number = sign * int(inner.fields["value"])
    return f"{abs(number)} {'PRECEDING' if number < 0 else 'FOLLOWING'}"


def named(value: Value, id: int) -> str:
    """A column of a query."""
    return f"{value.sql} AS c{id}"
