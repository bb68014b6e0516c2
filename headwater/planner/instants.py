"""Whether a window is the one that holds an instant: then its end is behind that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headwater.planner.group_by import Taken
from headwater.planner.nodes import Node
from headwater.runtime import catalyst, jvm

# What Spark's windows, and `cumulative_windows`, take an instant by.
_INSTANT = ("PreciseTimestampConversion", "UnixMicros")


def is_held(taken: Taken, column: str) -> bool:
    """Whether an aggregate's window holds the instant in this column of its input, as it came.

    Of a window of another time, or of this one computed with, nothing is known.
    """
    if taken.window is None or catalyst.kind(taken.window) != "AttributeReference":
        return False
    made = _made(Node.of_plan(taken.below))
    output = {catalyst.id_of(each): str(each.name()) for each in jvm.items(taken.below.output())}
    own = [{id} for id, name in output.items() if name == column and id not in made]
    window = made.get(catalyst.id_of(taken.window), ())
    return {instant for each in window for instant in _instants(each, made)} in own


def _made(root: Node) -> dict[int, list[Node]]:
    """How a query computes what it names: {a column's id → expressions}."""
    made = dict[int, list[Node]]()
    for node in _nodes(root):
        if node.kind == "Project":
            made |= {each.id: [each] for each in node.expressions("projectList") if each.kind == "Alias"}
        if node.kind == "Generate":
            made |= {
                each.id: node.expressions_of("generator") for each in node.expressions("generatorOutput")
            }
        if node.kind == "Expand":  # windows that overlap: each row is in several
            rows = [[Node.of(flat) for flat in row] for row in node.fields["projections"]]
            outputs = zip(node.expressions("output"), zip(*rows, strict=True), strict=True)
            made |= {each.id: [*of_rows] for each, of_rows in outputs if each not in of_rows}
    return made


def _nodes(node: Node) -> Iterator[Node]:
    """A node, and all below it."""
    yield node
    for child in node.children:
        yield from _nodes(child)


def _instants(
    expression: Node, made: Mapping[int, Sequence[Node]], *, taken: bool = False
) -> Iterator[int | None]:
    """The input's columns, by their ids, whose instants an expression takes; None: it takes one otherwise.

    Args:
        expression: it.
        made: how the query computes columns, by their ids.
        taken: whether the expression's value is taken as an instant.
    """
    if expression.kind == "AttributeReference":
        if expression.id not in made:
            yield expression.id if taken else None
        for each in made.get(expression.id, ()):
            yield from _instants(each, made, taken=taken)
        return
    within = taken if _is_as_it_was(expression) else expression.kind in _INSTANT
    for child in expression.children:
        yield from _instants(child, made, taken=within)


def _is_as_it_was(expression: Node) -> bool:
    """Whether it has its child's value: another name, or a cast to its own type, as arguments have."""
    if expression.kind == "Cast":
        return bool(expression.fields["dataType"] == expression.children[0].fields.get("dataType"))
    return expression.kind == "Alias"
