"""Which rows of each input the touched rows of a result are made of.

From above downwards each part is asked for its rows with certain values in certain columns. At a join the
rows of one side have values that the other side's must be equal to: of the same columns, or, where there are
none, of what was found of the first side's input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.planner.reach.tree import Column, Joined, Kept, Part, Read, United
from headwater.planner.reach.ways import Within, places

TOUCHED = None  # the relation of the touched values themselves


@dataclass(frozen=True)
class Need:
    """The rows of an input that are needed: those with values that rows of another relation have.

    Attributes:
        among: what has the values: `TOUCHED`, or the needed rows of another reading.
        columns: (the input's column, the other relation's).
        within: which of its columns lies between two of the other relation.
    """

    among: int | None
    columns: tuple[tuple[str, str], ...]
    within: Within | None = None


def needs(part: Part, wanted: Mapping[Column, str], among: int | None = TOUCHED) -> dict[int, Need] | None:
    """{reading of an input → what is needed of it}, each after what it is found by; None: all of one.

    An input that does not change is always read as a whole.

    Args:
        part: the part.
        wanted: {its column → the column of the relation `among` that has the values}.
        among: see `Need`.
    """
    if isinstance(part, Read):
        if not part.changes:
            return {}
        found = tuple((part.columns[column], of) for column, of in wanted.items() if column in part.columns)
        return {part.number: Need(among, found)} if found else None
    if isinstance(part, Kept):
        below = {part.columns[column]: of for column, of in wanted.items() if column in part.columns}
        return needs(part.part, below, among)
    if isinstance(part, United):
        all_of: dict[int, Need] = {}
        for at, each in enumerate(part.parts):
            mine = {part.columns[column][at]: of for column, of in wanted.items() if column in part.columns}
            one = needs(each, mine, among)
            if one is None:
                return None
            all_of |= one
        return all_of
    return _joined(part, wanted, among) if isinstance(part, Joined) else None


def _joined(part: Joined, wanted: Mapping[Column, str], among: int | None) -> dict[int, Need] | None:
    equal = [(one, other, wanted[one]) for one, other in part.pairs if one in wanted]
    right: dict[Column, str] = {other: of for _, other, of in equal}
    if part.kind == "left":  # a right row that is left out must not make its left row one without a partner
        ours = needs(part.left, wanted, among)
        if ours is None:
            return None
        theirs = needs(part.right, right, among)
        if theirs is None:
            theirs = _beyond(part.left, part.right, part.pairs, ours)
        return None if theirs is None else ours | theirs
    if part.kind == "full":
        both = [(pair, wanted[pair]) for pair in part.pairs if pair in wanted]
        ours = needs(part.left, {one: of for (one, _), of in both}, among)
        theirs = needs(part.right, {other: of for (_, other), of in both}, among)
        return None if ours is None or theirs is None else ours | theirs
    left: dict[Column, str] = {one: wanted[other] for one, other in part.pairs if other in wanted}
    ours, theirs = needs(part.left, {**left, **wanted}, among), needs(part.right, {**right, **wanted}, among)
    if ours is None and theirs is not None:
        turned = tuple((other, one) for one, other in part.pairs)
        ours = _beyond(part.right, part.left, turned, theirs)
        return None if ours is None else theirs | ours
    if ours is not None and theirs is None:
        theirs = _beyond(part.left, part.right, part.pairs, ours)
    return None if ours is None or theirs is None else ours | theirs


def _beyond(
    known: Part, unknown: Part, pairs: tuple[tuple[int, int], ...], needed: Mapping[int, Need]
) -> dict[int, Need] | None:
    """What is needed of one side of a join, by what is needed of the other."""
    where = places(known)
    for read in needed:
        wanted: dict[Column, str] = {
            other: where[one][1] for one, other in pairs if one in where and where[one][0] == read
        }
        if wanted and (found := needs(unknown, wanted, read)) is not None:
            return found
    return None
