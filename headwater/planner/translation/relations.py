"""Operators: Spark's → a SELECT of DuckDB's. Columns are named by the ids that Spark's plan gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.planner import marked
from headwater.planner.nodes import Node
from headwater.planner.translation import aggregates
from headwater.planner.translation.aggregates import Grouped
from headwater.planner.translation.expressions import Scope
from headwater.planner.translation.kinds import (
    MICROSECONDS,
    VOID,
    Kind,
    Untranslatable,
    Value,
    duck,
    is_exact,
    name,
    of_json,
    require,
    same,
)

_JOINS = {"Inner": "JOIN", "Cross": "JOIN", "LeftOuter": "LEFT JOIN", "RightOuter": "RIGHT JOIN"}
_JOINS |= {"FullOuter": "FULL JOIN", "LeftSemi": "SEMI JOIN", "LeftAnti": "ANTI JOIN"}
_OF_ONE = ("LeftSemi", "LeftAnti")


@dataclass(frozen=True)
class Relation:
    """What an operator gives.

    Attributes:
        sql: a SELECT.
        columns: {id → type}, in order; the columns' names are `c` and the id.
    """

    sql: str
    columns: dict[int, Kind]

    @property
    def scope(self) -> Scope:
        return Scope(self.columns)


def relation(node: Node) -> Relation:
    """What a plan gives.

    Raises:
        Untranslatable: DuckDB might give something else.
    """
    found = _OPERATORS.get(node.kind)
    if found is None:
        raise Untranslatable(node.kind)
    return found(node)


def _leaf(node: Node) -> Relation:
    """An input."""
    columns, selected, inputs = {}, [], set()
    for column in node.expressions("output"):
        at, title = marked.named(str(column.fields["name"])) or (None, "")
        require(at is not None, "rows of the query's own")
        kind = of_json(column.fields["dataType"])
        require(kind != MICROSECONDS)
        duck(kind)
        inputs.add(at)
        columns[column.id] = kind
        selected.append(f"{name(title)} AS c{column.id}")
    require(len(inputs) == 1)
    return Relation(f"SELECT {', '.join(selected)} FROM in{inputs.pop()}", columns)


def _below(node: Node) -> Relation:
    (child,) = node.children
    return relation(child)


def _selected(values: Sequence[tuple[int, Value]], rest: str) -> Relation:
    columns = {id: value.kind for id, value in values}
    require(len(columns) == len(values), "a column that comes twice")
    require(VOID not in columns.values(), "a column of NULL")
    return Relation(
        f"SELECT {', '.join(aggregates.named(value, id) for id, value in values)} {rest}", columns
    )


def _project(node: Node) -> Relation:
    below = _below(node)
    values = [(each.id, below.scope.of(each)) for each in node.expressions("projectList")]  # some come twice
    return _selected([*dict(values).items()], f"FROM ({below.sql})")


def _filter(node: Node) -> Relation:
    below = _below(node)
    (condition,) = node.expressions_of("condition")
    return Relation(f"SELECT * FROM ({below.sql}) WHERE {below.scope.of(condition).sql}", below.columns)


def _aggregate(node: Node) -> Relation:
    below = _below(node)
    grouping = below.scope.all(node.expressions("groupingExpressions"))
    require(all(is_exact(each.kind) for each in grouping), "floats that tell groups apart")
    said = {each.sql: Value(f"g{at}", each.kind) for at, each in enumerate(grouping)}
    scope = Grouped(below.columns, said)
    values = [(each.id, scope.of(each)) for each in node.expressions("aggregateExpressions")]
    groups = "".join(f", {sql} AS {value.sql}" for sql, value in said.items())
    by = f"GROUP BY {', '.join(value.sql for value in said.values()) or '()'}"
    return _selected(values, f"FROM (SELECT *{groups} FROM ({below.sql})) {by}")


def _join(node: Node) -> Relation:
    one, other = map(relation, node.children)
    kind = str(node.fields["joinType"]["object"]).rpartition(".")[2].rstrip("$")
    require(kind in _JOINS, kind)
    require(not one.columns.keys() & other.columns.keys(), "a column that comes twice")
    both = Scope({**one.columns, **other.columns})
    on = " AND ".join(both.of(each).sql for each in node.expressions_of("condition")) or "true"
    columns = one.columns if kind in _OF_ONE else {**both.columns}
    return Relation(f"SELECT * FROM ({one.sql}) {_JOINS[kind]} ({other.sql}) ON {on}", {**columns})


def _window(node: Node) -> Relation:
    below = _below(node)
    values = [
        (each.id, aggregates.windowed(below.scope, each)) for each in node.expressions("windowExpressions")
    ]
    more = "".join(f", {aggregates.named(value, id)}" for id, value in values)
    return Relation(
        f"SELECT *{more} FROM ({below.sql})", below.columns | {id: each.kind for id, each in values}
    )


def _union(node: Node) -> Relation:
    require(not node.fields["byName"])
    several = [*map(relation, node.children)]
    first = several[0]
    require(
        all(all(map(same, each.columns.values(), first.columns.values())) for each in several),
        "a union of other types",
    )
    parts = []
    for each in several:
        columns = (f"c{mine} AS c{id}" for mine, id in zip(each.columns, first.columns, strict=True))
        parts.append(f"SELECT {', '.join(columns)} FROM ({each.sql})")
    return Relation(" UNION ALL ".join(parts), first.columns)


def _expand(node: Node) -> Relation:
    below, output = _below(node), node.expressions("output")
    parts = []
    for projection in node.fields["projections"]:
        values = below.scope.all([Node.of(flat) for flat in projection])
        kinds = [of_json(column.fields["dataType"]) for column in output]
        require(
            all(
                value.kind == VOID or same(value.kind, kind)
                for value, kind in zip(values, kinds, strict=True)
            )
        )
        cells = [
            aggregates.named(Value(f"CAST({value.sql} AS {duck(kind)})", kind), column.id)
            for value, kind, column in zip(values, kinds, output, strict=True)
        ]
        parts.append(f"SELECT {', '.join(cells)} FROM ({below.sql})")
    return Relation(
        " UNION ALL ".join(parts), dict(zip((column.id for column in output), kinds, strict=True))
    )


def _sorted(node: Node) -> Relation:
    below = _below(node)
    by = ", ".join(aggregates.ordered(below.scope, each) for each in node.expressions("order"))
    require(bool(node.fields["global"]), "rows that are sorted task by task")
    return Relation(f"SELECT * FROM ({below.sql}) ORDER BY {by}", below.columns)


def _limited(node: Node) -> Relation:
    below = _below(node)
    (number,) = node.expressions_of("limitExpr")
    require(number.kind == "Literal", "a limit that is computed")
    return Relation(f"SELECT * FROM ({below.sql}) LIMIT {int(number.fields['value'])}", below.columns)


def _exploded(node: Node) -> Relation:
    """Each row with each item of an array."""
    below, (generator,) = _below(node), node.expressions_of("generator")
    require(generator.kind == "Explode" and not node.fields["outer"], generator.kind)
    (items,), (made,) = below.scope.all(generator.children), node.expressions("generatorOutput")
    assert not isinstance(items.kind, str)
    kind = of_json(items.kind["elementType"])
    left = [id for at, id in enumerate(below.columns) if at not in node.fields["unrequiredChildIndex"]]
    columns = {id: below.columns[id] for id in left} | {made.id: kind}
    listed = ", ".join([*(f"c{id}" for id in left), f"unnest({items.sql}) AS c{made.id}"])
    return Relation(f"SELECT {listed} FROM ({below.sql})", columns)


def _distinct(node: Node) -> Relation:
    below = _below(node)
    require(all(map(is_exact, below.columns.values())), "floats that tell rows apart")
    return Relation(f"SELECT DISTINCT * FROM ({below.sql})", below.columns)


def _first_of_equal(node: Node) -> Relation:
    """Rows each once, where all that they have tells them apart."""
    found = _distinct(node)
    require({key.id for key in node.expressions("keys")} == found.columns.keys(), "the first row of several")
    return found


_OPERATORS: dict[str, Callable[[Node], Relation]] = {
    "Aggregate": _aggregate,
    "Deduplicate": _first_of_equal,
    "Distinct": _distinct,
    "Expand": _expand,
    "Filter": _filter,
    "Generate": _exploded,
    "GlobalLimit": _limited,
    "Join": _join,
    "LocalLimit": _limited,
    "LocalRelation": _leaf,
    "Project": _project,
    "ResolvedHint": _below,
    "Sort": _sorted,
    "SubqueryAlias": _below,
    "Union": _union,
    "View": _below,
    "Window": _window,
}
