"""How a view is kept up to date by the rows that changes touch, found by what its query carries.

Of each input that changes the *touch* says which rows of the result it reaches, by columns of the result; and
what has to be read of all inputs to compute these rows anew. Rows that no change touches stay as they are, so
what the table holds is what the query gives over all of its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.planner.reach.needs import TOUCHED, Need, needs
from headwater.planner.reach.tree import Column, Part, Whole
from headwater.planner.reach.ways import Hop, Way, Within, parts, reads, ways

__all__ = ["TOUCHED", "Hop", "Need", "Reach", "Touch", "Way", "Within", "of", "own", "reads"]


@dataclass(frozen=True)
class Touch:
    """What changes of one reading of an input touch.

    Attributes:
        columns: {column of the result → the way to its values}; several, if all are the changed row's own.
        needs: {reading → what of it the touched rows are made of}, in the order in which it can be found.
    """

    columns: Mapping[str, Way]
    needs: Mapping[int, Need]


@dataclass(frozen=True)
class Reach:
    """How a view is kept by what is touched.

    Attributes:
        sources: {reading of an input that changes → the table's name}.
        touches: {reading → what its changes touch}.
    """

    sources: Mapping[int, str]
    touches: Mapping[int, Touch]


def of(part: Part, names: Mapping[Column, str], keys: Sequence[str]) -> Reach | str:
    """How a query's result is kept by what is touched, or why all of it has to be computed anew.

    Args:
        part: what it is made of.
        names: {column → its name} of the result.
        keys: what tells its rows apart. Rows are found by these alone: so of two rows with the same keys both
            are touched or none, and that they are not twice there can be seen.
    """
    if why := _why(part):
        return why
    found, touches = ways(part), {}
    changing = [read for read in reads(part) if read.changes]
    for read in changing:
        mine = {
            column: way for column, way in found.get(read.number, {}).items() if names.get(column) in keys
        }
        best = _best(mine)
        if not best:
            return f"no key tells which rows a change of {read.source} touches"
        needed = needs(part, {column: names[column] for column in best})
        if needed is None:
            return f"to find what a change of {read.source} touches, all rows of an input are needed"
        touches[read.number] = Touch({names[column]: way for column, way in best.items()}, needed)
    return (
        Reach({read.number: read.source for read in changing}, touches) if changing else "it reads no table"
    )


def own(part: Part, names: Mapping[Column, str], source: str) -> dict[str, str]:
    """{column of a query's result → the column of a table's row, of which it is made, that it is}."""
    found = ways(part)
    return {
        names[column]: way.column
        for read in reads(part)
        if read.source == source
        for column, way in found.get(read.number, {}).items()
        if not way.hops and column in names
    }


def _best(ways: Mapping[Column, Way]) -> dict[Column, Way]:
    """The columns to find touched rows by: all that are the changed row's own, else one, by few hops."""
    own = {column: way for column, way in ways.items() if not way.hops}
    if own or not ways:
        return own
    shortest = min(ways, key=lambda column: len(ways[column].hops))
    return {shortest: ways[shortest]}


def _why(part: Part) -> str:
    """What of a query depends on all rows; "": nothing does."""
    if isinstance(part, Whole):
        return part.why
    return next(filter(None, map(_why, parts(part))), "")
