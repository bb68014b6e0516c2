"""How far a changed row of an input reaches: by which columns of the result, and along which way.

A *touched* row of a part is one that differs, or is there in one of two states alone, as a row of an input is
changed. From below upwards each part says of each input by which of its columns touched rows can be found:
they have a value there that the changed row has, as it was or as it is. Where none of the changed row's own
columns goes so far, others do in which a further input has what it is joined on (a `Hop`): that input is
asked as it is now. (Of what it was and is no more, its own changed row tells.)

All of this may find too much, and nothing too little.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.planner.reach.tree import Column, Joined, Kept, Order, Part, Read, United


@dataclass(frozen=True)
class Within:
    """Between which columns of the changed row a column lies: from one on, and up to another; None: any.

    Attributes:
        column: the column's name.
        start, end: those of the changed row; NULL is no bound.
        sole: whether the query asks for nothing but this of the end: a row with another end is else the same.
    """

    column: str
    start: str | None
    end: str | None
    sole: bool = False


@dataclass(frozen=True)
class Hop:
    """From values of one column of an input to those of another that its rows have beside them.

    Attributes:
        read: which reading of an input.
        match, take: the columns' names.
        within: of the first hop: what else those rows have to do with the changed row.
    """

    read: int
    match: str
    take: str
    within: Within | None = None


@dataclass(frozen=True)
class Way:
    """Where the values of a column of touched rows come from: a column of the changed row, and then hops."""

    column: str
    hops: tuple[Hop, ...] = ()


Ways = dict[int, dict[Column, Way]]  # {reading of an input → {column of the part → the way to it}}
Places = dict[Column, tuple[int, str]]  # {column of a part → the reading, and its column, that it is}


def reads(part: Part) -> list[Read]:
    """The readings of inputs in a part."""
    if isinstance(part, Read):
        return [part]
    return [read for each in parts(part) for read in reads(each)]


def ways(part: Part) -> Ways:
    """The ways from each input that may change to columns of a part."""
    if isinstance(part, Read):
        return (
            {part.number: {column: Way(name) for column, name in part.columns.items()}}
            if part.changes
            else {}
        )
    if isinstance(part, Kept):
        return _each(ways(part.part), part.columns)
    if isinstance(part, United):
        found: Ways = {}
        for at, each in enumerate(part.parts):
            found |= _each(ways(each), {column: of[at] for column, of in part.columns.items()})
        return found
    if isinstance(part, Joined):
        return _joined(part)
    return {}


def places(part: Part) -> Places:
    """Which columns of a part are those of a reading of an input that can be asked, as they are."""
    if isinstance(part, Read):
        return {column: (part.number, name) for column, name in part.columns.items()} if part.changes else {}
    if isinstance(part, Kept):
        below = places(part.part)
        return {column: below[of] for column, of in part.columns.items() if of in below}
    if isinstance(part, Joined):
        return places(part.left) | places(part.right)
    return {}


def _joined(part: Joined) -> Ways:
    left, right = ways(part.left), ways(part.right)
    there = [(one, other) for one, other in part.pairs]
    back = [(other, one) for one, other in part.pairs]
    if part.kind == "full":
        return {
            **{read: _ends(found, part.pairs, 0) for read, found in left.items()},
            **{read: _ends(found, part.pairs, 1) for read, found in right.items()},
        }
    if part.kind == "left":
        return left | {read: _across(found, back, part.left, part.orders) for read, found in right.items()}
    return {
        **{read: _across(found, there, part.right, part.orders) | found for read, found in left.items()},
        **{read: _across(found, back, part.left, part.orders) | found for read, found in right.items()},
    }


def _ends(found: Mapping[Column, Way], pairs: Sequence[tuple[int, int]], side: int) -> dict[Column, Way]:
    """The ways to what a FULL JOIN makes of the columns that are equal."""
    return {pair: found[pair[side]] for pair in pairs if pair[side] in found}


def _across(
    found: Mapping[Column, Way],
    pairs: Sequence[tuple[Column, Column]],
    beyond: Part,
    orders: Sequence[Order],
) -> dict[Column, Way]:
    """The ways to columns of the other side of a join: to those that are equal, and on from these to what is
    equal to them or stands beside them."""
    reached = {to: found[of] for of, to in pairs if of in found}
    there, equal, todo = places(beyond), _equal(beyond), deque(reached)
    while todo:
        column = todo.popleft()
        way = reached[column]
        for other in equal.get(column, ()):
            if other not in reached:
                reached[other] = way
                todo.appendleft(other)
        if column in there:
            read, match = there[column]
            within = None if way.hops else _within(found, orders, there, read)
            for other, (of, take) in there.items():
                if of == read and other not in reached:
                    reached[other] = replace(way, hops=(*way.hops, Hop(read, match, take, within)))
                    todo.append(other)
    return reached


def _within(found: Mapping[Column, Way], orders: Sequence[Order], there: Places, read: int) -> Within | None:
    """Which column of a reading lies between columns of the changed row, where it is joined with that."""
    own = {column: way.column for column, way in found.items() if not way.hops}
    starts = {
        o.more: own[o.less]
        for o in orders
        if o.less in own and there.get(o.more, (None,))[0] == read and o.open != o.more
    }
    ends = {
        o.less: own[o.more]
        for o in orders
        if o.more in own and there.get(o.less, (None,))[0] == read and o.open != o.less
    }
    sole = {o.less for o in orders if o.sole}
    for column in (*(each for each in starts if each in ends), *starts, *ends):
        return Within(there[column][1], starts.get(column), ends.get(column), sole=column in sole)
    return None


def _equal(part: Part) -> dict[Column, set[Column]]:
    """{column of a part → those that are equal to it in every row}."""
    if isinstance(part, Kept):
        below, named = _equal(part.part), {of: column for column, of in part.columns.items()}
        return {
            named[of]: {named[each] for each in equal if each in named}
            for of, equal in below.items()
            if of in named
        }
    if not isinstance(part, Joined):
        return {}
    found = defaultdict(set, _equal(part.left) | _equal(part.right))
    for one, other in part.pairs if part.kind == "inner" else ():
        found[one].add(other)
        found[other].add(one)
    return found


def _each(below: Ways, columns: Mapping[Column, Column]) -> Ways:
    """Ways to the columns that are those of a part below."""
    return {
        read: {column: found[of] for column, of in columns.items() if of in found}
        for read, found in below.items()
    }


def parts(part: Part) -> Iterable[Part]:
    if isinstance(part, Kept):
        return (part.part,)
    if isinstance(part, Joined):
        return (part.left, part.right)
    return part.parts if isinstance(part, United) else ()
